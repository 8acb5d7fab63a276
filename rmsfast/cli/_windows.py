"""The command of signals: `windows`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from rmsfast.cli import _options
from rmsfast.cli._output import (
    Column,
    number,
    print_json,
    print_table,
    printable,
    progress,
    save_csv,
    save_result,
    wrote,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHOWN = 8  # channels at each end of the order, where there are many
UNITS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}


@_options.command(
    "rmsfast windows rec.bin --dtype int16 --shape -1x384 --rate 30000 --window 3s --hop 1s "
    "--plot map.png"
)
@_options.file()
@click.option(
    "--window", required=True, metavar="W", help="Length, in samples or as 3s, 100ms, 5min."
)
@click.option("--hop", metavar="H", help="From one window to the next, likewise. Default: W.")
@click.option("--rate", type=float, metavar="HZ", help="Samples a second.")
@click.option(
    "--edge",
    type=click.Choice(["valid", "partial", "centered"]),
    default="valid",
    show_default=True,
    help="Windows that lie within the recording; also one that ends with it; or one around every "
    "H-th sample.",
)
@_options.which(axis=0, holds="time")
@_options.RESULT
@_options.JSON
@_options.CSV
@_options.PLOT
def windows(
    file: str,
    window: str,
    hop: str | None,
    rate: float | None,
    tensor: tuple[str, ...],
    output: str | None,
    as_json: bool,
    csv: str | None,
    plot: str | None,
    **how: Any,
) -> None:
    """Tell the RMS of windows of a recording.

    Time runs along the axis, all other axes are channels. Shown are the smallest, median and
    largest RMS of the windows of each channel, of many those with the smallest and the largest
    median: dead channels come first, noisy ones last. --csv has a line for each window.
    """
    import numpy as np

    from rmsfast import files
    from rmsfast.files._rows import select

    length = _samples("--window", window, rate)
    step = length if hop is None else _samples("--hop", hop, rate)
    _options.check_outputs(inputs=[file], csv=csv, plot=plot, result=output)
    which = {"tensor": _options.names(tensor), **how}
    with progress(f"windows {file}") as told:
        found = files.rms_windows(file, length, hop=step, progress=told, **which)
    name = select(file, which["tensor"], how["format"], how["dtype"], how["shape"]).name
    if output:
        save_result(output, name, found)
    axis, count = how["axis"], found.shape[how["axis"]]
    first = -(length // 2) if how["edge"] == "centered" else 0
    starts = first + step * np.arange(count)
    unit, times = ("samples", starts) if rate is None else ("seconds", starts / rate)
    table = np.moveaxis(found, axis, 0).reshape(count, -1)
    about = f"window{'s' * (count != 1)} of {window}, hop {hop or window}"
    if csv:
        lines = ((time, *row.tolist()) for time, row in zip(times.tolist(), table, strict=True))
        save_csv(csv, (f"start, {unit}", *map(str, range(table.shape[1]))), lines)
    if plot:
        from rmsfast import plots

        title, hops = printable(f"{file}: {about}"), step if rate is None else step / rate
        plots.windows(table, plot, hop=hops, unit=unit, title=title)
    if as_json:
        asked = {"window": length, "hop": step, "rate": rate, "edge": how["edge"], "axis": axis}
        print_json(
            {"file": file, "name": name, **asked, "unit": unit, "start": times, "rms": found}
        )
        return
    click.echo(printable(f"{file}: {name}, {count} {about}, {_counted(table.shape[1])}"))
    _print_channels(table)
    if output:
        wrote(output)


def _samples(option: str, text: str, rate: float | None) -> int:
    """A length in samples, from samples or a time."""
    match = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*(s|ms|min|h)?", text)
    try:
        value = float(match[1]) if match else -1.0
    except ValueError:
        value = -1.0
    if match is None or value <= 0:
        raise ValueError(f"windows: {option} must be samples, or a time as 3s, got {text!r}")
    if match[2] is None:
        found = value
    elif rate is None or not rate > 0:
        raise ValueError(f"windows: {option} {text} needs a --rate above 0, got {rate}")
    else:
        found = value * UNITS[match[2]] * rate
    if round(found) < 1 or (match[2] is None and found != round(found)):
        raise ValueError(f"windows: {option} must be at least one whole sample, got {text!r}")
    return round(found)


def _print_channels(table: NDArray[np.floating[Any]]) -> None:
    import numpy as np

    if not table.size:
        return
    known = [column[column == column] for column in table.T]
    marks = [
        (each.min(), float(np.median(each)), each.max()) if each.size else (None,) * 3
        for each in known
    ]
    order = sorted(range(len(marks)), key=lambda k: (marks[k][1] is None, marks[k][1] or 0.0))
    if left := max(0, len(order) - 2 * SHOWN):
        order = order[:SHOWN] + order[-SHOWN:]
    columns = [
        Column("RMS\nmin", [number(marks[k][0]) for k in order]),
        Column("median", [number(marks[k][1]) for k in order]),
        Column("max", [number(marks[k][2]) for k in order]),
        Column("zero\nwindows", [str(np.count_nonzero(table[:, k] == 0)) for k in order]),
        Column("NaN\nwindows", [str(len(table) - known[k].size) for k in order]),
    ]
    print_table([str(k) for k in order], [""] * len(order), columns, always=5, what="channel")
    if left:
        click.echo(f"and {_counted(left)} between the first {SHOWN} and the last {SHOWN}")


def _counted(channels: int) -> str:
    return f"{channels} channel{'s' * (channels != 1)}"
