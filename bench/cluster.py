"""The RMS of a zarr folder by one process, and by 1 and 2 workers of a local Dask cluster.

    python -m bench.cluster --gib 4 --json bench/results/cluster/NAME.json

The folder is made in `--folder` (by default that of temporary files) and removed at the end,
unless `--store` names one that exists. It must fit the page cache: every call reads it from there,
in turn. Workers are processes of one thread each.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

import rmsfast.dask
from rmsfast import files, machine
from rmsfast.dask import files as on_dask

COLUMNS, CHUNK_ROWS = 4096, 1024


def main() -> None:
    """Make the folder, measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4.0, help="size of the folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--store", type=Path, default=None)
    parser.add_argument("--make", action="store_true", help="make the store, and no more")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    temporary = tempfile.TemporaryDirectory(dir=options.folder)
    with nullcontext("") if options.store else temporary as folder:
        store = options.store or Path(folder) / "rows.zarr"
        if not store.exists():
            write(store, int(options.gib * (1 << 30)))
        if not options.make:
            result = measure(store, options.rounds)
            print(table(result))
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                stored = {"machine": machine.machine(), **result}
                options.json.write_text(json.dumps(stored, indent=2) + "\n")


def write(store: Path, nbytes: int) -> None:
    """Random rows, repeated, in chunks of 16 MiB without compression."""
    rows = nbytes // (4 * COLUMNS * CHUNK_ROWS) * CHUNK_ROWS
    block = np.random.default_rng(0).standard_normal((CHUNK_ROWS, COLUMNS), np.float32)
    array = zarr.create_array(
        store, shape=(rows, COLUMNS), chunks=block.shape, dtype=block.dtype, compressors=None
    )
    for first in range(0, rows, CHUNK_ROWS):
        array[first : first + CHUNK_ROWS] = block


def measure(store: Path, rounds: int) -> dict[str, Any]:
    """Medians of calls in turn, warm; ratios of calls side by side."""
    whole = zarr.open_array(store, mode="r")
    expected = files.row_rms(store)
    found: dict[str, Any] = {"bytes": whole.nbytes, "columns": COLUMNS, "chunk_rows": CHUNK_ROWS}
    with on_dask.cluster(workers=2) as client:
        workers = sorted(client.scheduler_info()["workers"])

        def run(lazy: Any, count: int) -> Any:
            return client.compute(lazy, workers=workers[:count]).result()

        lazy = rmsfast.dask.rms(da.from_zarr(whole, chunks=(2 * CHUNK_ROWS, COLUMNS)))
        for count in (1, 2):
            assert np.array_equal(run(lazy, count), expected)
        times: list[tuple[float, float, float]] = []
        for _ in range(rounds):
            times.append((
                seconds(lambda: files.row_rms(store)),
                seconds(lambda: run(lazy, 1)),
                seconds(lambda: run(lazy, 2)),
            ))  # fmt: skip
        found["task_bytes"] = 2 * CHUNK_ROWS * COLUMNS * whole.dtype.itemsize
    for k, name in enumerate(("one_process", "workers_1", "workers_2")):
        found[f"{name}_s"] = statistics.median(t[k] for t in times)
        found[f"{name}_ratio"] = statistics.median(t[k] / t[0] for t in times)
    return found


def table(result: dict[str, Any]) -> str:
    """What the README shows of a run."""
    lines = ["| rows' RMS by | s | GB/s | to one process |", "|---|---|---|---|"]
    names = {
        "one_process": "`rmsfast.files.row_rms`, one process",
        "workers_1": "`rmsfast.dask.rms`, 1 worker process",
        "workers_2": "`rmsfast.dask.rms`, 2 worker processes",
    }
    for key, name in names.items():
        time, ratio = result[f"{key}_s"], result[f"{key}_ratio"]
        lines.append(f"| {name} | {time:.2f} | {result['bytes'] / time / 1e9:.2f} | {ratio:.2f} |")
    return "\n".join(lines)


def seconds(call: Callable[[], object]) -> float:
    """Time of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
