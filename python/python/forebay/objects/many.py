"""Many keys in one call: each has a result of its own, and a call in which every one failed fails."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from ..errors import ClosedError, Error, InputError

__all__ = ["KEYS_MAX", "each"]

KEYS_MAX = 10_000
"""The most keys that one call takes."""

K = TypeVar("K")
T = TypeVar("T")


def each(keys: Collection[K], call: Callable[[K], T]) -> dict[K, T | Exception]:
    """What ``call`` gives for each key, or the exception that it met there; raises the first of them where there is nothing else.

    A key that is named twice is called once. A store that is closed, or whose server cannot be reached, is not asked again for the
    keys that are left.
    """
    if len(keys) > KEYS_MAX:
        raise InputError(f"keys: {len(keys)} in one call; take {KEYS_MAX} at most")
    results: dict[K, T | Exception] = {}
    away: Exception | None = None
    for key in _once_each(keys):
        try:
            results[key] = away or call(key)
        except Exception as error:  # of whatever was given, too: what was done for other keys is told all the same
            results[key] = error
            away = error if _is_of_all(error) else None
    failed = [result for result in results.values() if isinstance(result, Exception)]
    if failed and len(failed) == len(results):
        raise failed[0]
    return results


def _once_each(keys: Collection[K]) -> list[K]:
    try:
        return list(dict.fromkeys(keys))
    except TypeError:  # a list, say, which no dict has as a key
        raise InputError(f"keys are texts, or pairs of a text and a number, not all of {keys!r:.80}") from None


def _is_of_all(error: Exception) -> bool:
    """Whether every key would meet it. One call that took too long says nothing of the next."""
    return isinstance(error, ClosedError) or (isinstance(error, Error) and error.cause == "Connection")
