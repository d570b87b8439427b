"""Whose gradients a cache has, said by the micro-batches themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import InputError


def listed(batch: Any, cache: Any) -> Callable[[], None]:
    """Lists a micro-batch in ``cache.claims``, or in ``cache`` where that is a list. Gives what takes it off the list again."""
    claims = cache if isinstance(cache, list) else getattr(cache, "claims", None)
    if not isinstance(claims, list):
        raise InputError(f"cache is a list, or has a list of `claims`, not {cache!r:.80}; it lists whose gradients it has")
    record = record_of(batch)
    claims.append(record)
    return lambda: claims.remove(record)


def record_of(batch: Any) -> dict[str, Any]:
    """The record of a ``forebay.Batch``."""
    versions = [int(version) for version in batch["policy_version"]]
    return {
        "table": batch.table,
        "consumer": batch.consumer,
        "step": batch.step,
        "sequence": batch.sequence,
        "epoch": list(batch.epoch),
        "rows": [list(row) for row in zip(versions, batch.sample_ids)],
        "groups": list(dict.fromkeys(batch["group_key"])),
    }
