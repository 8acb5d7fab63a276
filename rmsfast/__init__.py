"""Root mean square quantities of large arrays: one pass, exact, at memory speed."""

from typing import TYPE_CHECKING

from rmsfast import _forks as _forks

if TYPE_CHECKING:
    from rmsfast.dose import apply_dose, dose_floor, measure_dose, predict_dose, round_to
    from rmsfast.reductions import relative_rmse, rms, rmse
    from rmsfast.running import RunningRMS, RunningRMSE
    from rmsfast.scaling import rms_norm, scale_to_rms, unit_rms
    from rmsfast.settings import get_num_threads, set_num_threads, show_config, warmup
    from rmsfast.summaries import Comparison, Description, compare, describe
    from rmsfast.windows import agc, rms_windows

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Description",
    "RunningRMS",
    "RunningRMSE",
    "agc",
    "apply_dose",
    "compare",
    "describe",
    "dose_floor",
    "get_num_threads",
    "measure_dose",
    "predict_dose",
    "relative_rmse",
    "rms",
    "rms_norm",
    "rms_windows",
    "rmse",
    "round_to",
    "scale_to_rms",
    "set_num_threads",
    "show_config",
    "unit_rms",
    "warmup",
]
_MODULES = ("dose", "reductions", "running", "scaling", "settings", "summaries", "windows")


def __getattr__(name: str) -> object:
    """Load all functions once one is asked for: the command line tells of itself without them."""
    if name not in (*__all__, *_MODULES, "reference"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    for module in _MODULES:
        found = vars(import_module(f"{__name__}.{module}"))
        globals().update({each: found[each] for each in __all__ if each in found})
    return globals()[name]


def __dir__() -> list[str]:
    return [*__all__, "__version__", "reference"]
