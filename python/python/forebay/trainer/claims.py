"""Whose gradients are in a cache.

Each row's gradient counts once. A row is known by its table, its policy version and its sample id, not by its claim: after a crash, or
when a trainer is resumed elsewhere, the store hands out rows again whose gradients the restored cache has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from .._cache import record_of
from ..errors import StateError

__all__ = ["Record", "record_of", "is_accumulated"]

Record: TypeAlias = dict[str, Any]
"""A claim as a state stores it: ``table``, ``consumer``, ``step``, ``sequence``, ``epoch`` and ``rows`` (pairs of version and sample
id); or ``name``, of what did not come from a store."""


def is_accumulated(record: Record, records: Sequence[Record]) -> bool:
    """Whether a cache that lists ``records`` has the gradients of this one. Raises StateError where it has those of some of its rows."""
    if "name" in record:
        return any(other.get("name") == record["name"] for other in records)
    same = [other for other in records if other.get("table") == record["table"]]
    there = {tuple(row) for other in same for row in other["rows"]}
    known = [row for row in record["rows"] if tuple(row) in there]
    if known and len(known) < len(record["rows"]):
        raise StateError(
            f"the cache has the gradient of {known[0][1]} (version {known[0][0]}) and {len(known)} of {len(record['rows'])} rows of "
            "this micro-batch; ask for micro-batches of the size that the cache was filled with, or call drop()"
        )
    return bool(known)
