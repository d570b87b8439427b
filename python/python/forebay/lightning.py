"""agent-lightning's store in a store: rollouts, attempts, spans and resources that outlive the process.

    from forebay.lightning import LightningStore

    with forebay.open("run/store") as store:
        trainer = agentlightning.Trainer(store=LightningStore(store), ...)

What the methods do is agent-lightning's own code (its in-memory store, of release 0.3); this module writes every change down
before the call returns, and reads them back when it is opened again. There are two tables:

- ``lightning``: resources, rollouts, attempts and workers as JSON (``item``), by ``key``; ``input_id`` says which of the four. A
  change is a new row, and the row that it replaces is deleted.
- ``lightning_spans``: a row a span, with what a trainer wants as columns of their own: ``rollout_id``, ``attempt_id``, ``name``,
  ``sequence_id``, ``reward``, ``prompt_token_ids``, ``response_token_ids``, and the whole of it as JSON. Declare a consumer on
  it, or ask in SQL.

The queue and the counters of sequence ids are not written down: after a restart, rollouts whose status says so are queued in
the order of their last changes, and a rollout's next span comes after the last one there is. A change that cannot be written
(no room) raises, and is not there in memory either. Methods are to be called from the event loop of one process; ``LightningStore(store, thread_safe=True)`` from several threads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import aiologic
from agentlightning.store.base import is_finished, is_running
from agentlightning.store.collection.memory import InMemoryLightningCollections, ListBasedCollection
from agentlightning.store.memory import InMemoryLightningStore, estimate_model_size
from agentlightning.types import Rollout, Span
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from ._forebay import Rows, Store, Table
from .errors import Error, InputError

__all__ = ["LightningStore"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)

_ITEMS = {"key": "utf8", "item": "utf8"}
_SPANS = {
    "rollout_id": "utf8",
    "attempt_id": "utf8",
    "key": "utf8",
    "name": "utf8",
    "sequence_id": "int64",
    "reward": "float64",
    "prompt_token_ids": "list<int64>",
    "response_token_ids": "list<int64>",
    "item": "utf8",
}
_REWARD = "agentlightning.reward.0.value"


class _Journal(Generic[T]):
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


class _Collection(ListBasedCollection[Any]):
    """A collection in memory of which every change is written down."""

    def __init__(self, like: ListBasedCollection[Any], journal: _Journal[Any], store: Store) -> None:
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


def _no_columns(_: Any) -> dict[str, Any]:
    return {}


def _columns_of_span(span: Span) -> dict[str, Any]:
    reward = span.attributes.get(_REWARD)
    return {
        "rollout_id": span.rollout_id,
        "attempt_id": span.attempt_id,
        "name": span.name,
        "sequence_id": span.sequence_id,
        "reward": float(reward) if isinstance(reward, (int, float)) else None,
        "prompt_token_ids": _tokens(span.attributes.get("prompt_token_ids")),
        "response_token_ids": _tokens(span.attributes.get("response_token_ids")),
    }


def _tokens(given: Any) -> list[int] | None:
    is_tokens = isinstance(given, (list, tuple)) and all(type(token) is int for token in given)
    return list(given) if is_tokens else None


class LightningStore(InMemoryLightningStore):
    """The ``LightningStore`` of agent-lightning 0.3, over a store that is open for writing.

    options: as for ``agentlightning.InMemoryLightningStore``. Spans that it evicts from memory stay in the table.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        super().__init__(**options)
        self.store = store
        there = set(store.tables())
        items = store.table("lightning") if "lightning" in there else store.create_table("lightning", _ITEMS)
        spans = (
            store.table("lightning_spans")
            if "lightning_spans" in there
            else store.create_table("lightning_spans", _SPANS)
        )
        if list(items.columns) != list(_ITEMS) or list(spans.columns) != list(_SPANS):
            raise InputError("the tables lightning and lightning_spans are there and are not agent-lightning's")
        collections: InMemoryLightningCollections = self.collections
        for name in ("rollouts", "attempts", "resources", "workers"):
            like = getattr(collections, f"_{name}")
            setattr(collections, f"_{name}", _Collection(like, _Journal(items, name, _no_columns), store))
        collections._spans = _Collection(collections._spans, _Journal(spans, "spans", _columns_of_span), store)
        self._go_on()

    async def _post_dequeue_rollouts(self, rollout_ids: Sequence[str], worker_id: str | None) -> Sequence[Any]:
        """What cannot be begun goes back to its place in the queue, from which agent-lightning took it before anything was written."""
        try:
            return await super()._post_dequeue_rollouts(rollout_ids, worker_id)
        except BaseException:
            self.collections.rollout_queue._items.extendleft(reversed(rollout_ids))
            raise

    async def _sync_workers_with_attempts(self, attempts: Sequence[Any], dequeue: bool = False) -> None:
        """What a worker does is told beside what it was given: where that cannot be written, the rollout is its own all the same."""
        try:
            await super()._sync_workers_with_attempts(attempts, dequeue=dequeue)
        except Error as unwritten:
            if not dequeue:
                raise
            _LOG.warning("what a worker was given could not be written of the worker: %s", unwritten)

    async def dequeue_many_rollouts(self, *, limit: int = 1, worker_id: str | None = None) -> Sequence[Any]:
        """One by one: those that were begun are their worker's, also where the next cannot be. The next call says why."""
        if limit < 1:
            return await super().dequeue_many_rollouts(limit=limit, worker_id=worker_id)
        begun: list[Any] = []
        while len(begun) < limit:
            try:
                more = await super().dequeue_many_rollouts(limit=1, worker_id=worker_id)
            except Error:
                if not begun:
                    raise
                break
            if not more:
                if begun and worker_id is not None:  # who finds nothing is told to be idle
                    await self._sync_workers_with_attempts([begun[-1].attempt], dequeue=True)
                break
            begun.extend(more)
        return begun

    def _go_on(self) -> None:
        """What agent-lightning keeps in memory beside its collections, as the rows say."""
        collections = self.collections
        rollouts: list[Rollout] = list(collections.rollouts._iter_items())  # in the order of their last changes
        for rollout in rollouts:
            event = self._completion_events.setdefault(rollout.rollout_id, aiologic.Event())
            self._start_time_by_rollout[rollout.rollout_id] = rollout.start_time
            if is_finished(rollout):
                event.set()
            elif is_running(rollout):
                self._running_rollout_ids.add(rollout.rollout_id)
            if rollout.status in ("queuing", "requeuing"):
                collections.rollout_queue._items.append(rollout.rollout_id)
        numbers = collections.span_sequence_ids._values
        for span in collections.spans._iter_items():
            numbers[span.rollout_id] = max(numbers.get(span.rollout_id, 0), span.sequence_id)
            size = (self._custom_span_size_estimator or estimate_model_size)(span)
            self._span_bytes_by_rollout[span.rollout_id] += size
            self._total_span_bytes += size

