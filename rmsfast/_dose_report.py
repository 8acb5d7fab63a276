"""Reports of edits: their fields from the sums of the kernels, and how they are shown."""

import json
import math
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


SHOWN = (
    "alpha_requested", "alpha_projected", "rms_requested", "rms_realised",
    "relative_rmse_rounded", "relative_rmse_realised", "frac_unchanged",
)  # fmt: skip


OF_REQUEST = (
    "alpha_requested", "rms_requested", "rms_rounded_request", "relative_rmse_rounded", "cosine",
    "relative_rmse_realised", "frac_unchanged", "frac_wrong_sign", "max_abs_error",
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
        Share of coordinates that stay c though e is not 0, and with d opposed to e (by value:
        -0.0 is 0.0, and Inf stays Inf).
    angle_deg : ndarray
        Angle between c and after, in degrees.
    max_abs_error, max_error_index : ndarray
        Largest |d - e| that is not NaN, and its coordinate; NaN and -1 where there is none.
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
    _picture: ClassVar[str] = "measure_dose"

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
        """Of all edits as one, from the sums that the fields stand for.

        Doses are those of the edit of alpha 1 along all directions, by its size in each row. With
        a mask of coordinates, whose rows may differ in their count, sums and largest alone.
        """
        v = {name: np.ravel(getattr(self, name)) for name in self.names()}
        found: dict[str, Any] = dict.fromkeys(self.names(), np.float64(np.nan))
        if not v["rms_clean"].size:
            return found
        length, worst = self.header["coordinates"], v["max_abs_error"]
        peaks = v["top_energy_share"] * v["rms_clean"] ** 2  # over the length
        for index, largest in (("top_index", peaks), ("max_error_index", worst)):
            if largest.size == self.header["rows"] and (largest == largest).any():
                row = int(np.nanargmax(largest))
                found[index] = np.int64(row * length + v[index][row])
        found["max_abs_error"] = np.fmax.reduce(worst)
        found |= {name: v[name].sum() for name in ("n_overflow", "n_nonfinite")}
        if self.header["masks"]["coordinates"] != "none":
            return found
        with np.errstate(all="ignore"):
            found |= {n: _root(_known(v[n])) for n in v if n.startswith("rms_")}
            found |= {n: np.mean(_known(v[n])) for n in v if n.startswith("frac_") and _any(v[n])}
            found["top_energy_share"] = np.fmax.reduce(peaks) / np.sum(_known(v["rms_clean"]) ** 2)
            asked, realised = v["rms_requested"], v["rms_realised"]
            for name in ("relative_rmse_rounded", "relative_rmse_realised"):
                error = v[name] * asked
                sound = error == error
                found[name] = _root(error[sound]) / _root(asked[sound])
            both = np.where(asked * realised == 0, 0.0, v["cosine"] * asked * realised)
            found["cosine"] = np.mean(both) / (_root(asked) * _root(realised))
            # Of rows that are edited at all.
            size = np.where(
                realised > 0, realised / v["alpha_size"], asked / abs(v["alpha_requested"])
            )
            if (edited := size == size).any():
                weight = size[edited] ** 2 / np.sum(size[edited] ** 2)
                for name in ("alpha_requested", "alpha_projected"):
                    found[name] = np.sum(weight * v[name][edited])
                found["alpha_size"] = np.sqrt(np.sum(weight * v["alpha_size"][edited] ** 2))
            found["angle_deg"] = _angle(v["rms_clean"], v["rms_after"], realised, v["angle_deg"])
        return found

    def _heading(self) -> list[str]:
        head = self.header
        formats = head["formats"]
        more = [head[name] for name in ("path", "rounding") if name in head]
        return [
            f"{type(self).__name__}: {head['rows']} row{'s' * (head['rows'] != 1)} of "
            f"{head['coordinates']}, " + ", ".join([formats["storage"], *more]),
            f"measured at: {head['measured_at']}",
            f"clean state: {head['clean_source']}",
            f"scale: {head['scale']}; direction: {head['direction']['scaling']}",
        ]

    def __str__(self) -> str:
        statistics = self.summary()
        lines = [*self._heading(), f"{'':24}{'min':>12}{'median':>12}{'max':>12}"]
        for name in SHOWN:
            found = statistics[name]
            lines.append(f"{name:24}" + "".join(f"{found[k]:12.4g}" for k in ("min", "p50", "max")))
        return "\n".join(lines)

    __repr__ = __str__


def _known(values: Array) -> Array:
    return np.asarray(values[values == values])


def _any(values: Array) -> bool:
    return bool((values == values).any())


def _root(values: Array) -> Any:
    """Root of the mean square, NaN of nothing."""
    return np.sqrt(np.sum(values**2) / values.size) if values.size else np.float64(np.nan)


def _angle(clean: Array, after: Array, realised: Array, degrees: Array) -> Any:
    """Angle between all clean rows and all edited rows, from that of each."""
    length = np.sqrt(np.sum(clean**2))
    along = np.where(after == 0, 0.0, after * np.cos(np.radians(degrees))) - clean
    forward = np.sum(clean * along) / length
    sideways = np.sqrt(np.maximum(np.sum(realised**2) - forward**2, 0.0))
    return np.degrees(np.arctan2(sideways, length + forward))


class DosePrediction(DoseReport):
    """A `DoseReport` of edits that were not made: each field has a last axis more, the alphas."""

    _picture: ClassVar[str] = "predict_dose"

    def by_alpha(self) -> list[DoseReport]:
        """A report for each alpha.

        Examples
        --------
        >>> from rmsfast import predict_dose
        >>> found = predict_dose([[2.0, -2.0], [4.0, 4.0]], [1, -1], [0.03, 1], storage="bfloat16")
        >>> [report.rms_realised.tolist() for report in found.by_alpha()]
        [[0.0625, 0.125], [2.0, 4.0]]
        """
        shape = np.shape(self.rms_clean)
        if math.prod(shape) == self.header["rows"] and shape[-1:] != (1,):  # alphas was a number
            return [DoseReport(**self.to_dict())]
        fields = {name: getattr(self, name) for name in self.names()}
        return [
            DoseReport(self.header, **{name: values[..., i] for name, values in fields.items()})
            for i in range(shape[-1])
        ]

    def __str__(self) -> str:
        lines = [*self._heading(), "medians of the rows:", "  ".join(f"{n:>12}" for n in SHOWN)]
        for report in self.by_alpha():
            found = report.summary()
            lines.append("  ".join(f"{found[n]['p50']:{max(12, len(n))}.4g}" for n in SHOWN))
        return "\n".join(lines)

    __repr__ = __str__


def unknown(fields: Mapping[str, Array]) -> dict[str, Array]:
    """What of the fields is not known where nothing is requested."""
    nothing = np.full(fields["rms_clean"].shape, np.nan)
    return dict.fromkeys(OF_REQUEST, nothing) | {"max_error_index": np.full(nothing.shape, -1)}
