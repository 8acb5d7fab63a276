"""Pictures of measured speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmsfast.plots._figure import COLOURS, DASHES, MARKERS, PANEL_HEIGHT, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Report = dict[str, Any]
Row = dict[str, Any]


def report(measured: Report, path: str) -> None:
    """Draw a report of `roofline.measure`: rates against working sets, and a roofline.

    One panel for each function over dtypes and one for each function over the other layouts, of
    calls with all threads beside the ceiling; below, operations a second against operations a byte
    in the largest working set.
    """
    most = max(row["threads"] for row in measured["rows"])
    rows = [row for row in measured["rows"] if row["threads"] == most]
    ceilings = [row for row in measured["ceilings"] if row["threads"] == most]
    panels = grouped(rows)
    lines = -(-len(panels) // 2)
    heights = [PANEL_HEIGHT] * lines + [1.6 * PANEL_HEIGHT]
    drawn = figure(heights)
    grid = drawn.add_gridspec(lines + 1, 2, height_ratios=heights)
    for index, (title, chosen) in enumerate(panels.items()):
        axes = drawn.add_subplot(grid[index // 2, index % 2])
        bandwidth(axes, chosen, ceilings)
        mark_caches(axes, measured["machine"]["caches"])
        axes.set_title(title, fontsize=10, pad=16)  # above the names of caches
    roofline(drawn.add_subplot(grid[lines, :]), measured, rows, ceilings)
    about = measured["machine"]
    drawn.suptitle(f"{about['cpu']}, {most} threads, NumPy {about['numpy']}", fontsize=11)
    drawn.savefig(path)


def grouped(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """Rows by panel and line: a function over dtypes, and over its other layouts."""
    panels: dict[str, dict[str, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: row["layout"] != "rows"):
        plain = row["layout"] == "rows"
        title = f"{row['function']}, rows" if plain else f"{row['function']} {row['dtype']}"
        lines = panels.setdefault(title, {})
        lines.setdefault(row["dtype"] if plain else row["layout"], []).append(row)
    return panels


def bandwidth(axes: Axes, lines: dict[str, list[Row]], ceilings: Sequence[Row]) -> None:
    """Rates of some calls and of their ceiling against the working set."""
    kind = next(iter(lines.values()))[0]["ceiling"].split(",")[0]
    sizes = [ceiling["nbytes"] for ceiling in ceilings]
    best = [best_of(kind, ceiling) for ceiling in ceilings]
    axes.plot(sizes, best, color="0.6", linewidth=4, label=f"ceiling: {kind}", zorder=1)
    for index, (name, rows) in enumerate(lines.items()):
        axes.plot(
            [row["working_set"] for row in rows],
            [row["gb_per_s"] for row in rows],
            color=COLOURS[index % len(COLOURS)],
            linestyle=DASHES[index % len(DASHES)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=4,
            linewidth=1.2,
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    bytes_along(axes, sizes)
    plain_along(axes)
    axes.set_ylabel("GB/s", fontsize=9)
    axes.tick_params(labelsize=8)
    legend_below(axes, -0.25)


def best_of(kind: str, ceiling: Row) -> float:
    """Rate of the fastest sweep of a kind."""
    return max(float(rate) for name, rate in ceiling.items() if name.startswith(kind))


def legend_below(axes: Axes, bottom: float) -> None:
    """What lines and marks mean, where it covers none."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.45, bottom),
        ncols=3,
        fontsize=7.5,
        handlelength=2.5,
        columnspacing=1.0,
        frameon=False,
    )


def mark_caches(axes: Axes, caches: dict[str, int]) -> None:
    """Draw a vertical line at the size of each cache, with its name above."""
    for name, size in caches.items():
        axes.axvline(size, color="0.75", linewidth=0.8, linestyle=":", zorder=0)
        axes.annotate(
            name,
            (size, 1.02),  # above the panel, where no line runs
            xycoords=("data", "axes fraction"),
            fontsize=8,
            color="0.35",
            ha="center",
            va="bottom",
        )


