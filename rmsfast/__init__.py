"""Root mean square quantities of large arrays: one pass, exact, at memory speed."""

from rmsfast.reductions import relative_rmse, rms, rmse
from rmsfast.running import RunningRMS, RunningRMSE
from rmsfast.scaling import rms_norm, scale_to_rms, unit_rms
from rmsfast.settings import get_num_threads, set_num_threads, show_config, warmup
from rmsfast.summaries import Comparison, Description, compare, describe

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Description",
    "RunningRMS",
    "RunningRMSE",
    "compare",
    "describe",
    "get_num_threads",
    "relative_rmse",
    "rms",
    "rms_norm",
    "rmse",
    "scale_to_rms",
    "set_num_threads",
    "show_config",
    "unit_rms",
    "warmup",
]
