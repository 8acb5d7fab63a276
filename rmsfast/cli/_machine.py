"""Commands about the machine and the package: `info`, `warmup`, `bench`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from rmsfast.cli import _options
from rmsfast.cli._output import print_json


@_options.command("rmsfast warmup float16 bfloat16")
@click.argument("dtypes", nargs=-1, metavar="[DTYPE]...")
def warmup(dtypes: tuple[str, ...]) -> None:
    """Compile ahead of use, for arrays of each DTYPE.

    By default for float32 and float64.
    Run while an image is built, for processors of the kind that it will run on; `rmsfast info`
    names the folder in which the code is kept.
    """
    from rmsfast import settings

    settings.warmup(*([dtypes] if dtypes else []))


@_options.command("rmsfast info --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(as_json: bool) -> None:
    """Print versions, threads and where code is kept."""
    from rmsfast import settings

    found = settings.show_config("dicts")
    if as_json:
        print_json(found)
        return
    for topic, facts in (found or {}).items():
        click.echo(topic)
        for name, value in (facts or {"compiled code": "none, Numba cannot be had"}).items():
            text = " ".join(value) if isinstance(value, list) else "-" if value is None else value
            click.echo(f"  {name:10} {text}")


# Benchmark --------------------------------------------------------------------------------------


@_options.command("rmsfast bench --quick --plot speed.png")
@click.option("--quick", is_flag=True, help="Few sizes, threads, dtypes and rounds: some seconds.")
@click.option("--json", "output", type=click.Path(), metavar="FILE", help="Store all figures.")
@click.option("--plot", type=click.Path(), metavar="FILE.png", help="Draw rates and a roofline.")
@click.option(
    "--compare",
    type=click.Path(),
    nargs=2,
    metavar="OLD.json NEW.json",
    help="Measure nothing; print the ratios of two stored runs.",
)
@click.option(
    "--fail-under",
    type=float,
    metavar="RATIO",
    help="With --compare: exit 1 if a ratio of undisturbed rows and all of its spread are less.",
)
def bench(
    quick: bool,
    output: str | None,
    plot: str | None,
    compare: tuple[str, str] | None,
    fail_under: float | None,
) -> int:
    """Measure the machine, and the package on it.

    For working sets from half of the first cache to four times the last one, as far as memory
    allows, and from one thread to all: the rates of reading, copying and writing, and of each
    function by dtype and layout, also as a share of the rate of reading (of copying, for what
    writes as much as it reads), with the largest error in ulps of a few rows. Exit code 1 if an
    error is beyond its bound.
    """
    from rmsfast import roofline

    if compare:
        if output or plot or quick:
            raise ValueError("bench: --compare goes with --fail-under only")
        if fail_under is not None and not 0 < fail_under < math.inf:
            raise ValueError(f"bench: --fail-under must be finite and > 0, got {fail_under}")
        old, new = (_stored_report(path) for path in compare)
        return _print_comparison(roofline.compare(old, new), fail_under)
    if fail_under is not None:
        raise ValueError("bench: --fail-under needs --compare")
    _options.check_outputs(plot=plot, others=[output])
    if output and plot and Path(output).resolve() == Path(plot).resolve():
        raise ValueError(f"bench: --json and --plot must name two files, got {output} and {plot}")
    _options.check_writable(output, plot)
    report = roofline.measure(quick=quick, show=click.echo)
    if output:
        Path(output).write_text(json.dumps(report, indent=1) + "\n")
    if plot:
        from rmsfast import plots

        plots.report(report, plot)
    return int(not all(row["right"] for row in report["rows"]))


def _stored_report(path: str) -> dict[str, Any]:
    try:
        report = json.loads(Path(path).read_bytes())
        whole = all(_is_whole(row) for row in report["rows"])
    except (ValueError, KeyError, TypeError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(f"{path}: not a file that rmsfast bench --json wrote")
    return report  # type: ignore[no-any-return]


def _is_whole(row: dict[str, Any]) -> bool:
    """Whether a row has all that a comparison needs."""
    counts = all(isinstance(row[name], int) for name in ("working_set", "threads"))
    figures = [row[name] for name in ("share", "p10", "p90", "gb_per_s")]
    usual = all(math.isfinite(figure) and figure > 0 for figure in figures)
    return isinstance(row["problem"], str) and isinstance(row["quiet"], bool) and counts and usual


def _print_comparison(ratios: list[dict[str, Any]], least: float | None) -> int:
    """Print ratios, the smallest last, and return 1 if one is beyond what is allowed."""
    from statistics import median

    from rmsfast import roofline

    if not ratios:
        raise ValueError("bench: the two files have no row in common")
    click.echo(roofline.RATIO_TITLES)
    failed = [] if least is None else roofline.failed(ratios, least)
    for ratio in ratios:
        click.echo(roofline.ratio_line(ratio) + " FAILED" * (ratio in failed))
    middle = median(ratio["ratio"] for ratio in ratios)
    click.echo(
        f"median of {len(ratios)} ratios of shares of the ceiling, new over old: {middle:.3f}"
    )
    click.echo(roofline.verdict(ratios, least))
    return int(bool(failed))
