"""Columns as torch tensors. torch is imported by the call that needs it, and by no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ._arrays import numpy
from .errors import InputError


LAYOUTS = ("padded", "nested", "packed")
"""How rows of different lengths become tensors."""


class Packed(NamedTuple):
    """Rows one after the other, as attention kernels for rows of different lengths take them."""

    values: Any
    """All tokens of all rows: one dimension."""
    cu_seqlens: Any
    """Where each row begins, and at last where the last one ends: int32, one more than there are rows."""
    position_ids: Any
    """Each token's place in its row, from 0: int64."""
    max_seqlen: int
    """The length of the longest row."""


def tensor(column: str, values: Any, device: Any, pad: float, layout: str, kind: tuple[str, Sequence[int]] | None) -> Any:
    """The values of a column of a micro-batch as tensors on a device.

    kind: where there is no row that shows it (a rank's part may be empty), what numbers a row of lists or tensors has, by numpy's name,
        and a tensor's sides, or 0 for a list's.
    """
    if layout not in LAYOUTS:
        raise InputError(f"layout is 'padded', 'nested' or 'packed', not {layout!r}")
    import torch

    np = numpy()
    if isinstance(values, np.ndarray):  # one number a row
        if isinstance(values, np.ma.MaskedArray):
            raise InputError(f"column {column!r} has cells without a value; a tensor cannot leave them out")
        return torch.from_numpy(values.copy()).to(device)
    rows = [_row(column, value) for value in values]
    none = _none(column, kind) if not rows else None
    if layout == "padded":
        return torch.from_numpy(_padded(column, rows, pad) if none is None else none).to(device)
    flat = np.concatenate([row.reshape(-1) for row in rows]) if none is None else none.reshape(-1)
    lengths = np.array([row.size for row in rows], np.int64)
    if layout == "nested":
        return _nested(torch.from_numpy(flat).to(device), lengths.tolist())
    ends = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(flat.size, dtype=np.int64) - np.repeat(ends[:-1], lengths)
    return Packed(
        torch.from_numpy(flat).to(device),
        torch.from_numpy(ends.astype(np.int32)).to(device),
        torch.from_numpy(places).to(device),
        int(lengths.max(initial=0)),
    )


def _nested(flat: Any, lengths: list[int]) -> Any:
    import torch

    if not lengths:  # torch makes no nested tensor of no parts, but one of no rows
        return torch.nested.nested_tensor_from_jagged(flat, torch.zeros(1, dtype=torch.int64, device=flat.device))
    return torch.nested.nested_tensor(list(torch.split(flat, lengths)), layout=torch.jagged)


def _none(column: str, kind: tuple[str, Sequence[int]] | None) -> Any:
    """No rows of a column."""
    if kind is None:
        raise InputError(f"column {column!r} holds what torch makes no tensor of: neither numbers nor bools")
    dtype, sides = kind
    return numpy().empty((0, *sides), dtype)


def _row(column: str, value: Any) -> Any:
    if value is None:
        raise InputError(f"column {column!r} has cells without a value; a tensor cannot leave them out")
    if not hasattr(value, "dtype"):
        raise InputError(f"column {column!r} holds {type(value).__name__}, of which torch makes no tensor")
    return value


def _padded(column: str, rows: list[Any], pad: float) -> Any:
    """The rows below each other, filled up on the right to the length of the longest."""
    np = numpy()
    if rows[0].ndim > 1:
        return np.stack(rows)  # tensors have one shape
    dtype = rows[0].dtype
    if dtype.kind in "iu" and (not float(pad).is_integer() or not np.iinfo(dtype).min <= pad <= np.iinfo(dtype).max):
        raise InputError(f"column {column!r} holds {dtype}, and {pad} is none: it cannot be filled up with that")
    table = np.full((len(rows), max(row.size for row in rows)), pad, dtype)
    for place, row in zip(table, rows):
        place[: row.size] = row
    return table
