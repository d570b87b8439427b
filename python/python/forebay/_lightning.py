"""Collections of agent-lightning of which every change is written down: items as rows of a table, one an item."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from agentlightning.store.collection.memory import ListBasedCollection
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from ._forebay import Rows, Store, Table

__all__ = ["Collection", "Journal"]

_LOG = logging.getLogger("forebay.lightning")

T = TypeVar("T", bound=BaseModel)


class Journal(Generic[T]):
    """The items of one collection as rows of a table, one an item."""

    def __init__(self, table: Table, collection: str, columns: Callable[[T], dict[str, Any]]) -> None:
        self.table, self.collection, self.columns = table, collection, columns
        self.rows: dict[str, Rows] = {}

    def write(self, changed: dict[str, T | None]) -> None:
        """Writes items as they are now; ``None`` for those that are gone."""
        there = {key: item for key, item in changed.items() if item is not None}
        if there:
            columns = [
                {"key": key, "item": _as_json(item), **self.columns(item)} for key, item in there.items()
            ]
            by_name: dict[str, Any] = {name: [row[name] for row in columns] for name in columns[0]}
            samples = [f"{self.collection}_0_?"] * len(there)
            rows = self.table.insert(policy_version=0, sample_ids=samples, timeout=0, **by_name)
            new = {key: rows[at] for at, key in enumerate(there)}
        else:
            new = {}
        for key in changed:  # what they were: a crash in between leaves both, and the newer one counts
            if (old := self.rows.pop(key, None)) is not None:
                self.table.delete(old, force=True)
        self.rows.update(new)

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

    async def _written(self, items: Sequence[Any], change: Any) -> Any:
        """Makes a change and writes it down, both or neither."""
        before = [(item, self._there(item)) for item in items]
        try:
            outcome = await change
            self.journal.write({self._key(item): self._there(item) for item in items})
        except BaseException:
            for item, old in before:
                if old is not None:
                    self._mutate_single(old, mode="upsert")
                elif self._there(item) is not None:
                    self._mutate_single(item, mode="delete")
            raise
        return outcome

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
