"""Sums whose bits do not depend on the order of their terms: 64-bit integers in units of ``2**-fraction_bits``.

A float added to another is rounded, so a sum of floats knows in which order its terms came. Integers do not: each term is rounded once,
to the unit, and the rest is exact. They also keep the digits that sums of large numbers lose in 32 bits.

What does not fit (no number, or above 2 to the 61st units) marks its place as *lost*: it reads as not-a-number from then on, whatever is
added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from .flat import allocate

__all__ = ["Sums"]

_LOST = -(1 << 63)
_LIMIT = 1 << 61
_PIECE = 1 << 21
"""How many elements are worked on at once: what is needed in 64 bits meanwhile is a few times as many."""


class Sums:
    """A sum a place.

    elements: how many places. fraction_bits: the unit.
    """

    def __init__(self, elements: int, fraction_bits: int, device: torch.device, what: str) -> None:
        self.values = allocate(elements, torch.int64, device, what)
        self.unit = float(1 << fraction_bits)

    def add(self, factor: float, source: torch.Tensor) -> None:
        """Adds ``factor * source``, each product rounded to the unit."""
        for piece in self._pieces():
            self._add(piece, source[piece].double().mul_(factor))

    def add_weighted(self, terms: Sequence[tuple[float, Sums]]) -> None:
        """Adds other sums, each times a factor; rounded once."""
        for piece in self._pieces():
            self._add(piece, _weighted(terms, piece))

    def add_to(self, target: torch.Tensor) -> None:
        """Adds what the sums are to a float buffer."""
        for piece in self._pieces():
            target[piece] = (target[piece].double() + _weighted([(1.0, self)], piece)).to(target.dtype)

    def zero(self) -> None:
        self.values.zero_()

    def _add(self, piece: slice, values: torch.Tensor) -> None:
        there = self.values[piece]
        terms = values.mul_(self.unit).round_()
        sums = there + terms.clamp(-_LIMIT, _LIMIT).long()
        fits = (terms.abs() <= _LIMIT) & (there != _LOST) & (sums.abs() <= _LIMIT)  # the first is false for what is no number
        there.copy_(torch.where(fits, sums, _LOST))

    def _pieces(self) -> Iterator[slice]:
        for start in range(0, self.values.numel(), _PIECE):
            yield slice(start, min(start + _PIECE, self.values.numel()))


def _weighted(terms: Sequence[tuple[float, Sums]], piece: slice) -> torch.Tensor:
    total: torch.Tensor | float = 0.0
    for factor, sums in terms:
        values = sums.values[piece]
        numbers = torch.where(values == _LOST, torch.nan, values.double())
        total = total + numbers.mul_(factor / sums.unit)
    assert isinstance(total, torch.Tensor)
    return total
