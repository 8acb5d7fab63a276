"""Put the table of the newest result file into the README, between its two markers.

python -m bench.table
"""

import json
from pathlib import Path
from typing import Any

from bench.ratios import LARGE, MAIN, SMALL, best_numpy, best_peer
from rmsfast.roofline import human

MARKERS = "<!-- speed -->\n", "<!-- /speed -->"
README = Path(__file__).parent.parent / "README.md"
RESULTS = Path(__file__).parent / "results"
HEAD = (
    "| call | dtype | size | NumPy | best peer | rmsfast | ceiling | error |",
    "|---|---|---|---|---|---|---|---|",
)


def main() -> None:
    """Write the table of the newest result file into the README."""
    before, _, after = parts(README.read_text())
    README.write_text(before + table(*newest()) + after)


def newest() -> tuple[dict[str, Any], str]:
    """Results that were measured last, and the name of their file."""
    found = [(json.loads(path.read_text()), path.name) for path in RESULTS.glob("*.json")]
    return max(found, key=lambda pair: pair[0]["date"])


def parts(text: str) -> tuple[str, str, str]:
    """What stands before, between and after the markers, with the markers outside."""
    before, rest = text.split(MARKERS[0])
    between, after = rest.split(MARKERS[1])
    return before + MARKERS[0], between, MARKERS[1] + after


def table(results: dict[str, Any], name: str) -> str:
    """Return the Markdown of a result file: what stands for the rest, then all of it folded."""
    machine = results["machine"]
    versions = ", ".join(
        f"{name} {version}" for name, version in results["versions"].items() if version
    )
    rows = sorted(results["rows"], key=lambda row: row["size"] == MAIN)
    return "\n".join([
        f"Warm calls on {machine['cpus_usable']} CPUs of an {machine['cpu']}, in GB/s, or in "
        "microseconds a call (us) below 64 KiB: the best NumPy expression, the best other library, "
        "rmsfast, and what the machine was measured to read (or to copy, for what writes as much) "
        "in the same run; and the largest error against exact arithmetic, in ulps. The size is "
        f"that of `x`. From `bench/results/{name}`.",
        "",
        *HEAD,
        *map(line, filter(stands_out, rows)),
        "",
        f"<details><summary>All that was measured, with {versions}.</summary>",
        "",
        *HEAD,
        *map(line, rows),
        "",
        "</details>",
        "",
    ])  # fmt: skip


def stands_out(row: dict[str, Any]) -> bool:
    """Whether a row is among the few shown first: a small array, and rows beyond the caches."""
    if row["layout"] != "rows":
        return False
    if row["dtype"] == "float32":
        return row["size"] == LARGE or (row["size"], row["function"]) == (SMALL[1], "rms")
    return row["dtype"] == "bfloat16" and row["size"] == MAIN


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    peer = best_peer(row)
    layout = "" if row["layout"] == "rows" else f", {row['layout']}"
    cells = [
        f"`{row['function']}`{layout}",
        row["dtype"],
        human(row["size"]),
        rate(row, best_numpy(row)),
        f"{rate(row, peer)} {peer}" if peer else "",
        f"**{rate(row)}**",
        f"{row['ceiling_gb_per_s']:.1f}" if "ceiling_gb_per_s" in row else "",
        f"{row['error_ulps']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def rate(row: dict[str, Any], peer: str | None = "rmsfast") -> str:
    """Rate of the call or a peer, or the time if the array is small."""
    if peer is None:
        return ""
    times = 1 if peer == "rmsfast" else row["peers"][peer]["times"]
    if "gb_per_s" in row:
        return f"{row['gb_per_s'] / times:.1f}"
    return f"{row['seconds'] * times * 1e6:.1f} us"


if __name__ == "__main__":
    main()
