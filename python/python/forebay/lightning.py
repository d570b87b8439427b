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
(no room) raises, and is not there in memory either: an attempt and the status of its rollout are written together. Methods are to be
called from the event loop of one process; ``LightningStore(store, thread_safe=True)`` from several threads.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Sequence
from typing import Any

import aiologic
from agentlightning.store.base import is_finished, is_running
from agentlightning.store.collection.memory import InMemoryLightningCollections
from agentlightning.store.memory import InMemoryLightningStore, estimate_model_size
from agentlightning.types import Rollout, Span

from ._forebay import Store
from ._lightning import Collection, Journal, as_one
from .errors import Error, InputError

__all__ = ["LightningStore"]

_LOG = logging.getLogger(__name__)

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
_DEQUEUE = inspect.unwrap(InMemoryLightningStore.dequeue_many_rollouts)
"""agent-lightning's own, without what stands around it: the health check and the measurements, which are of a call and not of each rollout."""
_REWARD = "agentlightning.reward.0.value"


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
            setattr(collections, f"_{name}", Collection(like, Journal(items, name, _no_columns), store))
        collections._spans = Collection(collections._spans, Journal(spans, "spans", _columns_of_span), store)
        collections.execute = functools.partial(as_one, collections.execute)  # type: ignore[method-assign]
        self._go_on()

    async def _post_dequeue_rollouts(self, rollout_ids: Sequence[str], worker_id: str | None) -> Sequence[Any]:
        """What cannot be begun goes back to its place in the queue, from which agent-lightning took it before anything was written; under the
        queue's lock, for others may be queueing."""
        try:
            return await super()._post_dequeue_rollouts(rollout_ids, worker_id)
        except BaseException:
            self._going_back = asyncio.ensure_future(self._queue_first(rollout_ids))  # kept until it is done
            await asyncio.shield(self._going_back)
            raise

    async def _queue_first(self, rollout_ids: Sequence[str]) -> None:
        async with self.collections.atomic(mode="rw", labels=["rollout_queue"]):
            self.collections.rollout_queue._items.extendleft(reversed(rollout_ids))

    async def _sync_workers_with_attempts(self, attempts: Sequence[Any], dequeue: bool = False) -> None:
        """What a worker does is told beside what it was given: where that cannot be written, the rollout is its own all the same."""
        try:
            await super()._sync_workers_with_attempts(attempts, dequeue=dequeue)
        except Error as unwritten:
            if not dequeue:
                raise
            _LOG.warning("what a worker was given could not be written of the worker: %s", unwritten)

    async def dequeue_many_rollouts(self, *, limit: int = 1, worker_id: str | None = None) -> Sequence[Any]:
        """One by one: those that were begun are their worker's, also where the next cannot be. The next call says why. The health of all
        is looked at once, before the first."""
        if limit < 1:
            return await super().dequeue_many_rollouts(limit=limit, worker_id=worker_id)
        begun: list[Any] = []
        dequeue = super().dequeue_many_rollouts
        while len(begun) < limit:
            try:
                more = await dequeue(limit=1, worker_id=worker_id)
            except Error:
                if not begun:
                    raise
                break
            if not more:
                if begun and worker_id is not None:  # who finds nothing is told to be idle
                    await self._sync_workers_with_attempts([begun[-1].attempt], dequeue=True)
                break
            begun.extend(more)
            dequeue = functools.partial(_DEQUEUE, self)
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

