"""Collections of agent-lightning of which every change is written down: items as rows of a table, one an item."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Generic, TypeAlias, TypeVar

from agentlightning.store.collection.memory import ListBasedCollection
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from ._forebay import Rows, Store, Table

__all__ = ["Collection", "Journal", "as_one"]

_LOG = logging.getLogger("forebay.lightning")

T = TypeVar("T", bound=BaseModel)


class Journal(Generic[T]):
    """The items of one collection as rows of a table, one an item."""

    def __init__(self, table: Table, collection: str, columns: Callable[[T], dict[str, Any]]) -> None:
        self.table, self.collection, self.columns = table, collection, columns
        self.rows: dict[str, Rows] = {}

    def read(self, store: Store, item_type: type[T]) -> list[T]:
        """The items as they were written, in the order in which they were. A row that cannot be read is left out, and stays until an item
        of its key is written."""
        where = f"from {self.table.name} where input_id = '{self.collection}'"
        items: dict[str, T] = {}
        samples: dict[str, list[str]] = {}
        for row in store.sql(f"select sample_id, key, item {where} order by trajectory_id").to_pylist():
            item = self._read(row, item_type)
            if item is None:
                samples.setdefault(row["key"], []).append(row["sample_id"])
                continue
            items.pop(row["key"], None)  # the newer one counts, and stands where it was written
            items[row["key"]] = item
            if old := samples.pop(row["key"], None):
                self.table.delete(self.table.find(policy_version=0, sample_ids=old), force=True)
            samples[row["key"]] = [row["sample_id"]]
        for key, of_key in samples.items():
            self.rows[key] = self.table.find(policy_version=0, sample_ids=of_key)
        return list(items.values())

    def _read(self, row: dict[str, str], item_type: type[T]) -> T | None:
        try:
            return item_type.model_validate_json(row["item"])
        except ValidationError as error:
            what = f"row {row['sample_id']} of table {self.table.name} is no {item_type.__name__} that can be read"
            _LOG.warning("%s, and is left out: %s", what, error)
            return None


def write(changed: Mapping[Journal[Any], Mapping[str, Any]]) -> None:
    """Writes items of one table as they are now, all or none; ``None`` for those that are gone."""
    there = [(of, key, item) for of, items in changed.items() for key, item in items.items() if item is not None]
    if there:
        columns = [{"key": key, "item": _as_json(item), **of.columns(item)} for of, key, item in there]
        by_name: dict[str, Any] = {name: [row[name] for row in columns] for name in columns[0]}
        samples = [f"{of.collection}_0_?" for of, _, _ in there]
        new = there[0][0].table.insert(policy_version=0, sample_ids=samples, timeout=0, **by_name)
    for of, items in changed.items():
        for key in items:  # what they were: a crash in between leaves both, and the newer one counts
            if (old := of.rows.pop(key, None)) is not None:
                of.table.delete(old, force=True)
    for at, (of, key, _) in enumerate(there):
        of.rows[key] = new[at]


_Changes: TypeAlias = "list[tuple[Collection, list[tuple[Any, Any]]]]"

_of_call: ContextVar[_Changes | None] = ContextVar("of_call", default=None)
"""What the call of agent-lightning that is under way has changed in collections: each item, and what was there before."""


async def as_one(execute: Callable[..., Awaitable[Any]], callback: Callable[[Any], Awaitable[Any]], **how: Any) -> Any:
    """A call that changes several collections, by agent-lightning's own ``execute``: what it changes is written down at its end, in one
    insert, and where that or the call fails it is not there in memory either."""

    async def written(collections: Any) -> Any:
        changes: _Changes = []
        queue = collections.rollout_queue._items if "rollout_queue" in (how.get("labels") or ()) else None
        queued = 0 if queue is None else len(queue)
        before = _of_call.set(changes)
        try:
            outcome = await callback(collections)
            _write_down(changes)
            return outcome
        except BaseException:
            for collection, items in reversed(changes):
                collection.put_back(items)
            while queue is not None and len(queue) > queued:  # it queues at the end, and has the queue's lock
                queue.pop()
            raise
        finally:
            _of_call.reset(before)

    return await execute(written, **how)


def _write_down(changes: _Changes) -> None:
    """Each table in one insert."""
    tables: dict[str, dict[Journal[Any], dict[str, Any]]] = {}
    for collection, items in changes:
        of_table = tables.setdefault(collection.journal.table.name, {})
        of_table.setdefault(collection.journal, {}).update(collection.now(item for item, _ in items))
    for changed in tables.values():
        write(changed)


class Collection(ListBasedCollection[Any]):
    """A collection in memory of which every change is written down."""

    def __init__(self, like: ListBasedCollection[Any], journal: Journal[Any], store: Store) -> None:
        keys, item_type = like.primary_keys(), like.item_type()
        items = journal.read(store, item_type)
        super().__init__(items, item_type, keys, id=like.collection_name, tracker=like.tracker)
        self.journal = journal

    async def insert(self, items: Sequence[Any]) -> None:
        await self._written(items, super().insert(items))

    async def update(self, items: Sequence[Any], update_fields: Sequence[str] | None = None) -> Sequence[Any]:
        return await self._written(items, super().update(items, update_fields))

    async def upsert(self, items: Sequence[Any], update_fields: Sequence[str] | None = None) -> Sequence[Any]:
        return await self._written(items, super().upsert(items, update_fields))

    async def delete(self, items: Sequence[Any]) -> None:
        await self._written(items, super().delete(items))

    async def get(self, filter: Any = None, sort: Any = None) -> Any:
        """A copy: agent-lightning changes what it was given before it says that it is changed, and that may not be written."""
        item = await super().get(filter, sort)
        return None if item is None else item.model_copy()

    async def _written(self, items: Sequence[Any], change: Any) -> Any:
        """Makes a change and writes it down, both or neither: at once, or with what else the call under way changes."""
        of_call = _of_call.get()
        before = [(item, self._there(item)) for item in items]
        try:
            outcome = await change
            if of_call is None:
                write({self.journal: self.now(items)})
        except BaseException:
            self.put_back(before)
            raise
        if of_call is not None:
            of_call.append((self, before))
        return outcome

    def now(self, items: Iterable[Any]) -> dict[str, Any]:
        """These items as they are, by key; ``None`` for those that are gone."""
        return {self._key(item): self._there(item) for item in items}

    def put_back(self, before: Sequence[tuple[Any, Any]]) -> None:
        """Makes items what they were."""
        for item, old in before:
            if old is not None:
                self._mutate_single(old, mode="upsert")
            elif self._there(item) is not None:
                self._mutate_single(item, mode="delete")

    def _there(self, item: Any) -> Any:
        self._ensure_item_type(item)
        node: Any = self._items
        for value in self._extract_primary_key_values(item):
            node = node.get(value) if node is not None else None
        return node

    def _key(self, item: Any) -> str:
        return json.dumps(self._extract_primary_key_values(item))


def _as_json(item: BaseModel) -> str:
    """An item as it is read back, numbers that are not finite among it: what pydantic writes by itself has null in their place."""
    return to_json(item.model_dump(), inf_nan_mode="constants").decode()
