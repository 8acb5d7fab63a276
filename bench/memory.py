"""Growth of anonymous memory while a large memory map is read (Linux).

`python -m bench.memory FILE.npy` prints the growth in bytes: the largest RssAnon seen during `rms`,
sampled each millisecond, less that before it. A small call compiles the kernels and starts the
threads beforehand.
"""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import rmsfast

ROOT = Path(__file__).parents[1]
STATUS = Path("/proc/self/status")


def growth(nbytes: int) -> int | None:
    """Bytes by which a fresh process grows while it reads a float32 file of a size."""
    if not STATUS.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        shape = (nbytes // 4096, 1024)
        np.lib.format.open_memmap(path, "w+", np.float32, shape)[:] = 1.0
        command = [sys.executable, "-m", "bench.memory", str(path)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return int(run.stdout)


def anonymous() -> int:
    """Anonymous resident memory of this process in bytes."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) * 1024


def watched(path: str) -> int:
    """Growth in this process."""
    x = np.load(path, mmap_mode="r")
    rmsfast.rms(np.ones((2048, 1024), np.float32))
    seen = [anonymous()]
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(anonymous())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        rmsfast.rms(x)
    finally:
        done.set()
        watcher.join()
    seen.append(anonymous())
    return max(seen) - seen[0]


if __name__ == "__main__":
    print(watched(sys.argv[1]))
