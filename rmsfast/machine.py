"""What this machine is: processor, caches, memory, and the versions that rates depend on."""

import importlib.metadata
import os
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmsfast import __version__, _launch

__all__ = ["cache_bytes", "machine", "usable_memory"]


def machine() -> dict[str, Any]:
    """Describe this machine and the versions that rates depend on; None is what cannot be read.

    Examples
    --------
    >>> machine()["python"] == platform.python_version()
    True
    """
    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": usable_cpus(),
        "cores": cores(),
        "caches": cache_bytes(),
        "memory_bytes": memory_bytes(),
        "governor": text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "rmsfast": __version__,
        **{name: version(name) for name in ("numpy", "numba", "llvmlite")},
        "threading_layer": threading_layer(),
    }


def text(path: str | Path) -> str | None:
    """Content of a small file, or None where there is none to read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def cpu_model() -> str:
    """Name of the processor as the kernel or the platform gives it."""
    named = re.search(r"^model name\s*:\s*(.+)$", text("/proc/cpuinfo") or "", re.MULTILINE)
    return named.group(1) if named else platform.processor() or platform.machine()


def usable_cpus() -> int | None:
    """Count the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def cores() -> int | None:
    """Count the cores, each of which may run several of the CPUs."""
    found = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    return len({text(siblings) for siblings in found}) or None


def memory_bytes() -> int | None:
    """Physical memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def version(name: str) -> str | None:
    """Version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def threading_layer() -> str | None:
    """Numba's threading layer, known once a parallel kernel has run."""
    try:
        import numba

        return str(numba.threading_layer())
    except (ImportError, ValueError):
        return None


def cache_bytes() -> dict[str, int]:
    """Bytes of each data cache of the first CPU, such as {"L1": 49152, "L2": 2097152}.

    Examples
    --------
    >>> all(size > 0 for size in cache_bytes().values())
    True
    """
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG])", text(index / "size") or "")
        if size and text(index / "type") != "Instruction":
            sizes[f"L{text(index / 'level')}"] = (
                int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2]]
            )
    return sizes


def usable_memory(
    info: str = "/proc/meminfo", groups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup"
) -> int | None:
    """Bytes that can be had without swapping, within the control groups; None if not known.

    Examples
    --------
    >>> usable_memory("no such file", "nor this") is None
    True
    """
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", text(info) or "", re.MULTILINE)
    free = [int(found.group(1)) << 10] if found else []
    for folder in _launch.control_groups("memory", groups, root):
        for limit, usage in (
            ("memory.max", "memory.current"),  # version 2
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
        ):
            with suppress(ValueError):  # no such file; "max"
                left = int(text(f"{folder}/{limit}") or "") - int(text(f"{folder}/{usage}") or "")
                cached = re.search(
                    r"^inactive_file (\d+)", text(f"{folder}/memory.stat") or "", re.M
                )
                free.append(max(0, left + (int(cached.group(1)) if cached else 0)))
    return min(free, default=None)