def bytes_along(axes: Axes, sizes: Sequence[int]) -> None:
    """Name powers of two on the horizontal axis in binary units."""
    from matplotlib.ticker import FixedLocator, NullLocator

    first, last = min(sizes).bit_length(), max(sizes).bit_length()
    powers = range(first, last, 4 if last - first > 8 else 2)
    axes.xaxis.set_major_locator(FixedLocator([1 << power for power in powers]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{1 << power % 10} {' KMGT'[power // 10]}iB" for power in powers])
    axes.set_xlabel("working set", fontsize=9)


def plain_along(axes: Axes) -> None:
    """Name numbers on the vertical axis, which is logarithmic, as 60, not as a power of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    named = range(1, 10) if high < 10 * low else (1, 2, 5) if high < 200 * low else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=named))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def roofline(axes: Axes, measured: Report, rows: Sequence[Row], ceilings: Sequence[Row]) -> None:
    """Operations a second against operations a byte, in the largest working set."""
    import numpy as np

    most = max(row["working_set"] for row in rows)
    points = [row for row in rows if row["working_set"] == most and row["layout"] == "rows"]
    peak = measured["peak"][str(rows[0]["threads"])]
    span = np.geomspace(1 / 8, 8, 100)
    smallest, largest = (pick(ceilings, key=lambda c: c["nbytes"]) for pick in (min, max))
    roofs = {"read in the smallest working set": best_of("read", smallest)}
    roofs |= {kind: best_of(kind, largest) for kind in ("read", "copy")}
    for dashes, (kind, rate) in zip(("--", "-", "-."), roofs.items(), strict=False):
        roof = np.minimum(peak, rate * span)
        axes.plot(span, roof, color="0.55", linestyle=dashes, label=f"{kind}: {rate:.0f} GB/s")
    label = f"float64 multiply-adds in registers: {peak:.0f} G/s"
    axes.axhline(peak, color="0.55", linestyle=":", label=label)
    below: dict[float, tuple[float, set[str]]] = {}  # the lowest mark of those above each other
    for index, function in enumerate(dict.fromkeys(row["function"] for row in points)):
        chosen = [row for row in points if row["function"] == function]
        x = [row["operations"] / row["nbytes"] for row in chosen]
        # As far below the roof as was measured in turn with it.
        roof = [roofs[row["ceiling"].split(",")[0]] for row in chosen]
        y = [row["share"] * rate * value for row, rate, value in zip(chosen, roof, x, strict=True)]
        axes.plot(
            x,
            y,
            MARKERS[index],
            color=COLOURS[index],
            markerfacecolor="none",  # or one hides another
            markeredgewidth=1.5,
            linestyle="none",
            label=function,
        )
        for row, left, high in zip(chosen, x, y, strict=True):
            lowest, names = below.get(left, (high, set()))
            name = row["dtype"].replace("float", "f").replace("int", "i")
            below[left] = min(lowest, high), names | {name}
    for left, (lowest, names) in below.items():
        axes.annotate(
            "\n".join(sorted(names)),
            (left, lowest),
            (0, -6),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(labelsize=8)
    axes.set_xlabel("operations of the definition for each byte counted", fontsize=9)
    axes.set_ylabel("1e9 operations a second", fontsize=9)
    axes.set_title("roofline of the largest working set", fontsize=10)
    legend_below(axes, -0.12)


def scaling(measured: Report, path: str) -> None:
    """Draw what `bench.scaling` measured: times with their fits, and serial against parallel."""
    crossovers = measured["crossovers"]
    heights = [PANEL_HEIGHT * 1.2] + [PANEL_HEIGHT] * -(-len(crossovers) // 2)
    drawn = figure(heights)
    grid = drawn.add_gridspec(len(heights), 2, height_ratios=heights)
    for column, along in enumerate(("rows", "columns")):
        axes = drawn.add_subplot(grid[0, column])
        for index, line in enumerate(measured[along]):
            n, colour = line["n"], COLOURS[index]
            axes.plot(n, line["seconds"], MARKERS[index], markersize=4, color=colour)
            fitted = [line["call_seconds"] + line["seconds_each"] * count for count in n]
            label = f"threads {line['threads']}: {line['call_seconds'] * 1e6:.1f} us + n x "
            label += f"{line['seconds_each'] * 1e9:.2f} ns"
            axes.plot(n, fitted, linestyle=DASHES[index], label=label, linewidth=1, color=colour)
        axes.set_title(f"rms of float32 against {along}", fontsize=10)
        axes.set_xlabel(along, fontsize=9)
        times_along(axes)
        axes.legend(fontsize=7.5, loc="upper left")
    for index, found in enumerate(crossovers):
        axes = drawn.add_subplot(grid[1 + index // 2, index % 2])
        for line, (name, seconds) in enumerate(found["seconds"].items()):
            axes.plot(
                found["nbytes"],
                seconds,
                color=COLOURS[line % 2],
                linestyle=DASHES[line // 2],
                marker=MARKERS[line],
                markersize=4,
                linewidth=1,
                label=name,
            )
        axes.set_title(found["problem"], fontsize=10)
        times_along(axes)
        axes.set_xscale("log", base=2)
        bytes_along(axes, found["nbytes"])
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=4)
    drawn.savefig(path)


def times_along(axes: Axes) -> None:
    """Logarithmic axes, of which the vertical one is time."""
    from matplotlib.ticker import NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("seconds a call", fontsize=9)
    axes.tick_params(labelsize=8)
