"""Root mean square quantities of large arrays: one pass, exact, at memory speed."""

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
