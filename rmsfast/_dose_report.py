"""Reports of edits: their fields from the sums of the kernels, and how they are shown."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rmsfast.reference._tables import FieldTable

Array = NDArray[Any]

REFERENCES = {
    "relative_rmse_rounded": "rms_requested",
    "relative_rmse_realised": "rms_requested",
    "alpha_size": "scale",
    "alpha_projected": "scale",
    "top_energy_share": "sum of squares of the clean row",
}


WHOLE = ("top_index", "max_error_index", "n_overflow", "n_nonfinite")  # fields of int64
SHOWN = (
    "alpha_requested", "alpha_projected", "rms_requested", "rms_realised",
    "relative_rmse_rounded", "relative_rmse_realised", "frac_unchanged",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class DoseReport(FieldTable):
    """What edits asked for and what the stored rows received, one number a row in each field.

    The clean state c, the requested edit e = alpha * scale * u with RMS(u) = 1, the realised edit
    d = after - c, an exact difference. Means run over the kept coordinates of a row. A field
    whose definition divides by 0, or needs a request that was not given, is NaN.

    Attributes
    ----------
    header : dict
        What the numbers mean: formats, rounding, path, overflow, scale, direction, masks,
        references of the relative fields, where the rows come from, seed, versions.
    rms_clean, rms_after : ndarray
        RMS(c), RMS(after).
    top_index, top_energy_share : ndarray
        Coordinate of the largest |c|, and its share of the sum of squares.
    alpha_requested, rms_requested : ndarray
        alpha, |alpha| * scale.
    rms_rounded_request, relative_rmse_rounded : ndarray
        RMS(r), RMS(r - e) / RMS(e) of the request r rounded to the storage format.
    rms_realised : ndarray
        RMS(d).
    alpha_size : ndarray
        RMS(d) / scale, unsigned.
    alpha_projected : ndarray
        mean(d * u) / scale, signed: the dose along the direction.
    rms_off_direction : ndarray
        RMS of d without its part along u.
    relative_rmse_realised : ndarray
        RMS(d - e) / RMS(e).
    cosine : ndarray
        Of d and e.
    frac_unchanged, frac_wrong_sign : ndarray
        Share of coordinates with d = 0 though e is not, and with d opposed to e (by value:
        -0.0 is 0.0).
    angle_deg : ndarray
        Angle between c and after, in degrees.
    max_abs_error, max_error_index : ndarray
        Largest |d - e|, and its coordinate.
    n_overflow, n_nonfinite : ndarray of int64
        Coordinates that were finite and beyond the storage format, coordinates of the result
        that are not finite.
    """

    _concern: ClassVar[dict[str, Any]] = {
        "cosine": np.negative,
        "alpha_projected": np.abs,
        "alpha_requested": np.abs,
    }
    _by: ClassVar[str] = "relative_rmse_realised"

    header: dict[str, Any]
    rms_clean: Array
    rms_after: Array
    top_index: Array
    top_energy_share: Array
    alpha_requested: Array
    rms_requested: Array
    rms_rounded_request: Array
    relative_rmse_rounded: Array
    rms_realised: Array
    alpha_size: Array
    alpha_projected: Array
    rms_off_direction: Array
    relative_rmse_realised: Array
    cosine: Array
    frac_unchanged: Array
    frac_wrong_sign: Array
    angle_deg: Array
    max_abs_error: Array
    max_error_index: Array
    n_overflow: Array
    n_nonfinite: Array

    def to_dict(self) -> dict[str, Any]:
        """The header, and the fields by name."""
        return {"header": self.header} | super().to_dict()

    def to_json(self, **options: Any) -> str:
        """`to_dict` as JSON, null for what is not finite; options as for json.dumps."""
        found = {"header": self.header}
        for name in self.names():
            values = np.asarray(getattr(self, name), object)
            values[~np.isfinite(getattr(self, name))] = None
            found[name] = values.tolist()
        return json.dumps(found, **options)

    def _pooled(self) -> dict[str, Any]:
        """Roots of means of squares, for rows that are alike in their count; else NaN."""
        found = dict.fromkeys(self.names(), np.float64(np.nan))
        for name in self.names():
            known = np.ravel(getattr(self, name))
            known = known[known == known]
            if name.startswith("rms_") and known.size:
                found[name] = np.sqrt(np.mean(known**2))
        return found

    def __str__(self) -> str:
        head, statistics = self.header, self.summary()
        formats = head["formats"]
        more = [head[name] for name in ("path", "rounding") if name in head]
        lines = [
            f"{type(self).__name__}: {head['rows']} rows of {head['coordinates']}, "
            + ", ".join([formats["storage"], *more]),
            f"measured at: {head['measured_at']}",
            f"clean state: {head['clean_source']}",
            f"scale: {head['scale']}; direction: {head['direction']['scaling']}",
            f"{'':24}{'min':>12}{'median':>12}{'max':>12}",
        ]
        for name in SHOWN:
            found = statistics[name]
            lines.append(f"{name:24}" + "".join(f"{found[k]:12.4g}" for k in ("min", "p50", "max")))
        return "\n".join(lines)

    __repr__ = __str__


class DosePrediction(DoseReport):
    """A `DoseReport` of edits that were not made: each field has a last axis more, the alphas."""


def fields_of(
    sums: Mapping[str, Array], alpha: Array | None, scale: Array | None, rms_u: Array, unit: Array
) -> dict[str, Array]:
    """The fields of a report, of the shape of the sums.

    alpha: None where nothing is requested; scale: None for the RMS of the clean state; rms_u:
    RMS of the direction as it was given; unit: what it is divided by.
    """
    count = sums["count"]
    nothing = np.full(count.shape, np.nan)

    def rms(name: str) -> Array:
        return np.asarray(np.sqrt(sums[name] / count))

    clean, realised, error = rms("clean"), rms("realised"), rms("error")
    scale = clean if scale is None else scale
    size = scale * (rms_u / unit)  # RMS of an edit of alpha 1
    asked = 0.0 if alpha is None else alpha
    requested = np.abs(asked) * size
    along = sums["along"] / count / rms_u  # of d, in the unit of the state
    beside = along - asked * size  # of d - e
    # Of two differences of squares the one that cancels less.
    square = np.where(realised < error, realised**2 - along**2, error**2 - beside**2)
    forward = sums["turn"] / np.sqrt(sums["clean"])
    sideways = np.sqrt(np.maximum(sums["realised"] - forward**2, 0.0))
    reached = np.sqrt(sums["clean"]) + forward
    angle = np.degrees(np.arctan2(sideways, reached))
    none = count == 0
    found = {
        "rms_clean": clean,
        "rms_after": rms("after"),
        "top_index": np.where(none, -1, sums["peak_index"]),
        "top_energy_share": sums["peak"] ** 2 / sums["clean"],
        "alpha_requested": nothing if alpha is None else alpha + np.zeros(count.shape),
        "rms_requested": requested,
        "rms_rounded_request": rms("rounded"),
        "relative_rmse_rounded": rms("rounding") / requested,
        "rms_realised": realised,
        "alpha_size": realised / size,
        "alpha_projected": along / size,
        "rms_off_direction": np.sqrt(np.maximum(square, 0.0)),
        "relative_rmse_realised": error / requested,
        "cosine": np.clip(np.sign(asked) * along / realised, -1.0, 1.0),
        "frac_unchanged": sums["unchanged"] / count,
        "frac_wrong_sign": sums["wrong_sign"] / count,
        "angle_deg": np.where(sums["after"] == 0, np.nan, angle),
        "max_abs_error": np.where(none, np.nan, sums["worst"]),
        "max_error_index": np.where(none, -1, sums["worst_index"]),
        "n_overflow": sums["overflow"],
        "n_nonfinite": sums["nonfinite"],
    }
    if alpha is None:
        for name in (
            "rms_requested", "rms_rounded_request", "relative_rmse_rounded", "cosine",
            "relative_rmse_realised", "frac_unchanged", "frac_wrong_sign", "max_abs_error",
        ):  # fmt: skip
            found[name] = nothing
        found["max_error_index"] = np.full(count.shape, -1)
    return found
