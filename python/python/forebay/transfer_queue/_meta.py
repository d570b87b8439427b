"""TransferQueue's meta objects: which samples a batch has, and what is known of them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._arrays import numpy
from ._samples import SampleViews, cut, joined, shapes_of
from ._values import describe, rows_of, schema_of


def _sizes(count: int, chunks: int) -> list[slice]:
    """So many slices of nearly one length, the longer ones first; some may be empty."""
    base, rest = divmod(count, chunks)
    ends = [base * at + min(at, rest) for at in range(chunks + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:])]


def _united(infos: Sequence[dict[str, Any] | None], of: str) -> dict[str, Any]:
    """What several batches say beside their samples; what they say differently is an error."""
    united: dict[str, Any] = {}
    for info in infos:
        for key, value in (info or {}).items():
            if key in united and not _is_same(united[key], value):
                raise ValueError(f"{of}: extra_info key '{key}' has conflicting values across chunks.")
            united[key] = value
    return united


def _is_same(one: Any, other: Any) -> bool:
    equal = one == other
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


@dataclasses.dataclass
class KVBatchMeta:
    """Samples by their keys."""

    keys: list[str] = dataclasses.field(default_factory=list)
    tags: list[dict] = dataclasses.field(default_factory=list)
    partition_id: str | None = None
    fields: list[str] | None = None
    extra_info: dict[str, Any] | None = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.tags):
            raise ValueError(f"keys and tags must have same length, but got {len(self.keys)} and {len(self.tags)}")
        if len(self.keys) != len(set(self.keys)):
            raise ValueError("Got duplicated keys.")
        if self.fields is not None and len(self.fields) != len(set(self.fields)):
            raise ValueError("Got duplicated fields.")
        self.tags, self.extra_info = copy.deepcopy(self.tags), copy.deepcopy(self.extra_info)

    @property
    def size(self) -> int:
        return len(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def _at(self, places: Sequence[int]) -> KVBatchMeta:
        keys, tags = [self.keys[at] for at in places], [self.tags[at] for at in places]
        return dataclasses.replace(self, keys=keys, tags=tags)

    def select_keys(self, keys_to_select: list[str]) -> KVBatchMeta:
        if len(set(keys_to_select)) != len(keys_to_select):
            raise ValueError("Contain duplicate keys.")
        if missing := set(keys_to_select) - set(self.keys):
            raise RuntimeError(f"Keys {missing} not found in current batch.")
        places = {key: at for at, key in enumerate(self.keys)}
        return self._at([places[key] for key in keys_to_select])

    def reorder(self, indexes: list[int]) -> None:
        if len(indexes) != self.size:
            raise ValueError(f"Attempted to reorder with indexes length {len(indexes)}, which does not match {self.size}, the batch size")
        if len(set(indexes)) != len(indexes):
            raise ValueError("Contain duplicate indexes.")
        self.keys, self.tags = [self.keys[at] for at in indexes], [self.tags[at] for at in indexes]

    def chunk(self, chunks: int) -> list[KVBatchMeta]:
        return [self._at(range(self.size)[part]) for part in _sizes(self.size, chunks)]

    @classmethod
    def concat(cls, data: list[KVBatchMeta]) -> KVBatchMeta:
        data = [part for part in data if part is not None and part.size]
        if not data:
            return cls()
        first = data[0]
        if any(part.fields is not None and set(part.fields) != set(first.fields or ()) for part in data):
            raise ValueError("Field names do not match for concatenation.")
        if any(part.partition_id != first.partition_id for part in data):
            raise ValueError("Partition do not match for concatenation.")
        keys, tags = [key for part in data for key in part.keys], [tag for part in data for tag in part.tags]
        extra = _united([part.extra_info for part in data], "KVBatchMeta.concat") or None
        return cls(keys=keys, tags=tags, partition_id=first.partition_id, fields=first.fields, extra_info=extra)


class BatchMeta:
    """Samples by their global indexes. Without arguments: none, as on ranks that collect nothing."""

    def __init__(
        self,
        global_indexes: Sequence[int] = (),
        partition_ids: Sequence[str] = (),
        field_schema: dict[str, dict[str, Any]] | None = None,
        production_status: Any = None,
        extra_info: dict[str, Any] | None = None,
        custom_meta: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        self.global_indexes, self.partition_ids = list(global_indexes), list(partition_ids)
        self.field_schema = {name: dict(schema) for name, schema in (field_schema or {}).items()}
        self.extra_info = dict(extra_info or {})
        self.custom_meta = [dict(tag) for tag in custom_meta or [{}] * len(self.global_indexes)]
        status = [0] * self.size if production_status is None else production_status
        self.production_status = numpy().array(status, dtype="int8")
        for name, count in [("partition_ids", len(self.partition_ids)), ("custom_meta", len(self.custom_meta))]:
            if count != self.size:
                raise ValueError(f"Length mismatch: {self.size} global_indexes and {count} {name}")
        if len(self.production_status) != self.size:
            raise ValueError(f"production_status length {len(self.production_status)} != batch_size {self.size}")
        for name, schema in self.field_schema.items():
            shapes = schema.get("per_sample_shapes")
            if shapes is not None and len(shapes) != self.size:
                raise ValueError(f"Field '{name}' per_sample_shapes length {len(shapes)} != batch_size {self.size}")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.production_status = self.production_status.copy()  # ray's arrays can only be read

    @property
    def size(self) -> int:
        return len(self.global_indexes)

    def __len__(self) -> int:
        return self.size

    @property
    def field_names(self) -> list[str]:
        return sorted(self.field_schema)

    @property
    def is_ready(self) -> bool:
        return self.size > 0 and bool((self.production_status == 1).all())

    @property
    def samples(self) -> SampleViews:
        """Each sample by itself, to read."""
        return SampleViews(self)

    def get_dtypes(self, field_name: str) -> list[Any]:
        return [self._schema(field_name).get("dtype")] * self.size

    def get_shapes(self, field_name: str) -> list[Any]:
        return shapes_of(self._schema(field_name), self.size)

    def _schema(self, field_name: str) -> dict[str, Any]:
        if field_name not in self.field_schema:
            raise KeyError(f"Field '{field_name}' not found in field_schema")
        return self.field_schema[field_name]

    def get_extra_info(self, key: str, default: Any = None) -> Any:
        return self.extra_info.get(key, default)

    def set_extra_info(self, key: str, value: Any) -> None:
        self.extra_info[key] = value

    def get_all_extra_info(self) -> dict[str, Any]:
        return copy.deepcopy(self.extra_info)

    def update_extra_info(self, info_dict: dict[str, Any]) -> None:
        self.extra_info.update(info_dict)

    def remove_extra_info(self, key: str) -> Any:
        return self.extra_info.pop(key, None)

    def clear_extra_info(self) -> None:
        self.extra_info.clear()

    def has_extra_info(self, key: str) -> bool:
        return key in self.extra_info

    def get_all_custom_meta(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.custom_meta)

    def clear_custom_meta(self) -> None:
        self.custom_meta = [{} for _ in range(self.size)]

    def _become(self, other: BatchMeta) -> BatchMeta:
        self.__dict__.update(other.__dict__)
        return self

    def _with(self, places: Sequence[int] | None = None, schema: Callable[[str], bool] = lambda _: True) -> BatchMeta:
        at = range(self.size) if places is None else places
        return BatchMeta(
            [self.global_indexes[place] for place in at],
            [self.partition_ids[place] for place in at],
            {name: cut(described, at) for name, described in self.field_schema.items() if schema(name)},
            [self.production_status[place] for place in at],
            self.extra_info,
            [self.custom_meta[place] for place in at],
        )

    def copy(self) -> BatchMeta:
        return self._with()

    def __getitem__(self, item: int | slice) -> BatchMeta:
        if not isinstance(item, slice) and not hasattr(item, "__index__"):
            raise TypeError(f"Indexing with {type(item)} is not supported.")
        places = range(self.size)[item]
        return self._with([places] if isinstance(places, int) else places)

    def select_fields(self, field_names: list[str]) -> BatchMeta:
        return self._with(schema=set(field_names).__contains__)

    def select_samples(self, sample_indices: list[int]) -> BatchMeta:
        if any(at < 0 or at >= self.size for at in sample_indices):
            raise ValueError(f"Sample indices must be in range [0, {self.size})")
        return self._with(sample_indices)

    def reorder(self, indices: list[int]) -> None:
        if sorted(indices) != list(range(self.size)):
            raise ValueError(f"indices must be an order of 0 to {self.size - 1}")
        self._become(self._with(indices))

    def chunk(self, chunks: int) -> list[BatchMeta]:
        return [self[part] for part in _sizes(self.size, chunks)]

    def chunk_by_partition(self) -> list[BatchMeta]:
        places: dict[str, list[int]] = {}
        for at, partition in enumerate(self.partition_ids):
            places.setdefault(partition, []).append(at)
        return [self._with(at) for at in places.values()]

    def add_fields(self, tensor_dict: Any, set_all_ready: bool = True) -> BatchMeta:
        count = tensor_dict.batch_size[0]
        if count not in (0, self.size):
            raise ValueError(f"add_fields batch size mismatch: self.size={self.size} vs tensor_dict={count}")
        for name, rows in rows_of(tensor_dict).items() if count else ():
            described = {at: describe(row) if isinstance(row, torch.Tensor) else None for at, row in enumerate(rows)}
            self.field_schema[name] = schema_of(described, count)
        if set_all_ready and count:
            self.production_status[:] = 1
        return self

    def update_custom_meta(self, custom_meta: list[dict[str, Any]] | None) -> None:
        if custom_meta is None:
            return
        if len(custom_meta) != self.size:
            raise ValueError(f"custom_meta length {len(custom_meta)} != batch_size {self.size}")
        for tag, more in zip(self.custom_meta, custom_meta):
            tag.update(more)

    def union(self, other: BatchMeta) -> BatchMeta:
        """These samples with the fields of both, which are of the same samples; what the other says goes before."""
        if not other or not self:
            return (self or other or BatchMeta()).copy()
        for of in ("global_indexes", "partition_ids"):
            if getattr(self, of) != getattr(other, of):
                raise ValueError(f"BatchMeta.union: {of} do not match: {getattr(self, of)} and {getattr(other, of)}")
        return BatchMeta(
            self.global_indexes,
            self.partition_ids,
            {**self.field_schema, **other.field_schema},
            self.production_status & other.production_status,
            {**self.extra_info, **other.extra_info},
            [{**tag, **theirs} for tag, theirs in zip(self.custom_meta, other.custom_meta)],
        )

    @classmethod
    def concat(cls, data: list[BatchMeta], validate: bool = True) -> BatchMeta:
        data = [part for part in data if part is not None and part.size]
        if not data:
            return cls()
        if validate and any(part.field_names != data[0].field_names for part in data):
            raise ValueError("Field names do not match for concatenation.")
        return cls(
            [index for part in data for index in part.global_indexes],
            [partition for part in data for partition in part.partition_ids],
            {name: joined(name, [(part.field_schema.get(name, {}), part.size) for part in data]) for name in data[0].field_schema},
            [status for part in data for status in part.production_status],
            _united([part.extra_info for part in data], "BatchMeta.concat"),
            [tag for part in data for tag in part.custom_meta],
        )

    @classmethod
    def empty(cls, extra_info: dict[str, Any] | None = None) -> BatchMeta:
        return cls(extra_info=extra_info)

    def __repr__(self) -> str:
        return f"BatchMeta(size={self.size}, field_names={self.field_names}, is_ready={self.is_ready})"
