"""Rate of `rmsfast.files.describe` beside that of merely reading, and its memory (Linux).

    python -m bench.files --gib 4 --dtype float32 --json bench/results/files/NAME.json
    python -m bench.files --zarr --json bench/results/files/NAME.json

A `.safetensors` file is read by `cat FILE > /dev/null`; `--zarr` makes an int16 array of 205 MB in
chunks of (512, 256), which zarr reads alone, about as much at a time as `describe` does; how often
a chunk was decoded is counted. The file is made in a folder (`--folder`, by default that of
temporary files) and removed at the end. It must fit the page cache: both read it from there, in
turn. Anonymous memory (RssAnon) is sampled every few milliseconds during one more call.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.core.codec_pipeline import BatchedCodecPipeline

from bench.memory import anonymous
from rmsfast import files, machine
from rmsfast.files import _tensors

COLUMNS = 1024
ZARR_ROWS, CHUNKS = 100_000, (512, 256)
BLOCK_ROWS = 4096


def main() -> None:
    """Make the file, measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4.0, help="size of the file")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16"])
    parser.add_argument("--zarr", action="store_true", help="an int16 array in chunks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.zarr:
            path = write_zarr(Path(folder) / "rows.zarr")
            result = measure(path, options.rounds) | {"dtype": "int16", "chunks": CHUNKS}
            result |= {"decodes_a_chunk": decodes(path)}
        else:
            path = Path(folder) / "rows.safetensors"
            write(path, int(options.gib * (1 << 30)), options.dtype)
            result = measure(path, options.rounds) | {"dtype": options.dtype, "gib": options.gib}
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine.machine(), **result}, indent=2))


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


def write_zarr(path: Path) -> Path:
    """Random rows in chunks, compressed as zarr does by default."""
    values = np.random.default_rng(0).normal(0, 100, (ZARR_ROWS, COLUMNS)).astype(np.int16)
    zarr.create_array(path, data=values, chunks=CHUNKS)
    return path


def read(path: Path) -> None:
    """Read all, and do nothing with it."""
    if path.is_file():
        subprocess.run(f"cat '{path}' > /dev/null", shell=True, check=True)
        return
    array = zarr.open_array(path, mode="r")
    step = _tensors.BOX_BYTES // (array.dtype.itemsize * COLUMNS) // CHUNKS[0] * CHUNKS[0]
    for first in range(0, array.shape[0], step):
        array[first : first + step]


def decodes(path: Path) -> float:
    """How often a chunk is decoded during a call, in the mean."""
    original, count = BatchedCodecPipeline.decode_batch, 0

    async def decode_batch(self: Any, batch: Any) -> Any:
        nonlocal count
        batch = list(batch)
        count += len(batch)
        return await original(self, batch)

    BatchedCodecPipeline.decode_batch = decode_batch
    files.describe(path)
    BatchedCodecPipeline.decode_batch = original
    return count / zarr.open_array(path, mode="r").nchunks


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Rates in turn, warm, and the largest anonymous memory."""
    [tensor], load = files.open_tensors(path), os.getloadavg()[0]
    files.describe(path)
    pairs = [
        (seconds(lambda: read(path)), seconds(lambda: files.describe(path))) for _ in range(rounds)
    ]
    return {
        "read_gb_per_s": statistics.median(tensor.nbytes / bare / 1e9 for bare, _ in pairs),
        "describe_gb_per_s": statistics.median(tensor.nbytes / own / 1e9 for _, own in pairs),
        "ratio": statistics.median(bare / own for bare, own in pairs),
        "ratio_min": min(bare / own for bare, own in pairs),
        "anonymous_mib": peak(path) / (1 << 20),
        "load_before": load,  # of other processes, by which both are slowed
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
