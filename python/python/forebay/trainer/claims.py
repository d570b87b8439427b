"""Whose gradients are in a cache.

Each row's gradient counts once. A row is known by its table, its policy version and its sample id, not by its claim: after a crash, or
when a trainer is resumed elsewhere, the store hands out rows again whose gradients the restored cache has.

Rows may also come again whose gradients the *weights* have: a trainer commits before the store does, so whatever comes between the two
leaves the trainer one version ahead. So a trainer remembers the rows of its last commit as *applied*, until the next one. They are told to
be accumulated and not computed, and a commit of nothing else gives the same update again, for the store to commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .._cache import record_of
from ..errors import StateError
from .errors import OtherVersionError
from .update import Update

__all__ = ["Applied", "Record", "is_accumulated", "record_of", "refuse_other_versions"]

Record: TypeAlias = dict[str, Any]
"""A claim as a state stores it: ``table``, ``consumer``, ``step``, ``sequence``, ``epoch`` and ``rows`` (pairs of version and sample
id) and ``groups`` (their keys); or ``name``, of what did not come from a store."""


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


Rows: TypeAlias = dict[str, list[list[Any]]]
"""Pairs of version and sample id, by table."""


@dataclass
class Applied:
    """What the last commit applied."""

    rows: Rows = field(default_factory=dict)
    """Those that came from a store."""
    update: Update | None = None
    """What the commit gave."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """The keys of their groups, by consumer."""
    came_again: bool = False
    """Whether the store has handed them out again since: it has not committed them."""

    @classmethod
    def of(cls, records: Iterable[Record], update: Update) -> Applied:
        rows: Rows = {}
        groups: dict[str, list[str]] = {}
        for record in records:
            if "name" not in record:
                rows.setdefault(record["table"], []).extend(list(row) for row in record["rows"])
                there = groups.setdefault(record["consumer"], [])
                there.extend(key for key in record.get("groups", ()) if key not in there)
        return cls(rows, update, groups)

    @classmethod
    def told(cls, told: Mapping[str, Any]) -> Applied:
        """What a state, or another rank, says: ``applied``, ``update`` and ``groups``."""
        return cls(told["applied"], told["update"] and Update(**told["update"]), told.get("applied_groups") or {})

    def tell(self) -> dict[str, Any]:
        return {"applied": self.rows, "update": self.update and vars(self.update), "applied_groups": self.groups}

    def has(self, record: Record, is_empty: bool) -> bool:
        """Whether the weights have the gradients of a claim. Raises StateError where they have those of some of its rows, or the cache is
        not empty: it has gradients of others."""
        there = {tuple(row) for row in self.rows.get(record.get("table", ""), [])}
        known = [row for row in record.get("rows", []) if tuple(row) in there]
        if known and len(known) < len(record["rows"]):
            raise StateError(
                f"the weights have the gradient of {known[0][1]} (version {known[0][0]}) and {len(known)} of {len(record['rows'])} rows of "
                "this micro-batch since the last commit, which the store has not committed; leave the other rows to a later step "
                "(store.step(groups=trainer.unfinished(store.policy_version(...)))), or resume a state of before"
            )
        if known and not is_empty:
            raise StateError(
                f"{known[0][1]} is among the rows that the last commit applied, and the cache has gradients of other rows; drop() them, and "
                "commit what came again first"
            )
        return bool(known)

    def again(self, micro_batches: int, came_again: bool) -> Update | None:
        """The last update, where all that there is to commit (of all ranks) was applied by it."""
        if micro_batches and came_again:
            raise StateError(
                "one rank has gradients to commit, and another has rows that the last commit applied; drop() in every rank, and accumulate "
                "what came again alone"
            )
        if micro_batches or not self.rows:
            return None
        self.came_again = False
        return self.update

    def refuse_more(self, what: str) -> None:
        """Rows that were applied are for the store to commit, alone."""
        if self.came_again and self.update is not None:
            raise StateError(
                f"the store has handed out again what the last commit applied, as version {self.update.version}, and {what}; commit what "
                "came again first (store.step(groups=trainer.unfinished(store.policy_version(...))), commit(), Step.commit), or resume a state "
                "of before"
            )


def refuse_other_versions(record: Record, version: int, max_lag: int | None) -> None:
    """Raises OtherVersionError for rows that are not of the weights' version, nor of one that max_lag allows."""
    for made, sample in record["rows"]:
        if max_lag is not None and not version - max_lag <= made <= version:
            way = (
                "resume the state that is of it"
                if made > version
                else "resume a state of that version, let the step take other rows, or allow older ones with max_lag="
            )
            raise OtherVersionError(
                f"row {sample} of {record['table']!r} is of version {made}, and the trainer's weights are version {version}"
                f"{f' (max_lag={max_lag})' if max_lag else ''}; {way}"
            )
