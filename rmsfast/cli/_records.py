"""What is printed and stored of the tensors of files: records, CSV, titles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from rmsfast.cli._options import options_named
from rmsfast.cli._output import index_text, printable, save_csv, shape_text

WORST = 3  # rows of a tensor that JSON names


def record(found: Any, axis: int, worst: Sequence[str]) -> dict[str, Any]:
    """The fields of a tensor by name, and these of its worst rows; or why it was not read.

    The index of a field is a place in the tensor, one number for each of its axes. In a row it is
    a coordinate.
    """
    fields = asdict(found)
    if found.error is not None:
        return {name: fields[name] for name in ("name", "shape", "dtype", "error")}
    del fields["error"]
    if found.whole is not None:
        fields |= {k: v for k, v in found.whole.to_dict().items() if k not in fields}
        if "max_error_index" in fields:
            index = int(fields["max_error_index"])
            fields["max_error_index"] = _place(index, found.shape, axis) if index >= 0 else None
        fields["worst"] = [{n: row[n] for n in ("row", *worst)} for row in found.worst[:WORST]]
    return fields


def _place(index: int, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The place in a tensor of a value, of rows one after the other the one of this index."""
    others = list(range(len(shape)))
    along = [others.pop(axis)] if shape else []
    place = dict.fromkeys(others, 0)
    for k in reversed([*others, *along]):
        index, place[k] = divmod(index, shape[k])
    return tuple(place[k] for k in range(len(shape)))


def save_records(path: str, records: Sequence[dict[str, Any]]) -> None:
    """Write records as CSV, with a column for each name that any of them has."""
    titles = list(dict.fromkeys(title for each in records for title in each if title != "worst"))
    save_csv(path, titles, ([each.get(title) for title in titles] for each in records))


def check_any_read(path: str, found: Sequence[Any]) -> None:
    """Refuse a file of which nothing could be read."""
    if found and all(each.error is not None for each in found):
        raise ValueError(f"{path}: tensor {found[0].name!r}: {found[0].error}")


def print_unread(found: Sequence[Any], what: str) -> None:
    """List what could not be read, with the reasons."""
    for each in found:
        if each.error is not None:
            name = f"{each.name} ({each.dtype} {shape_text(each.shape)})"
            click.echo(f"{what}: {printable(f'{name}: {options_named(each.error)}')}")


def row_text(row: Any) -> str:
    """The index of a row, as 3,17."""
    return index_text(row["row"].reshape(-1).tolist())


def drawn(found: Sequence[Any], by: str, text: str) -> tuple[list[Any], str]:
    """The tensors that have rows to draw, of many those with the largest value; and the title."""
    from rmsfast import plots

    sizes = {each.name: getattr(each, by) for each in found if getattr(each, by) is not None}
    if not sizes:
        raise ValueError(f"{text}: plot must have rows to show, got none")
    known = {name: -math.inf if math.isnan(size) else size for name, size in sizes.items()}
    largest = sorted(known, key=lambda name: -known[name])[: plots.MOST]
    title = printable(text)
    if len(largest) < len(sizes):
        title += f"\n{len(largest)} of {len(sizes)} tensors"
    return [each for each in found if each.name in largest], title
