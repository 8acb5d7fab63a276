"""Root mean square quantities of large arrays: one pass, exact, at memory speed."""

from rmsfast.reductions import relative_rmse, rms, rmse

__version__ = "0.1.0"
__all__ = ["relative_rmse", "rms", "rmse"]
