"""Arguments of calls: each that is of another kind is refused by its name, as the compiled half refuses its own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

from ..errors import InputError
from .tensors import number

__all__ = ["listed", "seconds", "whole"]

T = TypeVar("T")


def whole(name: str, value: int) -> int:
    """A number of a row, which has no default."""
    if value is None:
        raise InputError(f"{name} is a whole number, 0 or more, not None")
    return number(name, value)


def seconds(name: str, value: float | None) -> float | None:
    """How long a call waits: as long as it takes for None, and for infinity."""
    if value is None:
        return None
    try:
        time = math.nan if isinstance(value, (str, bytes, bytearray)) else float(value)
    except (TypeError, ValueError, OverflowError):
        time = math.nan
    if not time >= 0:
        raise InputError(f"{name} is a number of seconds, 0 or more, or None, not {value!r:.80}")
    return None if time == math.inf else time


def listed(name: str, of: str, given: Iterable[T]) -> list[T]:
    """What a call names, one by one. A text is none of these: its letters are no keys."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise InputError(f"{name} is a list of {of}, not {given!r:.80}")
    return list(given)
