"""Where each tensor lies in a flat buffer.

A *layout* has a *segment* for each type of the weights, and a segment has *entries*: one a tensor, in the order of the model, those
that decay first. Entries begin at multiples of 256 bytes.

What is kept in fp32 for every trained weight (cache, moments) lies in one buffer over all segments, one after the other, with the same
offsets in elements; a boundary of 256 bytes of narrower weights is one of fp32, too. What lies between entries is zero for ever.

The fingerprint stands for names, types, shapes and offsets: buffers of equal fingerprints may be copied whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from .._fingerprint import fingerprint_of_layout

__all__ = ["ALIGNMENT_BYTES", "Entry", "Layout", "Segment", "dtype_name"]

ALIGNMENT_BYTES = 256


@dataclass(frozen=True)
class Entry:
    """One tensor of a segment."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    """In elements, from the beginning of its segment."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        return self.offset + self.elements


@dataclass(frozen=True)
class Segment:
    """The tensors of one type."""

    dtype: torch.dtype
    start: int
    """Where it begins in an fp32 buffer over all segments, in elements."""
    elements: int
    """Its length with what lies between and after entries."""
    decayed: int
    """How many elements, from its beginning, weight decay is for."""
    entries: tuple[Entry, ...]

    @property
    def end(self) -> int:
        return self.start + self.elements


class Layout:
    """The places of a set of tensors."""

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self.elements = sum(segment.elements for segment in segments)
        self.fingerprint = fingerprint_of_layout((e.name, dtype_name(e.dtype), e.shape, e.offset) for e in self.entries())

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor], decays: Callable[[str, torch.Tensor], bool]) -> Layout:
        """The layout of named tensors. decays: which of them weight decay is for."""
        by_dtype: dict[torch.dtype, list[str]] = {}
        for name, tensor in tensors.items():
            by_dtype.setdefault(tensor.dtype, []).append(name)
        segments: list[Segment] = []
        for dtype in sorted(by_dtype, key=dtype_name):
            names = by_dtype[dtype]
            first = [name for name in names if decays(name, tensors[name])]
            rest = [name for name in names if name not in set(first)]
            start = segments[-1].end if segments else 0
            segments.append(_segment(dtype, start, tensors, first, rest))
        return cls(tuple(segments))

    def entries(self) -> Iterator[Entry]:
        for segment in self.segments:
            yield from segment.entries

    def placed(self) -> Iterator[tuple[Entry, int]]:
        """Entries, each with where it begins in an fp32 buffer over all segments."""
        for segment in self.segments:
            for entry in segment.entries:
                yield entry, segment.start + entry.offset


def dtype_name(dtype: torch.dtype) -> str:
    """``bfloat16`` for ``torch.bfloat16``."""
    return str(dtype).removeprefix("torch.")


def _segment(
    dtype: torch.dtype, start: int, tensors: Mapping[str, torch.Tensor], decayed: list[str], rest: list[str]
) -> Segment:
    step = max(1, ALIGNMENT_BYTES // dtype.itemsize)
    aligned = lambda elements: -(-elements // step) * step
    entries, offset, boundary = [], 0, 0
    for name in (*decayed, *rest):
        entries.append(Entry(name, dtype, tuple(tensors[name].shape), offset))
        offset = aligned(entries[-1].end)
        boundary = offset if len(entries) <= len(decayed) else boundary
    return Segment(dtype, start, offset, boundary, tuple(entries))
