"""Libraries that only some functions need, and the extras that install them."""

from importlib import import_module
from typing import Any


def needed(what: str, package: str, extra: str) -> Any:
    """A package; where it is missing, the error names what needs it and the remedy."""
    try:
        return import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        text = f"{what} needs the package {name} (pip install 'rmsfast[{extra}]')"
        raise ImportError(text) from None
