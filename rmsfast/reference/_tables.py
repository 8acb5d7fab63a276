"""Results with one value a row in every field: as records, as statistics, as text."""

from __future__ import annotations

import html
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from rmsfast.reference._numbers import Array

SHOWN = 32  # rows that are printed; of more, their statistics are
STATISTICS = ("count", "min", "p1", "p50", "p99", "max", "pooled")

Table = TypeVar("Table", bound="RowTable")


class FieldTable(ABC):
    """Fields with one value a row, as a dict, as records, as statistics."""

    # By what rows are ordered: the greater, the more they deserve a look.
    _concern: ClassVar[dict[str, Any]] = {}
    _by: ClassVar[str] = ""
    _picture: ClassVar[str] = ""  # the function of `plots` that draws it

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the fields, in order."""
        named = (f.name for f in fields(cls))  # type: ignore[arg-type]  # of a dataclass
        return tuple(name for name in named if name != "header" and not name.startswith("_"))

    @abstractmethod
    def _pooled(self) -> dict[str, Any]:
        """The value of each field for all coordinates together."""

    def to_dict(self) -> dict[str, Any]:
        """Fields by name: arrays, or scalars of one row."""
        return {name: getattr(self, name) for name in self.names()}

    def to_records(self) -> Array:
        """A structured array of the shape of the fields."""
        values = {name: np.asarray(getattr(self, name)) for name in self.names()}
        first, *_ = values.values()
        records = np.empty(first.shape, [(name, v.dtype) for name, v in values.items()])
        for name, value in values.items():
            records[name] = value
        return records

    def plot(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Draw the rows, with Matplotlib.

        Parameters
        ----------
        path : path_like, optional
            PNG file to write.
        **options
            Of the function of `rmsfast.plots` that is named after what made this result.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from rmsfast import plots

        return getattr(plots, self._picture)({"": self}, path, **options)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Statistics of each field over the rows, and its pooled value.

        Returns
        -------
        dict of dict
            For each field: "count", the rows where it is not NaN; their "min", "p1", "p50", "p99",
            "max" (percentiles interpolate); and "pooled", the value of all coordinates together,
            made from sums: never the mean of roots. Complex fields count by absolute value.
        """
        pooled = self._pooled()
        found = {}
        for name in self.names():
            known = np.ravel(getattr(self, name))
            known = np.abs(known) if known.dtype.kind == "c" else known
            known = np.sort(known[known == known])
            marks = [_quantile(known, q) for q in (0.0, 0.01, 0.5, 0.99, 1.0)]
            found[name] = dict(zip(STATISTICS, (known.size, *marks, pooled[name]), strict=True))
        return found

    def worst(self, n: int = 10, by: str | None = None) -> Array:
        """The `n` rows that most deserve a look, as records with their "row" in front.

        Parameters
        ----------
        n : int, default 10
        by : name of a field, by default the first error or root mean square
            Rows where it is NaN come first, then the largest: in size for signed fields, the
            smallest where small is bad (`sqnr_db`, `cosine`, `n_equal`), the furthest from 1 for
            `fitted_scale`; of equals the first.

        Returns
        -------
        structured ndarray
            "row": index of the row, of several axes if the fields have several.
        """
        names = self.names()
        by = self._by or names[1] if by is None else by
        if by not in names:
            raise ValueError(f"worst: by must be one of {', '.join(names)}, got {by!r}")
        records = np.atleast_1d(self.to_records())
        concern = np.asarray(self._concern.get(by, np.asarray)(records[by].ravel()), np.float64)
        order = np.lexsort((-concern, concern == concern))[: max(0, n)]
        place = np.stack(np.unravel_index(order, records.shape), axis=-1)
        return with_rows(records.ravel()[order], place)


