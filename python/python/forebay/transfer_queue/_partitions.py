"""What is in the queue: samples by partition, each with its key, its tag and where the newest value of each field lies.

Every change is written as rows of a log (:mod:`._log`). A put writes one row a sample: the fields that it gives, and the whole tag. So a row
is never changed; one that no field and no tag comes from any more is over. What was taken away is a row, too, until the next change. The
rows say everything: who opens the queue, or finds that others have changed it, reads them in their order. Consumption is a log of its own.

A sample's number is its global index. None is given twice, so that what was consumed is never taken for another sample: each row says how
many were given.

Rows belong to a *generation*, and say which one is the queue. A copy that is loaded is written as the next, unseen, and one row makes it the
queue (:mod:`._checkpoint`).

A turn guards all of it (:mod:`._turn`); who waits for a batch gives it up meanwhile.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .._forebay import Store, Table
from ..errors import CapacityError, InputError, StateError
from ._consumption import Consumption
from ._log import Log, refuse_forbidden
from ._tags import decoded, encoded
from ._turn import Turn
from ._values import Description, column_type, describe, flat, tensor_of

_OWN = {
    "partition_id": "utf8", "sample_key": "utf8", "number": "int64", "put": "int64", "tag": "utf8", "fields": "utf8",
    "other": "binary", "queue_state": "utf8",
}  # fmt: skip
_CONSUMED = {"partition_id": "utf8", "task": "utf8", "numbers": "list<int64>", "put": "int64"}
_ARGUMENTS = {
    "policy_version", "sample_ids", "purpose", "agent", "parents", "weights", "idempotency_tokens", "durability",
    "next_attempt", "late", "excluded", "origin", "timeout", "rollouts", "version_spans", "trainable_from",
}  # fmt: skip
FIELD_COLUMNS_MAX = 48
Tag = dict[Any, Any]


@dataclass
class Put:
    """One row: what one put said of one sample."""

    row: str
    fields: dict[str, Description | None]
    """By name; None for what is pickled."""
    live: set[str]
    """The fields of which this is the newest value."""


@dataclass
class Sample:
    partition: str
    number: int
    key: str | None
    tag: Tag = field(default_factory=dict)
    fields: dict[str, Put] = field(default_factory=dict)
    newest: Put | None = None

    def rows(self) -> set[str]:
        return {put.row for put in (*self.fields.values(), self.newest) if put is not None}


class Partitions:
    def __init__(self, store: Store, timeout: float = 300.0) -> None:
        self.store = store
        self.table = _table(store, "transfer_queue", _OWN)
        self._puts = Log(store, self.table, "put")
        self._consumption = Consumption(Log(store, _table(store, "transfer_queue_consumed", _CONSUMED), "consumed"))
        self.lock = Turn(store, timeout)
        self.lock.refresh, self.lock.is_behind = self._refresh, self._is_behind
        if store.address is not None:
            self.table.delete(self.table.find(policy_version=0, sample_ids=[]))  # a token that may not is told so now
        with self.lock:
            pass

    @property
    def consumed(self) -> dict[tuple[str, str], set[int]]:
        """The numbers that tasks have had, by partition and task."""
        return self._consumption.numbers

    # What is there

    def all(self, partition: str) -> list[Sample]:
        """In the order of their indexes."""
        return sorted(self.samples.get(partition, {}).values(), key=lambda sample: sample.number)

    def of(self, partition: str, numbers: Iterable[int]) -> list[Sample]:
        there = self.samples.get(partition, {})
        return [there[number] for number in numbers if number in there]

    def values(self, samples: list[Sample], name: str) -> list[Any]:
        """The values of a field that all these samples have."""
        puts = [sample.fields[name] for sample in samples]
        typed = [(put, described) for put in puts if (described := put.fields[name]) is not None]
        pickled = [put for put in puts if put.fields[name] is None]
        values: dict[int, Any] = {}
        if typed:
            numbers = self._puts.cells([put.row for put, _ in typed], name)
            values |= {id(put): tensor_of(array, described) for (put, described), array in zip(typed, numbers)}
        if pickled:
            blobs = self._puts.cells([put.row for put in pickled], "other")
            values |= {id(put): pickle.loads(blob)[name] for put, blob in zip(pickled, blobs)}
        return [values[id(put)] for put in puts]

    # Changes

    def begin(self, partition: str, keys: Sequence[str | None]) -> list[Sample]:
        """New samples. They are written with their first put."""
        samples = []
        for key in keys:
            samples.append(Sample(partition, self._numbers, key))
            self._numbers += 1
        return samples

    def put(
        self, samples: list[Sample], fields: dict[str, list[Any]], tags: list[Tag] | None, *, is_whole: bool = False
    ) -> None:
        """Writes fields and tags of samples, of all or of none. Tags are merged into those that there are, but where they are whole."""
        if not samples:
            return
        before = [{} if is_whole and tags else sample.tag for sample in samples]
        texts = [encoded({**tag, **(tags[at] if tags else {})}) for at, tag in enumerate(before)]
        with self.changing():
            rows, described = self.write(samples, fields, texts, self.generation)
            for at, sample in enumerate(samples):
                sample.tag = decoded(texts[at])
                self._add(sample, rows[at], described[at])
        self._sweep()

    def write(
        self, samples: list[Sample], fields: dict[str, list[Any]], tags: list[str], generation: int
    ) -> tuple[list[str], list[dict[str, Description | None]]]:
        """The rows of a put, and what the fields are in each. tags: as they are written down."""
        columns, described, others = self._columns(fields, len(samples))
        rows = self._puts.append(
            len(samples),
            partition_id=[sample.partition for sample in samples],
            sample_key=[sample.key for sample in samples],
            number=[sample.number for sample in samples],
            tag=tags,
            fields=[json.dumps(row) for row in described],
            other=[pickle.dumps(row) if row else None for row in others],
            queue_state=[self._state(generation)] * len(samples),
            **columns,
        )
        return rows, described

    def remove(self, samples: list[Sample]) -> None:
        removed: dict[str, list[int]] = {}
        for sample in samples:
            removed.setdefault(sample.partition, []).append(sample.number)
        if removed:
            with self.changing():
                self._puts.over(self._puts.append(1, queue_state=[self._state(self.generation, removed=removed)]))
                self._remove(removed)
            self._sweep()

    def switch(self, generation: int) -> None:
        """Makes what was written as another generation the queue, and all that there was before be gone."""
        with self.changing():
            self.generation = generation
            self._puts.append(1, queue_state=[self._state(generation)])
            self._refresh()
        self._sweep()

    def new_generation(self) -> int:
        self._generations += 1
        return self._generations

    def consume(self, partition: str, task: str, samples: list[Sample]) -> None:
        with self.changing():
            self._consumption.take(partition, task, [sample.number for sample in samples])

    def give_back(self, partition: str, task: str, numbers: list[int]) -> None:
        with self.changing():
            self._consumption.give_back(partition, task, numbers)

    def reset(self, partition: str, task: str | None) -> None:
        with self.changing():
            self._consumption.reset(partition, task)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Whatever interrupts what is within, the next turn reads what was written."""
        before, self.lock.is_stale = self.lock.is_stale, True
        yield
        self.lock.is_stale = before
        self.lock.changed()

    def _sweep(self) -> None:
        """Deletes what is over, which is safe after a row of the puts: who was writing a generation in a turn that is over is refused."""
        if not (self._puts.sweep() and self._consumption.log.sweep()):
            self.lock.is_stale = True

    # Rows

    def _state(self, generation: int, **more: Any) -> str:
        """What a row says of the whole queue."""
        told = {"given": self._numbers, "generation": generation, "current": self.generation, **more}
        return json.dumps(told)

    def _columns(self, fields: dict[str, list[Any]], count: int) -> tuple[dict[str, Any], list, list]:
        """The fields that have a column of their own, and for each row: what its fields are, and those that have none."""
        columns: dict[str, Any] = {}
        described: list[dict[str, Description | None]] = [{} for _ in range(count)]
        others: list[dict[str, Any]] = [{} for _ in range(count)]
        for name, values in fields.items():
            is_typed = self._has_column(name, column_type(values))
            if is_typed:
                columns[name] = [flat(value) for value in values]
            for at, value in enumerate(values):
                described[at][name] = describe(value) if is_typed else None
                if not is_typed:
                    others[at][name] = value
        return columns, described, others

    def _has_column(self, name: str, wanted: str | None) -> bool:
        if wanted is None or name in _OWN or name in _ARGUMENTS:
            return False
        if name not in self._types and len(self._types) - len(_OWN) < FIELD_COLUMNS_MAX:
            try:
                self.table.add_column(name, wanted)
                self._types[name] = wanted
            except (InputError, CapacityError):
                self._types[name] = "none"  # a name that no column may have
        return self._types.get(name) == wanted

    def _add(self, sample: Sample, row: str, fields: dict[str, Description | None]) -> None:
        """Takes in a row that is newer than all others of its sample."""
        put = Put(row, fields, set(fields))
        before = {id(old): old for old in (*sample.fields.values(), sample.newest) if old is not None}
        for name in fields:
            if (old := sample.fields.get(name)) is not None:
                old.live.discard(name)
            sample.fields[name] = put
        sample.newest = put
        self._puts.over(old.row for old in before.values() if not old.live)
        self.samples.setdefault(sample.partition, {})[sample.number] = sample
        if sample.key is not None:
            self.keys.setdefault(sample.partition, {})[sample.key] = sample

    def _remove(self, removed: dict[str, list[int]]) -> None:
        for partition, numbers in removed.items():
            for sample in self.of(partition, numbers):
                self._puts.over(sample.rows())
                del self.samples[partition][sample.number]
                if sample.key is not None and self.keys[partition].get(sample.key) is sample:
                    del self.keys[partition][sample.key]
            if not self.samples.get(partition, True):
                del self.samples[partition]
                self.keys.pop(partition, None)
                self._consumption.forget(partition)

    def _is_behind(self) -> bool:
        """Whether others have changed the queue since it was read."""
        newest = "(select max(put) from transfer_queue) as p, (select max(put) from transfer_queue_consumed) as c"
        [said] = self.store.sql(f"select {newest}").to_pylist()
        logs = (said["p"], self._puts), (said["c"], self._consumption.log)
        return any(at is not None and at >= log.next for at, log in logs)

    def _refresh(self) -> None:
        """Reads the queue anew."""
        self._types = dict(self.table.columns)
        self.samples: dict[str, dict[int, Sample]] = {}
        self.keys: dict[str, dict[str, Sample]] = {}
        self._numbers = 0
        said = self._puts.read("partition_id", "sample_key", "number", "tag", "fields", "queue_state")
        states = [json.loads(row["queue_state"] or "{}") for row in said]
        self.generation = max((state.get("current", 0) for state in states), default=0)
        self._generations = max((state.get("generation", 0) for state in states), default=0)
        for row, state in zip(said, states):
            number = row["number"]
            self._numbers = max(self._numbers, state.get("given", 0), 0 if number is None else number + 1)
            if number is None:
                self._remove(state.get("removed", {}))
            if number is None or state.get("generation", 0) != self.generation:
                self._puts.over([row["sample_id"]])
                continue
            partition = row["partition_id"]
            sample = self.samples.get(partition, {}).get(number) or Sample(partition, number, row["sample_key"])
            sample.tag = decoded(row["tag"])
            self._add(sample, row["sample_id"], json.loads(row["fields"]))
        self._consumption.read(self.samples)


def _table(store: Store, name: str, columns: dict[str, str]) -> Table:
    if name not in store.tables():
        try:
            return store.create_table(name, columns)
        except (InputError, StateError) as error:
            refuse_forbidden(error)  # else another process was faster
    table = store.table(name)
    there = table.columns
    if any(there.get(column, kind) != kind for column, kind in columns.items()) or "partition_id" not in there:
        raise InputError(f"the table {name!r} is there and is not a transfer queue's")
    for column in columns.keys() - there.keys():
        try:
            table.add_column(column, columns[column])
        except (InputError, StateError) as error:
            refuse_forbidden(error)  # else another process was faster, or it is a copy, which is only read
    return table
