"""Which samples a task has had: a log of its own beside that of the puts.

A row names a partition, a task and the samples that it took. One without samples says that the task, or each, begins anew. Numbers of
samples are given once, so what was taken away needs no word here: rows of which no sample is left are over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ._log import Log

Name = tuple[str, str]
"""A partition, and a task."""


class Consumption:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.numbers: dict[Name, set[int]] = {}
        self._rows: dict[Name, list[str]] = {}

    def take(self, partition: str, task: str, numbers: list[int]) -> None:
        [row] = self.log.append(1, partition_id=[partition], task=[task], numbers=[numbers])
        self._add((partition, task), row, numbers)

    def give_back(self, partition: str, task: str, numbers: list[int]) -> None:
        """The task has not had these after all: it begins anew with the others, in one record."""
        had = self.numbers.get((partition, task), set())
        if had.isdisjoint(numbers):
            return
        left = sorted(had.difference(numbers))
        anew, row = self.log.append(2, partition_id=[partition] * 2, task=[task] * 2, numbers=[None, left])
        self.log.over([anew])
        self.forget(partition, task)
        self._add((partition, task), row, left)

    def reset(self, partition: str, task: str | None) -> None:
        if self._of(partition, task):
            self.log.over(self.log.append(1, partition_id=[partition], task=[task], numbers=[None]))
            self.forget(partition, task)

    def forget(self, partition: str, task: str | None = None) -> None:
        for name in self._of(partition, task):
            del self.numbers[name]
            self.log.over(self._rows.pop(name))

    def read(self, live: Mapping[str, Iterable[int]]) -> None:
        """Reads it anew. live: the samples that there are, by partition."""
        self.numbers, self._rows = {}, {}
        for row in self.log.read("partition_id", "task", "numbers"):
            partition, task, numbers = row["partition_id"], row["task"], row["numbers"]
            if numbers is None:
                self.forget(partition, task)
            if not set(live.get(partition, ())).intersection(numbers or ()):
                self.log.over([row["sample_id"]])
            else:
                self._add((partition, task), row["sample_id"], numbers)

    def _of(self, partition: str, task: str | None) -> list[Name]:
        return [name for name in self.numbers if name[0] == partition and task in (None, name[1])]

    def _add(self, name: Name, row: str, numbers: Iterable[int]) -> None:
        self.numbers.setdefault(name, set()).update(numbers)
        self._rows.setdefault(name, []).append(row)
