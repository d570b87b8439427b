"""What a batch says of one sample, and of a field through joins and cuts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._meta import BatchMeta

Schema = dict[str, Any]
"""What is known of a field: ``dtype``, ``shape``, ``is_nested``, ``is_non_tensor``, and ``per_sample_shapes`` where shapes differ."""


class SampleView:
    """One sample of a batch, to read."""

    __slots__ = ("_batch", "_place")

    def __init__(self, batch: BatchMeta, place: int) -> None:
        self._batch, self._place = batch, place

    @property
    def global_index(self) -> int:
        return self._batch.global_indexes[self._place]

    @property
    def partition_id(self) -> str:
        return self._batch.partition_ids[self._place]

    @property
    def production_status(self) -> int:
        return int(self._batch.production_status[self._place])

    @property
    def custom_meta(self) -> Mapping[str, Any]:
        return MappingProxyType(self._batch.custom_meta[self._place])

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """What is known of each field; its shape is that of this sample."""
        said = {}
        for name, schema in self._batch.field_schema.items():
            own = {of: value for of, value in schema.items() if of != "per_sample_shapes"}
            if (shapes := schema.get("per_sample_shapes")) is not None:
                own["shape"] = shapes[self._place]
            said[name] = MappingProxyType(own)
        return MappingProxyType(said)

    def __repr__(self) -> str:
        return (
            f"SampleView(global_index={self.global_index}, partition_id={self.partition_id!r}, "
            f"production_status={self.production_status}, fields={list(self._batch.field_schema)})"
        )


class SampleViews(Sequence[SampleView]):
    """The samples of a batch."""

    __slots__ = ("_batch",)

    def __init__(self, batch: BatchMeta) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return self._batch.size

    def __getitem__(self, place: Any) -> Any:
        places = range(len(self))[place]
        if isinstance(places, range):
            return [SampleView(self._batch, at) for at in places]
        return SampleView(self._batch, places)

    def __iter__(self) -> Iterator[SampleView]:
        return (SampleView(self._batch, at) for at in range(len(self)))


def shapes_of(schema: Schema, count: int) -> list[Any]:
    """The shape of each of so many samples."""
    shapes = schema.get("per_sample_shapes")
    return [schema.get("shape")] * count if shapes is None else list(shapes)


def cut(schema: Schema, places: Sequence[int]) -> Schema:
    """What is known of a field in the samples of these places."""
    shapes = schema.get("per_sample_shapes")
    return dict(schema) if shapes is None else {**schema, "per_sample_shapes": [shapes[at] for at in places]}


def joined(name: str, parts: Sequence[tuple[Schema, int]]) -> Schema:
    """What is known of a field in batches that become one, each with its size."""
    first = parts[0][0]
    types = {str(schema.get("dtype")) for schema, _ in parts}
    if len(types) > 1:
        raise ValueError(f"Field '{name}' dtype mismatch in concat: {', '.join(sorted(types))}")
    shapes = [shape for schema, count in parts for shape in shapes_of(schema, count)]
    is_nested = any(schema.get("is_nested") for schema, _ in parts)
    is_cut = any(schema.get("per_sample_shapes") for schema, _ in parts)
    whole = {**first, "is_nested": is_nested, "shape": None} if is_nested else dict(first)
    whole.pop("per_sample_shapes", None)
    return {**whole, "per_sample_shapes": shapes} if is_nested or is_cut else whole
