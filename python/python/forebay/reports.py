"""What the calls of ``store.admin`` give, and those that tell what became of rows, for who wants to say its type."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from ._forebay import Purpose, Rows


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


class Gradient(TypedDict):
    """A gradient: its name, as ``system.gradients`` has it, and the parts of that: the policy that it moves, its step, the trainer whose
    micro-batch it is, the place of that among the trainer's in the step, from 0, and how often the policy's gradient cache had been
    dropped in the step before."""

    name: str
    policy: str
    step: int
    consumer: str
    sequence: int
    cache_epoch: int


class RowShown(TypedDict):
    """A row at the moment of the call, without its cells.

    row: the row, to write to.
    policy_version: the version that its rollout started under.
    version_spans: from which token on it was made under which version, as (token, version), beginning with its own at token 0.
    trainable_from: the first of its tokens that is trained on.
    attempt: how many attempts there were before this one.
    created_at: when it was inserted, in seconds since 1970, by the clock of the store.
    origin: where it comes from when not from this run, as ``PEER/ROUND``.
    parent: the row that it continues, as ``TABLE/SAMPLE_ID``.
    weights: the fingerprint of the weights that it was made with.
    excluded: why it was left out.
    step: the step that trained on it.
    gradient: the gradient that it is part of; none before the step is committed, or once the store has forgotten what the step was made of.
    """

    row: "Rows"
    sample_id: str
    policy_version: int
    version_spans: list[tuple[int, int]]
    trainable_from: int
    attempt: int
    purpose: "Purpose"
    created_at: float
    agent: str
    origin: str | None
    parent: str | None
    weights: str | None
    excluded: str | None
    step: int | None
    gradient: Gradient | None


class TrainedBatch(TypedDict):
    """One micro-batch of a committed step, as its trainer had it: the gradient that it made, the table of its rows, and the rows in
    sample-id order with their sample ids. ``Table.cells`` reads what they hold."""

    gradient: Gradient
    table: str
    rows: "Rows"
    sample_ids: list[str]


Progress: TypeAlias = Callable[[str, int, int], object]
"""Is told now and then what is being done, how many bytes of it are done, and how many there are. What it raises stops the call, and
comes out of it."""
