"""What is in the queue: samples by partition, each with its key, its tag and where the newest value of each field lies.

Every put writes one row a sample: the fields that it gives, and the whole tag. So a row is never changed; one that no field and no
tag comes from any more is deleted. The rows say everything: after a restart they are read in the order of their puts, and what a
crash left over is deleted then. Consumption is rows, too, in a table of their own.

A sample's number is its global index. None is given twice, so that what was consumed is never taken for another sample.

A turn guards all of it (:mod:`._turn`); who waits for a batch gives it up meanwhile. Where other processes may have had it, what they
have put and taken away is read at its beginning.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .._forebay import Rows, Store, Table
from ..errors import CapacityError, InputError, StateError
from ._turn import Turn
from ._values import Description, column_type, describe, flat, tensor_of

_OWN = {
    "partition_id": "utf8", "sample_key": "utf8", "number": "int64", "put": "int64", "tag": "utf8", "fields": "utf8",
    "other": "binary",
}  # fmt: skip
_CONSUMED = {"partition_id": "utf8", "task": "utf8", "numbers": "list<int64>"}
_ARGUMENTS = {
    "policy_version", "sample_ids", "purpose", "agent", "parents", "weights", "idempotency_tokens", "durability",
    "timeout",
}  # fmt: skip
FIELD_COLUMNS_MAX = 48


@dataclass
class Put:
    """One row: what one put said of one sample."""

    row: Rows
    fields: dict[str, Description | None]
    """By name; None for what is pickled."""
    live: set[str]
    """The fields of which this is the newest value."""


@dataclass
class Sample:
    partition: str
    number: int
    key: str | None
    tag: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Put] = field(default_factory=dict)
    newest: Put | None = None


class Partitions:
    def __init__(self, store: Store, timeout: float = 300.0) -> None:
        self.store = store
        self.lock = Turn(store, timeout)
        self._forget_all()
        self.table = _table(store, "transfer_queue", _OWN)
        self._consumption = _table(store, "transfer_queue_consumed", _CONSUMED)
        self.lock.refresh = self._refresh
        with self.lock:
            if store.address is None:
                self._refresh()

    def _forget_all(self) -> None:
        self.samples: dict[str, dict[int, Sample]] = {}
        self.keys: dict[str, dict[str, Sample]] = {}
        self.consumed: dict[tuple[str, str], set[int]] = {}
        self._consumed_rows: dict[tuple[str, str], list[Rows]] = {}
        self._numbers, self._puts = 0, 0

    # What is there

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
            numbers = self.table.cells(Rows.concat([put.row for put, _ in typed]), name)
            values |= {id(put): tensor_of(array, described) for (put, described), array in zip(typed, numbers)}
        if pickled:
            blobs = self.table.cells(Rows.concat([put.row for put in pickled]), "other")
            values |= {id(put): pickle.loads(blob)[name] for put, blob in zip(pickled, blobs)}
        return [values[id(put)] for put in puts]

    # Changes

    def begin(self, partition: str, keys: list[str | None]) -> list[Sample]:
        """New samples. They are written with their first put."""
        samples = []
        for key in keys:
            samples.append(Sample(partition, self._numbers, key))
            self._numbers += 1
        return samples

    def put(self, samples: list[Sample], fields: dict[str, list[Any]], tags: list[dict[str, Any]] | None) -> None:
        """Writes fields and tags of samples, of all or of none. Tags are merged into those that there are."""
        if not samples:
            return
        merged = [{**sample.tag, **(tags[at] if tags else {})} for at, sample in enumerate(samples)]
        columns, described, others = self._columns(fields, len(samples))
        self._puts += 1
        rows = self.table.insert(
            policy_version=0,
            sample_ids=[f"{sample.number}_0_?" for sample in samples],
            partition_id=[sample.partition for sample in samples],
            sample_key=[sample.key for sample in samples],
            number=[sample.number for sample in samples],
            put=[self._puts] * len(samples),
            tag=[json.dumps(tag) for tag in merged],
            fields=[json.dumps(row) for row in described],
            other=[pickle.dumps(row) if row else None for row in others],
            **columns,
        )
        for at, sample in enumerate(samples):
            sample.tag = merged[at]
            self._add(sample, rows[at], described[at])
        self.lock.changed()

    def remove(self, samples: list[Sample]) -> None:
        rows = []
        for sample in samples:
            self.samples[sample.partition].pop(sample.number, None)
            if sample.key is not None:
                self.keys[sample.partition].pop(sample.key, None)
            puts = {id(put): put for put in (*sample.fields.values(), sample.newest) if put is not None}
            rows += [put.row for put in puts.values()]
        if rows:
            self.table.delete(Rows.concat(rows), force=True)
        for partition in {sample.partition for sample in samples}:
            if not self.samples[partition]:
                self._forget(partition)

    def consume(self, partition: str, task: str, samples: list[Sample]) -> None:
        numbers = [sample.number for sample in samples]
        rows = self._consumption.insert(
            policy_version=0, sample_ids=["consumed_0_?"], partition_id=[partition], task=[task], numbers=[numbers]
        )
        self._consumed_rows.setdefault((partition, task), []).append(rows)
        self.consumed.setdefault((partition, task), set()).update(numbers)

    def reset(self, partition: str, task: str | None) -> None:
        for name in [name for name in self.consumed if name[0] == partition and task in (None, name[1])]:
            del self.consumed[name]
            self._consumption.delete(Rows.concat(self._consumed_rows.pop(name)), force=True)

    # Rows

    def _forget(self, partition: str) -> None:
        del self.samples[partition]
        self.keys.pop(partition, None)
        self.reset(partition, None)

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

    def _add(self, sample: Sample, row: Rows, fields: dict[str, Description | None]) -> None:
        """Takes in a row that is newer than all others of its sample."""
        put = Put(row, fields, set(fields))
        before = {id(old): old for old in (*sample.fields.values(), sample.newest) if old is not None}
        for name in fields:
            if (old := sample.fields.get(name)) is not None:
                old.live.discard(name)
            sample.fields[name] = put
        sample.newest = put
        over = [old.row for old in before.values() if not old.live]
        if over:
            self.table.delete(Rows.concat(over), force=True)
        self.samples.setdefault(sample.partition, {})[sample.number] = sample
        if sample.key is not None:
            self.keys.setdefault(sample.partition, {})[sample.key] = sample

    def _refresh(self) -> None:
        """Takes in what other processes have put, taken away and consumed. What a crash left over is deleted."""
        self._types = dict(self.table.columns)
        self._forget_all()
        columns = "sample_id, partition_id, sample_key, number, put, tag, fields"
        said = self.store.sql(f"select {columns} from transfer_queue order by put, number").to_pylist()
        rows = self.table.find(policy_version=0, sample_ids=[row["sample_id"] for row in said])
        for at, row in enumerate(said):
            partition, number, key = row["partition_id"], row["number"], row["sample_key"]
            sample = self.samples.get(partition, {}).get(number) or Sample(partition, number, key)
            sample.tag = json.loads(row["tag"])
            self._add(sample, rows[at], json.loads(row["fields"]))
            self._puts, self._numbers = row["put"], max(self._numbers, number + 1)
        said = self.store.sql("select sample_id, partition_id, task, numbers from transfer_queue_consumed").to_pylist()
        rows = self._consumption.find(policy_version=0, sample_ids=[row["sample_id"] for row in said])
        for at, row in enumerate(said):
            name = row["partition_id"], row["task"]
            self.consumed.setdefault(name, set()).update(row["numbers"])
            self._numbers = max([self._numbers, *(number + 1 for number in row["numbers"])])
            self._consumed_rows.setdefault(name, []).append(rows[at])


def _table(store: Store, name: str, columns: dict[str, str]) -> Table:
    if name not in store.tables():
        try:
            return store.create_table(name, columns)
        except (InputError, StateError):
            pass  # another process was faster
    table = store.table(name)
    if not columns.items() <= table.columns.items():
        raise InputError(f"the table {name!r} is there and is not a transfer queue's")
    return table
