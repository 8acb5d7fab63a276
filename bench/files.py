"""Rate of `rmsfast.files.describe` beside that of `cat FILE > /dev/null`, and its memory (Linux).

    python -m bench.files --gib 4 --dtype float32 --json bench/results/files/NAME.json

The file is made in a folder (`--folder`, by default that of temporary files) and removed at the
end. It must fit the page cache: both read it from there, in turn. Anonymous memory (RssAnon) is
sampled every few milliseconds during one more call.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.memory import anonymous
from rmsfast import files, hardware

COLUMNS = 1024
BLOCK_ROWS = 4096


def main() -> None:
    """Make the file, measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4.0, help="size of the file")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "rows.safetensors"
        write(path, int(options.gib * (1 << 30)), options.dtype)
        result = measure(path, options.rounds)
    result |= {"dtype": options.dtype, "gib": options.gib}
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps({"machine": hardware.machine(), **result}, indent=2))


def write(path: Path, nbytes: int, dtype: str) -> None:
    """Random rows, repeated."""
    values = np.random.default_rng(0).normal(size=(BLOCK_ROWS, COLUMNS))
    if dtype == "bfloat16":
        block = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        block = values.astype(dtype)
    rows = nbytes // block.nbytes * BLOCK_ROWS
    with files.writing(path, [files.Tensor("h", (rows, COLUMNS), dtype)]) as put:
        for first in range(0, rows, BLOCK_ROWS):
            put("h", (slice(first, first + BLOCK_ROWS), slice(0, COLUMNS)), block)


def measure(path: Path, rounds: int) -> dict[str, float]:
    """Rates in turn, warm, and the largest anonymous memory."""
    files.describe(path)
    pairs = []
    for _ in range(rounds):
        cat = seconds(lambda: subprocess.run(f"cat '{path}' > /dev/null", shell=True, check=True))
        pairs.append((cat, seconds(lambda: files.describe(path))))
    size = path.stat().st_size
    return {
        "cat_gb_per_s": statistics.median(size / cat / 1e9 for cat, _ in pairs),
        "describe_gb_per_s": statistics.median(size / own / 1e9 for _, own in pairs),
        "ratio": statistics.median(cat / own for cat, own in pairs),
        "ratio_min": min(cat / own for cat, own in pairs),
        "anonymous_mib": peak(path) / (1 << 20),
    }


def seconds(call: Callable[[], object]) -> float:
    """Time of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak(path: Path) -> int:
    """The most anonymous memory of this process during a call."""
    seen, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            seen.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    files.describe(path)
    done.set()
    watcher.join()
    return max(seen)


if __name__ == "__main__":
    main()
