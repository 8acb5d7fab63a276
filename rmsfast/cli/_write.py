"""Commands that write files anew, row by row: `normalize`, `rms-norm`."""

from __future__ import annotations

from typing import Any

import click

from rmsfast.cli import _options
from rmsfast.cli._jobs import DASK, jobs
from rmsfast.cli._output import printable, progress, wrote


@_options.command("rmsfast normalize h.safetensors -o unit.safetensors")
@_options.file()
@_options.OUTPUT
@click.option(
    "--target", type=float, default=1.0, show_default=True, metavar="RMS", help="RMS of every row."
)
@click.option(
    "--zero",
    type=click.Choice(["raise", "zero", "nan"]),
    default="raise",
    show_default=True,
    help="Refuse rows of zeros, keep them, or write NaN.",
)
@_options.WHICH
@DASK
def normalize(
    file: str, output: str, tensor: tuple[str, ...], dask: str | None, **how: Any
) -> None:
    """Scale each row to unit RMS, or to --target.

    Values keep their format (integers become float64) and are rounded once. OUT may be FILE
    itself.
    """
    _options.check_outputs(others=[output])
    with jobs(f"normalize {file}", dask, [file], how) as (place, options):
        odd = place.normalize(file, output, tensor=_options.names(tensor), **options)
    wrote(output)
    _tell_odd(file, odd)


@_options.command("rmsfast rms-norm h.npy --gain gain.npy --eps 1e-5 -o y.npy", "rms-norm")
@_options.file()
@_options.OUTPUT
@click.option(
    "--gain", type=click.Path(), metavar="FILE", help="File of the gain, one number a coordinate."
)
@click.option("--gain-tensor", metavar="NAME", help="Which tensor of that file it is.")
@click.option(
    "--gain-offset",
    type=float,
    default=0.0,
    show_default=True,
    help="Added to it, as 1 by Gemma.",
)
@click.option(
    "--eps", type=float, default=1e-6, show_default=True, help="Added to the mean square of a row."
)
@click.option(
    "--eps-mode",
    type=click.Choice(["inside", "outside", "max"]),
    default="inside",
    show_default=True,
    help="Divide by sqrt(mean square + eps), RMS + eps or max(RMS, eps).",
)
@click.option(
    "--cast",
    type=click.Choice(["after_gain", "before_gain"]),
    default="after_gain",
    show_default=True,
    help="Round once, after the gain, or before it too, as Llama does.",
)
@_options.WHICH
def rms_norm(
    file: str,
    output: str,
    tensor: tuple[str, ...],
    gain: str | None,
    gain_tensor: str | None,
    **how: Any,
) -> None:
    """Apply RMSNorm to each row.

    A row x becomes gain * x / sqrt(mean(x**2) + eps), in its own format (integers become float64).
    OUT may be FILE itself.
    """
    from rmsfast import files

    _options.check_outputs(others=[output])
    factors = None if gain is None else _options.vector(gain, gain_tensor)
    with progress(f"rms-norm {file}") as told:
        which = _options.names(tensor)
        odd = files.rms_norm(file, output, factors, tensor=which, progress=told, **how)
    wrote(output)
    _tell_odd(file, odd)


def _tell_odd(file: str, odd: int) -> None:
    """Say how many rows could not be scaled to anything finite."""
    if odd:
        rows = "1 row holds" if odd == 1 else f"{odd} rows hold"
        text = f"rmsfast: {file}: {rows} NaN or Inf, and NaN is written there"
        click.echo(printable(text), err=True)
