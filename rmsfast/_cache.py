"""Where compiled code is kept between processes.

Numba looks at nothing but the file of a cached function, so it would overlook a change of
another source; and it keeps nothing where it cannot write. Here a folder belongs to one
state of all sources, and one that was filled beforehand, as in an image, may be read-only.
"""

import hashlib
import os
import pkgutil
import tempfile
from functools import cache
from typing import Any

from numba.core import caching

SOURCES = (
    "_partial.py",
    "_layout.py",
    "_compiler.py",
    "_parallel.py",
    "_vectors.py",
    "_terms.py",
    "_memory.py",
    "_runs.py",
    "_lanes.py",
    "_column_lanes.py",
    "_swift.py",
    "_edges.py",
    "_stores.py",
    "_kernels.py",
    "_column_kernels.py",
    "_scalings.py",
    "_relative.py",
    "_continued.py",
    "_summary_lanes.py",
    "_moment_lanes.py",
    "_match_lanes.py",
    "_describe_kernels.py",
    "_compare_kernels.py",
    "_complex_kernels.py",
    "_complex_lanes.py",
    "_roundings.py",
    "_doses.py",
    "_dose_fields.py",
    "_dose_lines.py",
    "_dose_kernels.py",
    "_window_lanes.py",
    "_window_kernels.py",
    "_sweeps.py",
)


@cache
def digest() -> str:
    """Digest of every file that compiled code depends on."""
    sources = b"".join(pkgutil.get_data("rmsfast", name) or b"" for name in SOURCES)
    return hashlib.sha256(sources).hexdigest()[:16]


@cache
def folder() -> str | None:
    """Choose a folder of compiled code: one that holds some, else one to write to, or None."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(os.path.join("~", ".cache"))
    bases = [chosen] if chosen else [os.path.join(os.path.dirname(__file__), "__pycache__"), home]
    # A home that is not known stays "~", which would be a folder below the current one.
    names = [os.path.join(base, f"rmsfast-{digest()}") for base in bases if base[:1] != "~"]
    return next(filter(_holds_code, names), None) or next(filter(is_writable, names), None)


def _holds_code(name: str) -> bool:
    try:
        return any(file.endswith(".nbi") for file in os.listdir(name))
    except OSError:
        return False


def is_writable(name: str) -> bool:
    """Whether a file can be written to a folder, which is made if need be."""
    try:
        os.makedirs(name, exist_ok=True)
        tempfile.TemporaryFile(dir=name).close()
    except OSError:
        return False
    return True


class _Locator(caching._CacheLocator):
    """Tells Numba where code is kept and what it depends on."""

    def __init__(self, line: int) -> None:
        self.line = line

    @classmethod
    def from_function(cls, py_func: Any, _py_file: str) -> "_Locator":
        return cls(py_func.__code__.co_firstlineno)

    def ensure_cache_path(self) -> None:
        os.makedirs(self.get_cache_path(), exist_ok=True)

    def get_cache_path(self) -> str:
        name = folder()
        assert name is not None  # else there is no cache
        return name

    def get_source_stamp(self) -> str:
        return digest()

    def get_disambiguator(self) -> str:
        return str(self.line)


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 (as Numba has it)


class KernelCache(caching.FunctionCache):
    """The compiled specialisations of one function."""

    _impl_class = _Files
