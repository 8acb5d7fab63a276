"""Locks that no child finds taken for ever, whenever its parent forked.

Imported with the package, before anything is compiled by whom ever.
"""

import logging  # noqa: F401 (see before)
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

compiling = threading.RLock()  # held while kernels are loaded or compiled, and threads started
_held: list[Any] = []


def _locks() -> Iterator[Any]:
    """Yield what no thread may hold at a fork, for nobody would release it in the child."""
    yield compiling
    if module := sys.modules.get("numba.core.compiler_lock"):
        yield module.global_compiler_lock


def before() -> None:
    """Take the locks."""
    # Compiling takes the lock of `logging`, which that module too takes before a fork. What
    # was registered last is called first, so `logging` was imported above.
    for lock in _locks():
        lock.acquire()
        _held.append(lock)


def after() -> None:
    """Release the locks, in the parent and in the child."""
    held = _held[::-1]
    _held.clear()  # before another thread can fork
    for lock in held:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)
