"""The definitions in plain NumPy, written to be read: clarity first, temporaries allowed.

These functions say what the compiled ones compute, and answer where Numba cannot be imported.
Every number is held as mantissa times power of two (`Scaled`), so no square, product or quotient
can leave the range of the format; only the result is rounded to a storage format. Sums run in
`numpy.longdouble`: where it is no wider than float64, last digits differ, the range does not.
"""

from rmsfast.reference.reductions import relative_rmse, rms, rmse
from rmsfast.reference.rounding import round_to
from rmsfast.reference.scaling import rms_norm, scale_to_rms, unit_rms
from rmsfast.reference.summaries import Comparison, Description, compare, describe
from rmsfast.reference.windows import agc, rms_windows

__all__ = [
    "Comparison",
    "Description",
    "agc",
    "compare",
    "describe",
    "relative_rmse",
    "rms",
    "rms_norm",
    "rms_windows",
    "rmse",
    "round_to",
    "scale_to_rms",
    "unit_rms",
]
