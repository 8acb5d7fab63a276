"""Root mean square quantities of large arrays: one pass, exact, at memory speed."""

from rmsfast.reductions import relative_rmse, rms, rmse
from rmsfast.scaling import rms_norm, scale_to_rms, unit_rms

__version__ = "0.1.0"
__all__ = ["relative_rmse", "rms", "rms_norm", "rmse", "scale_to_rms", "unit_rms"]
