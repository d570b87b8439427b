"""What the calls of ``store.admin``, and ``store.rewind``, give, for who wants to say its type."""

import os
from collections.abc import Callable
from typing import Literal, TypeAlias, TypedDict


class Depth(TypedDict):
    """How much there is for a consumer in one of its tables."""

    consumer: str
    kind: Literal["task", "trainer"]
    table: str
    ready_rows: int
    future_rows: int
    processing_rows: int
    current_version: int
    group_members: int | None


class Overview(TypedDict):
    """Settings by the names of ``open``'s options as the store has them, times in milliseconds, ``None`` for a limit that is not set;
    counters by name; how much there is for each consumer."""

    settings: dict[str, str | None]
    stats: dict[str, int]
    depths: list[Depth]


class Budgets(TypedDict):
    """Bytes; ``None`` for no limit."""

    memory_bytes_max: int | None
    disk_bytes_max: int | None


class Retention(TypedDict):
    """How many versions are kept, and for how many seconds rows after they were trained on; ``None``: all, for ever."""

    versions_kept: int | None
    consumed_kept: float | None


class Compacted(TypedDict):
    """Bytes of extents and log before and after, how many values were moved together, and how many bytes more would be free were it
    not for the one who holds back most (``system.pins``)."""

    bytes_before: int
    bytes_after: int
    values_moved: int
    held_back_bytes: int


class Copied(TypedDict):
    """What a backup copied, and where to."""

    to: os.PathLike[str]
    records: int
    segments: int
    extents: int
    objects: int
    bytes: int


class Fault(TypedDict):
    """Something that is wrong in a store, and where."""

    kind: Literal["identity", "checkpoint", "segment", "record", "extent", "value", "object", "count"]
    path: os.PathLike[str]
    offset: int
    reason: str


class Verified(TypedDict):
    """What a check found: faults (the first thousand of ``fault_count``), how much was looked at, and files that nothing names,
    which are no fault."""

    sound: bool
    fault_count: int
    faults: list[Fault]
    checked: dict[str, int]
    orphans: list[os.PathLike[str]]


class Rewound(TypedDict):
    """The step that the run stands after now (0: none), how many steps were undone, and how many rows they had consumed."""

    step: int
    steps_undone: int
    rows: int


Progress: TypeAlias = Callable[[str, int, int], object]
"""Is told now and then what is being done, how many bytes of it are done, and how many there are. What it raises stops the call, and
comes out of it."""
