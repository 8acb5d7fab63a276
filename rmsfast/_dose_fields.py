"""The fields of a report, from the sums of an edited row."""

import math

import numpy as np

from rmsfast._doses import SUMS
from rmsfast._kernels import inner
from rmsfast._memory import apart

REALS = (
    "rms_clean", "rms_after", "top_energy_share", "alpha_requested", "rms_requested",
    "rms_rounded_request", "relative_rmse_rounded", "rms_realised", "alpha_size",
    "alpha_projected", "rms_off_direction", "relative_rmse_realised", "cosine", "frac_unchanged",
    "frac_wrong_sign", "angle_deg", "max_abs_error",
)  # fmt: skip
WHOLES = ("top_index", "max_error_index", "n_overflow", "n_nonfinite")
DEGREES = 180.0 / math.pi
# Places among the sums of a row.
CLEAN, AFTER, REALISED, ERROR, ROUNDED, ROUNDING, ALONG, TURN = range(8)
UNCHANGED, WRONG_SIGN, OVERFLOW, NONFINITE, COUNT = range(8, 13)
PEAK, PEAK_INDEX, WORST, WORST_INDEX = range(13, 17)
assert (SUMS[TURN], SUMS[COUNT], SUMS[WORST_INDEX]) == ("turn", "count", "worst_index")


@inner
def write_fields(p, clean, count, alpha, scale, rms_u, unit, reals, wholes, i):
    """Fields i of the row whose sums are p, but for the sum and number of clean squares.

    rms_u: RMS of the direction as it was given; unit: what it is divided by.
    """
    apart()
    rms_clean = math.sqrt(clean / count)
    realised, error = math.sqrt(p[REALISED] / count), math.sqrt(p[ERROR] / count)
    size = scale * (rms_u / unit)  # RMS of an edit of alpha 1
    requested = abs(alpha) * size
    along = p[ALONG] / count / rms_u  # of d, in the unit of the state
    beside = along - alpha * size  # of d - e
    # Of two differences of squares the one that cancels less.
    square = error * error - beside * beside
    if realised < error:
        square = realised * realised - along * along
    cosine = (alpha > 0.0) * along / realised - (alpha < 0.0) * along / realised
    length = math.sqrt(clean)
    forward = p[TURN] / length
    sideways = p[REALISED] - forward * forward
    angle = math.atan2(math.sqrt(0.0 if sideways < 0.0 else sideways), length + forward)

    reals[0, i], reals[1, i] = rms_clean, math.sqrt(p[AFTER] / count)
    reals[2, i] = p[PEAK] * p[PEAK] / clean
    reals[3, i], reals[4, i] = alpha + 0.0, requested  # of -0.0, 0.0
    reals[5, i] = math.sqrt(p[ROUNDED] / count)
    reals[6, i] = math.sqrt(p[ROUNDING] / count) / requested
    reals[7, i], reals[8, i] = realised, realised / size
    reals[9, i] = along / size
    reals[10, i] = math.sqrt(0.0 if square < 0.0 else square)
    reals[11, i] = error / requested
    reals[12, i] = 1.0 if cosine > 1.0 else -1.0 if cosine < -1.0 else cosine
    reals[13, i] = (p[UNCHANGED] + 0.0) / count
    reals[14, i] = (p[WRONG_SIGN] + 0.0) / count
    reals[15, i] = np.nan if p[AFTER] == 0.0 else angle * DEGREES
    # Below 0 where there is none that is a number.
    reals[16, i] = np.nan if p[WORST] < 0.0 else p[WORST]
    wholes[0, i] = -1 if p[PEAK] < 0.0 else int(p[PEAK_INDEX])
    wholes[1, i] = -1 if p[WORST] < 0.0 else int(p[WORST_INDEX])
    wholes[2, i], wholes[3, i] = int(p[OVERFLOW]), int(p[NONFINITE])
