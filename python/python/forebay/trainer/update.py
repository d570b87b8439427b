"""What calls of a trainer give."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Accumulated", "Update"]


@dataclass(frozen=True)
class Accumulated:
    """What a micro-batch added to the cache."""

    rows: int
    tokens: int
    is_new: bool
    """False where the cache had its gradient already, as after ``resume``; then nothing was computed."""


@dataclass(frozen=True)
class Update:
    """What a commit did."""

    version: int
    """The version that the weights are now."""
    loss: float
    gradient_norm: float
    """Of the whole batch's gradient, before it was clipped."""
    is_clipped: bool
    rows: int
    tokens: int
    denominator: float
    metrics: dict[str, float]
    """Of the objective, a token."""
