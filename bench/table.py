"""Put the table of speeds of a result file into the README, between its two markers.

python -m bench.table bench/results/NAME.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

MARKERS = "<!-- speed -->\n", "<!-- /speed -->"
README = Path(__file__).parent.parent / "README.md"


def main() -> None:
    """Write the table of the given result file into the README."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    path = parser.parse_args().results
    before, _, after = parts(README.read_text())
    README.write_text(before + table(json.loads(path.read_text()), path.name) + after)


def parts(text: str) -> tuple[str, str, str]:
    """What stands before, between and after the markers, with the markers outside."""
    before, rest = text.split(MARKERS[0])
    between, after = rest.split(MARKERS[1])
    return before + MARKERS[0], between, MARKERS[1] + after


def table(results: dict[str, Any], name: str) -> str:
    """Return the Markdown of a result file."""
    machine = results["machine"]
    lines = [
        f"Arrays of {results['mib']} MiB, warm, on {machine['cpus_usable']} CPUs of an "
        f"{machine['cpu']} (NumPy {machine['numpy']}, Numba {machine['numba']}): bytes read (and "
        "written) a second, the share of what the machine was measured to reach in the same run "
        "with plain reads (or copies), the time of the best NumPy expression over that of the "
        f"call, the largest error against exact arithmetic. From `bench/results/{name}`.",
        "",
        "| case | GB/s | share of the ceiling | times NumPy | error, ulps |",
        "|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        rate = f"{row['gb_per_s']:.1f}" if "gb_per_s" in row else ""
        share = f"{row['ratio']:.2f}" if "ratio" in row else ""
        numpy = row.get("speed-up over numpy")
        times = f"{numpy:.2g}" if numpy else ""
        error = f"{row['error_ulps']:.3f}"
        lines.append(f"| {row['problem']} | {rate} | {share} | {times} | {error} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
