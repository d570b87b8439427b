"""What the queue says of its samples: batches of them, as meta objects."""

from __future__ import annotations

from ._meta import BatchMeta
from ._partitions import Sample
from ._tags import copied
from ._values import schema_of


def common(samples: list[Sample]) -> list[str]:
    """The fields that all of them have."""
    if not samples:
        return []
    return [name for name in samples[0].fields if all(name in sample.fields for sample in samples)]


def is_ready(sample: Sample, fields: list[str]) -> bool:
    return all(name in sample.fields for name in fields)


def meta_of_all(samples: list[Sample], fields: list[str]) -> BatchMeta:
    """Samples, ready or not. Fields that none of them has are no part of it, as in TransferQueue."""
    known = [name for name in fields if any(name in sample.fields for sample in samples)]
    return meta_of(samples, known, produced=[int(bool(known) and is_ready(sample, known)) for sample in samples])


def meta_of(
    samples: list[Sample], fields: list[str], like: BatchMeta | None = None, produced: list[int] | None = None
) -> BatchMeta:
    """produced: whether each sample is ready; all are where it is not said."""
    schema = {}
    for name in dict.fromkeys(fields):
        there = {at: sample.fields[name].fields[name] for at, sample in enumerate(samples) if name in sample.fields}
        schema[name] = schema_of(there, len(samples))
    return BatchMeta(
        [sample.number for sample in samples],
        [sample.partition for sample in samples],
        schema,
        [1] * len(samples) if produced is None else produced,
        like.extra_info if like else None,
        [copied(sample.tag) for sample in samples],
    )
