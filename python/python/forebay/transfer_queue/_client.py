"""The client: what TransferQueue's own sends to its controller and storage units, done here."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

from ..errors import InputError
from ._described import common, is_ready, meta_of, meta_of_all
from ._fetch import FetchTimeout, IsOver, fetched, refuse_given_up
from ._meta import BatchMeta, KVBatchMeta
from ._partitions import Partitions, Sample
from ._tags import copied
from ._values import packed, rows_of


def _in_a_turn(call: Callable[..., Any]) -> Callable[..., Any]:
    """A method that looks at the queue, and changes it once at most: what others overtake is made again."""

    @functools.wraps(call)
    def made(self: TransferQueueClient, *arguments: Any, **keywords: Any) -> Any:
        return self._partitions.lock.make(lambda: call(self, *arguments, **keywords))

    return made


class TransferQueueClient:
    """TransferQueue's client; each method also as ``async_NAME``, which runs on a thread of the event loop's, and those that wait for
    samples on one of their own."""

    def __init__(self, partitions: Partitions, timeout: float, is_polling: bool = False) -> None:
        self._partitions, self._timeout, self._is_polling = partitions, timeout, is_polling

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(type(self), name.removeprefix("async_"), None) if name.startswith("async_") else None
        if call is None:
            raise AttributeError(f"TransferQueueClient has no {name!r}")

        async def awaited(*arguments: Any, **keywords: Any) -> Any:
            return await asyncio.to_thread(call, self, *arguments, **keywords)

        return awaited

    # Metadata

    def get_meta(
        self,
        data_fields: list[str],
        batch_size: int,
        partition_id: str,
        mode: str = "fetch",
        task_name: str | None = None,
        sampling_config: dict[str, Any] | None = None,
    ) -> BatchMeta:
        """A batch of samples: new ones (``insert``), all of the partition, ready or not (``force_fetch``, whatever the size), or ready ones
        that the task has not had, in the order of their indexes (``fetch``; FetchTimeout when there are not enough in time, and in
        polling mode an empty batch at once)."""
        return self._get_meta(data_fields, batch_size, partition_id, mode, task_name, sampling_config)

    async def async_get_meta(
        self,
        data_fields: list[str],
        batch_size: int,
        partition_id: str,
        mode: str = "fetch",
        task_name: str | None = None,
        sampling_config: dict[str, Any] | None = None,
    ) -> BatchMeta:
        """``get_meta`` on a thread of its own. A task that is cancelled has taken nothing."""
        asked = data_fields, batch_size, partition_id, mode, task_name, sampling_config

        def give_back(meta: BatchMeta) -> None:
            if mode == "fetch" and task_name is not None and meta.size:
                self._give_back(partition_id, task_name, meta.global_indexes)  # else nothing was taken

        return await fetched(lambda is_over: self._get_meta(*asked, is_over), give_back)

    @_in_a_turn
    def _get_meta(
        self,
        data_fields: list[str],
        batch_size: int,
        partition_id: str,
        mode: str,
        task_name: str | None,
        sampling_config: dict[str, Any] | None,
        is_over: IsOver | None = None,
    ) -> BatchMeta:
        refuse_given_up(is_over)
        if sampling_config:
            raise InputError(f"batches are taken in order here; there is no sampler for {sampling_config!r}")
        partitions = self._partitions
        if mode == "insert":
            samples = partitions.begin(partition_id, [None] * batch_size)
            partitions.put(samples, {}, None)
            return meta_of(samples, data_fields, produced=[0] * batch_size)
        if mode == "force_fetch":
            return meta_of_all(partitions.all(partition_id), data_fields)
        if mode != "fetch" or task_name is None:
            raise InputError(f'mode is "fetch" (with task_name), "force_fetch" or "insert", not {mode!r}')
        end = time.monotonic() + self._timeout
        while len(samples := self._fresh(partition_id, data_fields, task_name)) < batch_size:
            if self._is_polling:
                return BatchMeta.empty()
            if not partitions.lock.wait(end - time.monotonic(), is_over):
                raise FetchTimeout(
                    f"{len(samples)} of {batch_size} samples of {partition_id!r} had {data_fields} for "
                    f"{task_name!r} in {self._timeout} s"
                )
            refuse_given_up(is_over)
        partitions.consume(partition_id, task_name, samples[:batch_size])
        return meta_of(samples[:batch_size], data_fields)

    def _fresh(self, partition: str, fields: list[str], task: str) -> list[Sample]:
        consumed = self._partitions.consumed.get((partition, task), set())
        there = self._partitions.all(partition)
        return [sample for sample in there if sample.number not in consumed and is_ready(sample, fields)]

    @_in_a_turn
    def _give_back(self, partition: str, task: str, numbers: list[int]) -> None:
        self._partitions.give_back(partition, task, numbers)

    @_in_a_turn
    def set_custom_meta(self, metadata: BatchMeta) -> None:
        """Puts these tags in place of those that there are."""
        self._partitions.put(self._samples(metadata), {}, metadata.custom_meta, is_whole=True)

    # Data

    def put(
        self,
        data: TensorDict,
        metadata: BatchMeta | None = None,
        partition_id: str | None = None,
        data_parser: Callable[[Any], Any] | None = None,
    ) -> BatchMeta:
        """Gives what there is then; metadata that was given says so, too."""
        if metadata is None and partition_id is None:
            raise ValueError("partition_id must be provided if metadata is not given")
        made = self._put(_parsed(data, data_parser), data.batch_size[0], metadata, partition_id)
        return made if metadata is None else metadata._become(made)

    @_in_a_turn
    def _put(self, fields: Any, count: int, metadata: BatchMeta | None, partition_id: str | None) -> BatchMeta:
        partitions = self._partitions
        if metadata is None and partition_id is not None:
            samples, tags = partitions.begin(partition_id, [None] * count), None
        else:
            assert metadata is not None, "one of the two is given"
            samples, tags = self._samples(metadata), metadata.custom_meta
        if not samples:
            raise ValueError("metadata cannot be none or empty")
        partitions.put(samples, fields, tags)
        return meta_of(samples, [*(metadata.field_names if metadata else ()), *fields], metadata)

    def get_data(self, metadata: BatchMeta) -> TensorDict:
        if not metadata or metadata.size == 0 or not metadata.field_names:
            return TensorDict({}, batch_size=0)
        values = self._values(metadata)
        return TensorDict({name: packed(rows) for name, rows in values.items()}, batch_size=metadata.size)

    @_in_a_turn
    def _values(self, metadata: BatchMeta) -> dict[str, list[Any]]:
        samples = self._samples(metadata)
        for name in metadata.field_names:
            missing = [sample.number for sample in samples if name not in sample.fields]
            if missing:
                raise RuntimeError(f"field {name!r} has no value for the samples {missing}")
        return {name: self._partitions.values(samples, name) for name in metadata.field_names}

    def _samples(self, metadata: BatchMeta) -> list[Sample]:
        samples = []
        for partition, number in zip(metadata.partition_ids, metadata.global_indexes):
            there = self._partitions.of(partition, [number])
            if not there:
                raise RuntimeError(f"there is no sample {number} in partition {partition!r}; it was cleared")
            samples += there
        return samples

    # Clearing and status

    @_in_a_turn
    def clear_samples(self, metadata: BatchMeta) -> None:
        pairs = zip(metadata.partition_ids, metadata.global_indexes)
        self._partitions.remove([s for partition, number in pairs for s in self._partitions.of(partition, [number])])

    @_in_a_turn
    def clear_partition(self, partition_id: str) -> None:
        self._partitions.remove(list(self._partitions.samples.get(partition_id, {}).values()))

    @_in_a_turn
    def get_partition_list(self) -> list[str]:
        return list(self._partitions.samples)

    @_in_a_turn
    def get_consumption_status(self, task_name: str, partition_id: str) -> tuple[Any, Any]:
        numbers = sorted(self._partitions.samples.get(partition_id, {}))
        consumed = self._partitions.consumed.get((partition_id, task_name), set())
        if not numbers:
            return None, None
        return torch.tensor(numbers), torch.tensor([number in consumed for number in numbers], dtype=torch.int8)

    @_in_a_turn
    def get_production_status(self, data_fields: list[str], partition_id: str) -> tuple[Any, Any]:
        samples = self._partitions.all(partition_id)
        status = [[name in sample.fields for name in data_fields] for sample in samples]
        if not samples:
            return None, None
        return torch.tensor([sample.number for sample in samples]), torch.tensor(status, dtype=torch.int8)

    def check_consumption_status(self, task_name: str, partition_id: str) -> bool:
        status = self.get_consumption_status(task_name, partition_id)[1]
        return status is not None and bool(status.all())

    def check_production_status(self, data_fields: list[str], partition_id: str) -> bool:
        status = self.get_production_status(data_fields, partition_id)[1]
        return status is not None and bool(status.all())

    @_in_a_turn
    def reset_consumption(self, partition_id: str, task_name: str | None = None) -> bool:
        self._partitions.reset(partition_id, task_name)
        return True

    # Keys

    @_in_a_turn
    def kv_retrieve_meta(self, keys: list[str] | str, partition_id: str, create: bool = False) -> BatchMeta:
        keys = [keys] if isinstance(keys, str) else list(keys)
        partitions = self._partitions
        there = partitions.keys.get(partition_id, {})
        if create and (new := [key for key in dict.fromkeys(keys) if key not in there]):
            partitions.put(partitions.begin(partition_id, new), {}, None)
            there = partitions.keys[partition_id]
        samples = [there[key] for key in keys if key in there]
        fields = common(samples)
        return meta_of(samples, fields, produced=[int(bool(fields))] * len(samples))

    @_in_a_turn
    def kv_retrieve_keys(self, global_indexes: list[int] | int, partition_id: str) -> list[str]:
        """RuntimeError where one has no key."""
        numbers = [global_indexes] if isinstance(global_indexes, int) else global_indexes
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise TypeError(f"global_indexes is an int or a list of them, not {global_indexes!r}")
        if not numbers:
            raise ValueError("global_indexes is empty; name a sample at least")
        samples = self._partitions.of(partition_id, numbers)
        keys = {sample.number: sample.key for sample in samples if sample.key is not None}
        if missing := [number for number in numbers if number not in keys]:
            raise RuntimeError(f"the samples {missing} of partition {partition_id!r} have no key, or are not there")
        return [keys[number] for number in numbers]

    @_in_a_turn
    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        return {
            partition: {key: copied(sample.tag) for key, sample in there.items()}
            for partition, there in self._partitions.keys.items()
            if partition_id in (None, partition) and there
        }

    def _kv_put(
        self, keys: list[str], partition: str, fields: Any, tags: Any, parser: Callable[[Any], Any] | None
    ) -> KVBatchMeta:
        return self._put_keys(keys, partition, {} if fields is None else _parsed(fields, parser), tags)

    @_in_a_turn
    def _put_keys(self, keys: list[str], partition: str, rows: dict[str, list[Any]], tags: Any) -> KVBatchMeta:
        """One record: the samples that are new, their fields and their tags."""
        if twice := [key for key, count in Counter(keys).items() if count > 1]:
            # In the words of ``KVBatchMeta``, which says so when all is written.
            raise ValueError(f"Got duplicated keys. {twice} are there more than once; give each its own row.")
        if None in keys or partition is None:
            raise ValueError(f"a key and a partition are texts, and None is neither: {keys!r} of {partition!r}")
        partitions = self._partitions
        there = partitions.keys.get(partition, {})
        new = iter(partitions.begin(partition, [key for key in keys if key not in there]))
        samples = [there[key] if key in there else next(new) for key in keys]
        partitions.put(samples, rows, tags)
        tags = [sample.tag for sample in samples]
        return KVBatchMeta(keys=keys, tags=tags, partition_id=partition, fields=sorted(common(samples)))

    def close(self) -> None:
        """Nothing to let go of; ``transfer_queue.close`` closes the store."""


def _parsed(data: Any, parser: Callable[[Any], Any] | None) -> dict[str, list[Any]]:
    if parser is not None:
        plain = {name: v if isinstance(v, torch.Tensor) and not v.is_nested else None for name, v in data.items()}
        listed = rows_of({name: data.get(name) for name, value in plain.items() if value is None})
        data = {**plain, **listed}
        parser(data)
    return rows_of(data)
