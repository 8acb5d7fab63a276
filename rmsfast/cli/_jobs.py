"""Where the jobs of files run: in this process, or on a cluster (`--dask`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rmsfast.cli._output import progress

DASK = click.option(
    "--dask",
    metavar="ADDRESS",
    help="Work on zarr folders with Dask: on the cluster of a scheduler, as tcp://host:8786, or, "
    "with local, on worker processes of this machine.",
)


@contextmanager
def jobs(
    what: str, dask: str | None, folders: list[str], how: dict[str, Any]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The module whose functions do the jobs, and the options that they are given."""
    if dask is None:
        from rmsfast import files

        with progress(what) as told:
            yield files, {**how, "progress": told}
        return
    from rmsfast.files._open import is_zarr

    for folder in folders:
        if not is_zarr(Path(folder)):
            raise ValueError(f"{folder}: must be a zarr folder with --dask")
    if how["dtype"] is not None or how["shape"] is not None:
        raise ValueError("--dtype and --shape are of raw binary, --dask of zarr folders")
    from rmsfast.dask import files as on_dask

    options = {name: value for name, value in how.items() if name not in ("dtype", "shape")}
    with on_dask.cluster(dask):
        yield on_dask, {**options, "progress": sys.stderr.isatty()}
