"""Columns as torch tensors. torch is imported by the call that needs it, and by no other."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._arrays import numpy
from .errors import InputError


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


def tensor(column: str, values: Any, device: Any, pad: float, layout: str) -> Any:
    """The values of a column of a micro-batch as tensors on a device."""
    import torch

    np = numpy()
    if isinstance(values, np.ndarray):  # one number a row
        if isinstance(values, np.ma.MaskedArray):
            raise InputError(f"column {column!r} has cells without a value; a tensor cannot leave them out")
        return torch.from_numpy(values.copy()).to(device)
    rows = [_row(column, value) for value in values]
    if layout == "padded":
        return torch.from_numpy(_padded(column, rows, pad)).to(device)
    flat = np.concatenate([row.reshape(-1) for row in rows]) if rows else np.empty(0, np.float32)
    lengths = np.array([row.size for row in rows], np.int64)
    if layout == "nested":
        parts = torch.split(torch.from_numpy(flat).to(device), lengths.tolist())
        return torch.nested.nested_tensor(list(parts), layout=torch.jagged)
    if layout == "packed":
        ends = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(flat.size, dtype=np.int64) - np.repeat(ends[:-1], lengths)
        return Packed(
            torch.from_numpy(flat).to(device),
            torch.from_numpy(ends.astype(np.int32)).to(device),
            torch.from_numpy(places).to(device),
            int(lengths.max(initial=0)),
        )
    raise InputError(f"{layout!r} is no layout of tensors; it is 'padded', 'nested' or 'packed'")


def _row(column: str, value: Any) -> Any:
    if value is None:
        raise InputError(f"column {column!r} has cells without a value; a tensor cannot leave them out")
    if not hasattr(value, "dtype"):
        raise InputError(f"column {column!r} holds {type(value).__name__}, of which torch makes no tensor")
    return value


def _padded(column: str, rows: list[Any], pad: float) -> Any:
    """The rows below each other, filled up on the right to the length of the longest."""
    np = numpy()
    if not rows:
        return np.empty((0, 0), np.float32)
    if rows[0].ndim > 1:
        return np.stack(rows)  # tensors have one shape
    dtype = rows[0].dtype
    if dtype.kind in "iu" and (pad != int(pad) or not np.iinfo(dtype).min <= pad <= np.iinfo(dtype).max):
        raise InputError(f"column {column!r} holds {dtype}, and {pad} is none: it cannot be filled up with that")
    table = np.full((len(rows), max(row.size for row in rows)), pad, dtype)
    for place, row in zip(table, rows):
        place[: row.size] = row
    return table
