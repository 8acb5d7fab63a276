"""`python -m rmsfast`, and the entry point of the command `rmsfast`."""

import signal
import sys
from importlib.util import find_spec
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, or name the remedy where its libraries are missing."""
    if not (find_spec("click") and find_spec("rich")):
        sys.stderr.write('rmsfast: needs click and rich, try: pip install "rmsfast[cli]"\n')
        sys.exit(2)

    # Leave as from an exception, so that a temporary file is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        from rmsfast import cli

        sys.exit(cli.main())
    except KeyboardInterrupt:  # while modules are loaded
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