@dataclass(frozen=True, eq=False, repr=False)
class RowTable(FieldTable):
    """One value a row in every public field."""

    _index: ClassVar[str] = ""  # the field that numbers a coordinate

    _roots: Array  # root mean squares as float64, before they are rounded to their dtype
    _length: int  # coordinates of a row, kept or not

    @classmethod
    def concatenate(cls, parts: Iterable[Self], axis: int = 0) -> Self:
        """Join the results of consecutive blocks of rows.

        Parameters
        ----------
        parts : iterable of results of this kind
            Of rows of one length, their shapes equal but along `axis`; single rows count as
            blocks of one.
        axis : int, default 0
            Axis of the results, not of the arrays that they describe.

        Raises
        ------
        ValueError
            If there are no parts, or their rows differ in length.
        """
        parts = list(parts)
        lengths = sorted({part._length for part in parts})
        if len(lengths) != 1:
            raise ValueError(
                f"{cls.__name__}.concatenate: parts must have rows of one length, "
                f"got {lengths or 'no parts'}"
            )

        def joined(name: str, axis: int) -> Array:
            return np.concatenate([np.atleast_1d(getattr(p, name)) for p in parts], axis)

        values = {name: joined(name, axis) for name in cls.names()}
        first = np.ndim(parts[0]._roots) - np.ndim(getattr(parts[0], cls.names()[0]))
        roots = [p._roots if p._roots.ndim > first else p._roots[:, np.newaxis] for p in parts]
        axis = axis + first if axis >= 0 else axis
        return cls(_roots=np.concatenate(roots, axis), _length=lengths[0], **values)

    @classmethod
    def joined(cls, parts: Sequence[Self], starts: Sequence[int]) -> Self:
        """Join the results of consecutive parts of the same rows.

        Parameters
        ----------
        parts : sequence of results of this kind
            Their shapes are equal.
        starts : sequence of int
            The first coordinate of each part.

        Returns
        -------
        result of this kind
            Of that shape; roots, means and cosines are made from sums, within a few ulps of
            float64.
        """
        fields = {n: np.stack([np.asarray(getattr(p, n)) for p in parts]) for n in cls.names()}
        roots = np.stack([p._roots for p in parts], axis=1)
        length = sum(part._length for part in parts)
        return scalars(cls._joined(Parts(fields, roots, np.asarray(starts)), length))

    def pooled(self) -> Self:
        """The same quantities of one vector, all rows one after the other in C order.

        Returns
        -------
        result of this kind
            Of one row; roots, means and cosines are made from sums, within a few ulps of float64.
        """
        fields = {name: np.ravel(value) for name, value in self.to_dict().items()}
        size = np.size(fields["count"])
        roots = self._roots.reshape(len(self._roots), size)
        parts = Parts(fields, roots, self._length * np.arange(size))
        return scalars(self._joined(parts, self._length * size))

    @classmethod
    @abstractmethod
    def _joined(cls, parts: Parts, length: int) -> Self:
        """Rows of `length` coordinates, of parts that follow one another."""

    def _pooled(self) -> dict[str, Any]:
        return self.pooled().to_dict()

    def _table(self) -> tuple[str, list[tuple[str, ...]]]:
        """What is shown, and its lines: the rows, or if they are many their statistics."""
        records = np.atleast_1d(self.to_records())
        count = "1 row" if records.size == 1 else f"{records.size} rows"
        title = f"{type(self).__name__}: {count} of {self._length}"
        if records.size <= SHOWN:
            lines = [("row", *self.names())]
            for index in np.ndindex(records.shape):
                row = ", ".join(map(str, index))
                lines.append((row, *map(_text, records[index].item())))
            return title, lines
        lines = [("", *STATISTICS)]
        for name, found in self.summary().items():
            lines.append((name, *(_text(found[key]) for key in STATISTICS)))
        return title, lines

    def __str__(self) -> str:
        title, lines = self._table()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join([title, *text])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        title, (head, *lines) = self._table()

        def row(cells: tuple[str, ...], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(row(line, "td") for line in lines)
        return (
            f"<table><caption>{html.escape(title)}</caption>"
            f"<thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>"
        )


class Parts:
    """Fields of consecutive parts of rows, which lie along the first axis; how they are joined."""

    def __init__(self, fields: dict[str, Array], roots: Array, starts: Array) -> None:
        self.fields, self.roots, self.starts = fields, roots, starts
        self.count = fields["count"]
        self.weight = self.count.astype(np.float64)
        self.total = self.count.sum(axis=0)
        self.some = self.count > 0
        self.full = bool(self.some.all())

    def __getitem__(self, name: str) -> Array:
        return self.fields[name]

    def filled(self, values: Array, nothing: float) -> Array:
        """Values, with what stands for those of parts without values."""
        return values if self.full else np.where(self.some, values, nothing)

    def defined(self, values: Array) -> Array:
        return np.where(self.total == 0, np.nan, values)

    def root(self, *roots: Array) -> Array:
        """Root of the mean of the squares that these are the roots of, summed if several."""
        roots = tuple(self.filled(root, 0.0) for root in roots)
        top = np.max([np.max(root, axis=0, initial=0.0) for root in roots], axis=0)
        shares = [root / top for root in roots]
        squares = sum((share * share for share in shares[1:]), start=shares[0] * shares[0])
        found = top * np.sqrt((self.weight * squares).sum(axis=0) / self.total)
        return self.defined(np.where((top == 0) | np.isinf(top), top, found))

    def mean(self, means: Array) -> Array:
        """Mean of values of which these are the means."""
        if means.dtype.kind == "c":
            return np.asarray(self.mean(means.real) + 1j * self.mean(means.imag))
        means = self.filled(means, 0.0)
        top = np.max(np.abs(means), axis=0, initial=0.0)
        scale = np.ldexp(1.0, -np.maximum(np.frexp(top)[1], -1000))
        scaled = means * scale
        first = scaled[:1].sum(axis=0)  # measured from it, equal means stay as they are
        found = (first + (self.weight * (scaled - first)).sum(axis=0) / self.total) / scale
        if not np.isfinite(top).all():
            found = np.where(np.isfinite(top), found, (self.weight * means).sum(axis=0))
        return self.defined(found)

    def least(self, values: Array) -> Array:
        """NaN where there is one."""
        return self.defined(np.min(self.filled(values, np.inf), axis=0, initial=np.inf))

    def extreme(self, size: str, index: str) -> tuple[Array, Array]:
        """The largest of a field, the first NaN if there is one, and its index in all parts."""
        if not len(self.starts):
            return self.defined(self.total), np.asarray(-1)
        sizes = self.filled(self[size], -1.0)
        place = sizes.argmax(axis=0)[np.newaxis]
        found = np.take_along_axis(self[index], place, 0)[0] + self.starts[place[0]]
        largest = np.take_along_axis(sizes, place, 0)[0]
        return self.defined(largest), np.where(self.total == 0, -1, found)


def with_rows(records: Array, place: Array) -> Array:
    """Records with the index of their row in front, of several axes if there are several."""
    axes = place.shape[1:] if place.shape[1] > 1 else ()
    found = np.empty(len(records), [("row", np.intp, axes), *records.dtype.descr])
    found["row"] = place.reshape(len(records), *axes)
    for name in records.dtype.names or ():
        found[name] = records[name]
    return found


def scalars(table: Table) -> Table:
    """The table with NumPy scalars in place of arrays of no dimension."""
    return replace(table, **{name: value[()] for name, value in table.to_dict().items()})


def _quantile(ordered: Array, q: float) -> Any:
    """Interpolated between neighbours, which may be infinite."""
    if ordered.size == 0:
        return np.float64(np.nan)
    place = q * (ordered.size - 1)
    low = int(place)
    a, b = ordered[low], ordered[min(low + 1, ordered.size - 1)]
    return a if a == b or place == low else a * (low + 1 - place) + b * (place - low)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, int | np.integer) else f"{value:.4g}"
