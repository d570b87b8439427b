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


def each(keys: Collection[K], call: Callable[[K], T]) -> dict[K, T | Error]:
    """What ``call`` gives for each key, or the error that it met there; raises the first of them where there is nothing else.

    A store that is closed is not asked again for the keys that are left.
    """
    if len(keys) > KEYS_MAX:
        raise InputError(f"keys: {len(keys)} in one call; take {KEYS_MAX} at most")
    results: dict[K, T | Error] = {}
    closed: ClosedError | None = None
    for key in keys:
        try:
            results[key] = closed or call(key)
        except Error as error:
            results[key] = error
            closed = error if isinstance(error, ClosedError) else None
    failed = [result for result in results.values() if isinstance(result, Error)]
    if failed and len(failed) == len(results):
        raise failed[0]
    return results
