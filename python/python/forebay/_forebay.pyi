"""The compiled half of the package. Everything here is reached as ``forebay.NAME``."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypeAlias, final

import pandas
import pyarrow

from .objects import Objects
from .reports import (
    Budgets,
    Compacted,
    Copied,
    Depth,
    Overview,
    Progress,
    Retention,
    Rewound,
    RowShown,
    TrainedBatch,
    Verified,
)

__version__: str

Moved: TypeAlias = int | Mapping[str, bytes | int] | tuple[int, Mapping[str, bytes | int]] | None
Durability: TypeAlias = Literal["memory", "logged", "synced"]
"""What an acknowledgement promises: nothing beyond the process; any end of it; a power failure, too."""

Type: TypeAlias = str | pyarrow.DataType
"""The type of a column: pyarrow's, or the store's name for it: ``bool``, ``int32``, ``bfloat16``, ``utf8``, ``binary``,
``list<float32>``, ``tensor<float32, [2, 3]>``."""

Role: TypeAlias = Literal[
    "input_ids", "loss_mask", "behaviour_logprobs", "reference_logprobs", "reward", "advantage", "weight"
]
GroupKey: TypeAlias = Literal["input_id", "input_id_turn", "input_id_turn_agent", "parent"]
Comparison: TypeAlias = Literal["<", "<=", "==", "!=", ">=", ">"]
Purpose: TypeAlias = Literal["train", "eval", "warmup"]

Column: TypeAlias = Any
"""The values of a column, one a row: a list or tuple, an array with one row a first index (numpy, ``array.array``, anything
with the buffer protocol), an Arrow array, a torch tensor (a nested one: a row a part), a pandas series. ``None`` in a list is a value known
to be absent.
An element that is masked in an array of numpy is one, too, where the column has one value a row; within a list or a tensor there is none.
Numbers convert to the type of the column where nothing is lost; floats are rounded. A tensor is given in its shape, or flat."""

Batchlike: TypeAlias = Any
"""A record batch or table of Arrow: pyarrow's, or whatever has ``__arrow_c_stream__`` or ``__arrow_c_array__``. Null is a value known to
be absent."""

def open(
    path: str | os.PathLike[str],
    *,
    durability: Durability | None = ...,
    read_only: bool | None = ...,
    create: bool | None = ...,
    lease: float | None = ...,
    sync_interval: float | None = ...,
    extent_bytes: tuple[int, int] | None = ...,
    free_extent_bytes_max: int | None = ...,
    disk_bytes_max: int | None = ...,
    memory_bytes_max: int | None = ...,
    capacity_wait: float | None = ...,
    snapshot_age_max: float | None = ...,
    check_values: bool | None = ...,
    segment_bytes_max: int | None = ...,
    checkpoint_records: int | None = ...,
    object_versions_kept: int | None = ...,
    host_bytes_max: int | None = ...,
    host_folder: str | os.PathLike[str] | None = ...,
    host_versions_kept: int | None = ...,
    pageable_bytes_max: int | None = ...,
    versions_kept: int | None = ...,
    consumed_kept: float | None = ...,
    tokenizer: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = ...,
    archive: str | os.PathLike[str] | None = ...,
    archive_keep_versions: int | None = ...,
    query_time_max: float | None = ...,
    query_memory_bytes_max: int | None = ...,
) -> Store:
    """Opens the store in a directory, and creates it where there is none. A thread of its own does what is due in the
    background (syncs, checkpoints, retention). Times are in seconds; ``None`` leaves a default.

    durability: what calls are acknowledged with. Default: ``"logged"``.
    read_only: changes nothing; may be opened beside the process that writes.
    create: whether a store is made where there is none. Default: true.
    lease: how long a claim is held before its rows go to another. Default: 300.
    sync_interval: what a power failure may take, below ``"synced"``. Default: 1.
    extent_bytes: sizes of the first and of the greatest extent. Default: 1 MiB, 1 GiB.
    free_extent_bytes_max: space that is kept to be used again. Default: 8 GiB.
    disk_bytes_max, memory_bytes_max: budgets. Default: none.
    capacity_wait: how long a writer waits for room. Default: 10.
    snapshot_age_max: from which age on a snapshot is shown as overdue. Default: none.
    check_values: whether lists, tensors, and texts and bytes of more than 12 bytes are held against their checksums whenever they are
        read; one that is damaged raises ``CorruptError`` then. Default: ``False``.
    segment_bytes_max: how large a segment of the log grows. Default: 64 MiB.
    checkpoint_records: after how many records a checkpoint is due. Default: 250,000.
    object_versions_kept: how many states of a policy are kept. Default: 2.
    host_bytes_max: the most shared memory for objects. Default: 16 GiB.
    host_folder: where that lies, a folder of a file system in memory; ``""`` for memory that ends with the process. Default: a
        folder of its own in ``/dev/shm``.
    host_versions_kept: how many of the newest versions of an object are kept. Default: 2.
    pageable_bytes_max: the most memory beyond ``host_bytes_max``, which ends with the process. Default: 4 GiB.
    versions_kept, consumed_kept: which rows retention keeps: so many versions, consumed ones so long. Default: all.
    tokenizer: the ``tokenizer.json`` with which ``detokenise`` of ``sql`` reads tokens, or several by name. Default: none.
    archive: where versions lie that left the store, a directory or a URL: ``sql`` reads them beside the live ones. Default:
        none, and then ``sql`` shows the rows that are in the store alone.
    archive_keep_versions: moves versions that are over into that archive while the store is open, all but so many of each table's
        newest. Default: moves none.
    query_time_max: how long a question of ``sql`` may take. Default: as long as it takes.
    query_memory_bytes_max: the memory that sorts, joins and groups of questions take; beyond it they go on in temporary files.
        Default: 1 GiB.

    Raises StateError when another process writes the store (its pid is named), or arrays and record batches of an earlier
    opening in this process still show its bytes; CorruptError with file and offset when stored bytes are damaged.
    """

def connect(
    address: str,
    *,
    token: str | None = None,
    owner: str | None = None,
    timeout: float | None = None,
    call_timeout: float | None = None,
    outage_timeout: float | None = None,
    neighbour: bool | None = None,
    slabs: bool | None = None,
    tls: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Store:
    """Connects to the store of a server (``forebay serve``): ``unix:///run/fb.sock``, ``grpc://HOST:PORT``, or
    ``grpcs://HOST:PORT`` with TLS. What it gives has the same calls as what ``open`` gives. Times are in seconds; ``None``
    leaves a default.

    token: what lets in. Not needed over a Unix socket of the same user.
    owner: whom ``system.claims`` shows as the holder. Default: ``process PID``.
    timeout: how long to wait for the server to answer at first. Default: 10.
    call_timeout: how long a call may take, beyond what it is told to wait for. Default: 60.
    outage_timeout: for how long a call is sent again while the server cannot be reached, before RetryError. A call is made
        once, however often it is sent. Default: 30; 0 raises at once.
    neighbour: whether values may stay in the store's files, over a socket of this machine and user. Default: true.
    slabs: whether values are handed over in memory shared with the server, where they may not stay in its files, over a socket
        of this machine. Default: true.
    tls: certificates, each as a PEM text or as the path of a file: ``authority``, who has signed the server's (needed for
        ``grpcs``), and for servers that ask for one this client's own ``certificate`` and ``key``.

    Claims and steps end with the connection: at once when it is closed or the process exits, and after a grace when it breaks.
    A server that is started again has given them back; calls on them then raise StateError.

    Raises InputError for an address that is none or a token that is not let in, RetryError when nobody answers in time.
    """

@final
class Store:
    """A store, open in this process or behind a server. May be used from any thread; not from a forked child."""

    @property
    def path(self) -> os.PathLike[str] | None:
        """The directory, of a store that is open in this process."""
    @property
    def address(self) -> str | None:
        """Where the server is, of a store that is behind one."""
    @property
    def is_closed(self) -> bool: ...
    @property
    def admin(self) -> Admin:
        """What an operator does with it. Behind a server it needs a token with the scope ``admin``."""
    @property
    def objects(self) -> Objects:
        """Its objects: large state under keys, in versions."""
    def create_table(
        self,
        name: str,
        columns: Mapping[str, Type],
        *,
        roles: Mapping[str, Role] | None = None,
        shared: Sequence[str] | None = None,
        lazy: Sequence[str] | None = None,
        policy: str | None = None,
    ) -> Table:
        """Creates a table, and its policy at version 0 where there is none of that name yet.

        roles: what columns mean to a trainer; those with one entry a token then have one length.
        shared: columns of which equal values are stored once, as the prompt of a group.
        lazy: columns that are read only when they are named.
        policy: whose versions the rows carry. Default: a policy of the table's own name.
        """
    def table(self, name: str) -> Table: ...
    def tables(self) -> list[str]:
        """The names of all tables, in the order of their creation."""
    def create_consumer(
        self,
        name: str,
        *,
        tables: Sequence[str],
        kind: Literal["task", "trainer"],
        ready: Sequence[str] | None = ...,
        group: tuple[GroupKey, int] | None = ...,
        trajectories: tuple[GroupKey, int] | None = ...,
        trajectory_rows: int | None = ...,
        member_fails: Literal["next_attempt", "exclude"] | int | None = ...,
        purposes: Sequence[Purpose] | None = ...,
        only: Sequence[tuple[str, Comparison, float]] | None = ...,
        staleness: int | None = ...,
        origins: Literal["own", "all", "external"] | None = ...,
        priority: str | None = ...,
        rate_limiter: tuple[float, int, float] | None = ...,
    ) -> Consumer:
        """Declares a class of readers. Rows that are there already are indexed for it at once.

        kind: a task finishes its claims by writing columns; a trainer accumulates, and a step's commit consumes.
        ready: the columns that must be final for a row to be ready.
        group: takes whole groups of so many rows; ``trajectories``: of so many trajectories, each ended by
            ``Consumer.close_trajectory``, or by its ``trajectory_rows``-th row.
        member_fails: what becomes of a group that loses a member: waits for its next attempt, is left out, or goes on with at
            least so many. Default: goes on as long as there is one.
        only: takes rows whose numbers compare so.
        staleness: how many versions a trainer's rows may be behind. Default: none.
        priority: hands out the greatest number of that column first.
        rate_limiter: samples per insert, least size to sample, error buffer.
        """
    def consumer(self, name: str) -> Consumer: ...
    def consumers(self) -> list[str]:
        """The names of all consumers."""
    def create_policy(self, name: str, *, version: int = 0, state_keys: Sequence[str] | None = None) -> None:
        """Creates a policy that stands at a version. With ``state_keys``, every commit that moves it stores one object of
        each key."""
    def policy_version(self, name: str) -> int: ...
    def policy_state(self, name: str) -> dict[str, bytes]:
        """What the last commit stored of a policy's state, by key."""
    def policy_objects(self, name: str) -> dict[str, int]:
        """Which objects hold a policy's state, as the last commit that moved it named them: versions by key."""
    def snapshot_async(
        self, tables: Sequence[str] | None = None, *, seconds: float | None = None, owner: str | None = None
    ) -> Coroutine[Any, Any, Snapshot]:
        """``snapshot`` for an event loop, on one of two threads for reads."""
    def changes(self, *, durability: Durability | None = None, timeout: float | None = None) -> Changes:
        """Changes over any tables, to be made together: all of them or none.

        durability: what they are acknowledged with. Default: the store's.
        timeout: how long they wait for room, in seconds; over a connection five minutes at most. Default: the store's ``capacity_wait``.
        """
    def snapshot(
        self, tables: Sequence[str] | None = None, *, seconds: float | None = None, owner: str | None = None
    ) -> Snapshot:
        """One instant of all tables, or of some, which is read again and again while others write. Of a server those that the token
        is for; it needs the scope ``read``.

        seconds: for how long it is held if nobody extends it (a minute where nothing is said); the store's greatest age of snapshots (an hour where it has none) is the most.
        owner: the name by which ``system.pins`` shows who holds it. Default: this process.

        Raises CapacityError where 16 are held already.
        """
    def step(
        self,
        *,
        groups: Mapping[Consumer | str, Iterable[str]] | None = None,
        rows: Mapping[Consumer | str, int] | None = None,
        durability: Durability | None = None,
        log: Callable[[dict[str, float], int], object] | None = None,
    ) -> Step:
        """Begins a step. What it takes is planned now, not decided by who arrives first: groups by their keys, or numbers of
        rows, by trainer. Where nothing is said: every group that was begun and that no step has taken.

        log: is called with ``Step.metrics()`` and the step's number once it is committed; ``wandb.log`` is one. What it
            raises goes to ``sys.unraisablehook``, for the step is committed.

        Raises StateError when a step is open, or nothing was said and there is nothing to take.
        """
    def step_async(
        self,
        *,
        groups: Mapping[Consumer | str, Iterable[str]] | None = None,
        rows: Mapping[Consumer | str, int] | None = None,
        durability: Durability | None = None,
        log: Callable[[dict[str, float], int], object] | None = None,
    ) -> Coroutine[Any, Any, Step]:
        """``step`` for an event loop, on one of two threads for who holds something. A step whose task was cancelled is given up."""
    def open_step(self, number: int) -> Step:
        """A step that another process has begun, to take part in it: as a rank of a gang, with
        ``micro_batches(..., rank=, world=)``. It is committed or given up where it was begun."""
    def rewind(self, step: int, *, exclude: bool = False) -> Rewound:
        """Undoes every step after that one (0: all of them): the trainer went back to an older state of its own, and the store goes with
        it. Policies stand where they stood then, on the objects that they stood on. A server wants a token with the scope ``admin`` for it.

        exclude: what those steps trained on, and rows of versions that come again, are left out as ``rewound``. Default: they are trained on
            again, in their order.

        Raises InputError for a step that was never committed or was undone; StateError when a step is open, or when objects that the
        policies stood on then are no longer kept (``object_versions_kept``).
        """
    def replay(self, step: int) -> list[TrainedBatch]:
        """The micro-batches that a committed step was made of, in the order in which they were handed out: which samples made each of its
        gradients. The other way, ``Table.show`` says which step used a row. A server tells of tables alone that the token is for; it needs
        the scope ``read``.

        Raises InputError for a step that was never committed, was undone, or of which the store has forgotten what it was made of.
        """
    def replay_async(self, step: int) -> Coroutine[Any, Any, list[TrainedBatch]]:
        """``replay`` for an event loop, as ``snapshot_async``."""
    def sql(self, statement: str) -> Answer:
        """Answers a SELECT over all tables, as they are at the moment of the call. ``docs/sql.md`` has what can be asked.
        Tokenizers, an archive and limits are given to ``forebay.open``; a server has its own (``forebay serve``)."""
    def sql_async(self, statement: str) -> Coroutine[Any, Any, Answer]:
        """``sql`` for an event loop. A task that is cancelled gives the question up."""
    def sync(self) -> None:
        """Brings everything that was acknowledged so far to stable storage."""
    def sync_async(self) -> Coroutine[Any, Any, None]: ...
    def checkpoint(self) -> None:
        """Takes a checkpoint: opening the store then replays what comes after it."""
    def refresh(self) -> int:
        """Takes in what the writer of a store that was opened read-only has written since; gives the number of records. Of a
        server's store it raises StateError: what is read there is always what was written last."""
    def backup(self, to: str | os.PathLike[str]) -> None:
        """Copies the store, as it is at one instant, to a directory that is empty or does not exist. Of a server's store it
        raises StateError: ``admin.backup`` copies it on the server's machine."""
    def close(self) -> None:
        """Ends everything that came of the store, and lets go of its directory, or of the server, whose store goes on. Waits of
        other threads end with ClosedError. Arrays and record batches stay as they are; while there are any of a store in this
        process, its directory stays locked.

        Raises StateError from within a call of the same thread: from a progress callable, or from the handler of a signal. Raise
        an exception there, which ends the call, and close when it has returned."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...

@final
class Admin:
    """Calls for an operator of a store, here or behind a server; there they need a token with the scope ``admin``, for all tables
    but for ``peek`` and ``evict``."""

    def overview(self) -> Overview: ...
    def depths(self) -> list[Depth]:
        """How much there is for each consumer, once for each of its tables."""
    def peek(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        rows: int = 10,
        newest: bool = False,
        ready_for: str | None = None,
    ) -> Answer:
        """A few rows of a table, whoever holds them: none is claimed.

        columns: only these. Default: all that are not lazy.
        rows: how many at most, up to 1000.
        newest: those that came last, the last one first, instead of those that came first.
        ready_for: only rows that are ready for this consumer; of one that takes groups also before their group is whole.
        """
    def evict(self, rows: Rows, reason: str) -> None:
        """Leaves rows out for good, all or none, with the reason that people will see."""
    def budgets(self) -> Budgets:
        """How much the store may take now."""
    def set_budgets(
        self, *, memory_bytes_max: int | None = ..., disk_bytes_max: int | None = ...
    ) -> Budgets:
        """Changes the budgets that are named, ``None`` to no limit, until the store is closed. Writers who wait for room look at once.
        A budget below what is taken drops nothing: writers wait. Gives what holds then.

        Raises InputError for less than an empty store needs; then nothing was changed.
        """
    def retention(self) -> Retention:
        """Which rows go by themselves now."""
    def set_retention(self, *, versions_kept: int | None = None, consumed_kept: float | None = None) -> None:
        """Puts another rule in place of the one that holds, until the store is closed: keep so many versions, and rows for so many
        seconds after they were trained on. Without either everything is kept."""
    def compact(self) -> Compacted:
        """Makes the store as small as it can be now, while others go on with it. A server goes on to the end whoever waits."""
    def backup(
        self, to: str | os.PathLike[str], *, set_objects: bool = False, progress: Progress | None = None
    ) -> Copied:
        """Copies the store, as it is at one instant, to a directory that is empty or does not exist, of the machine that has the store.
        A server copies beneath the directory that ``forebay serve --backup-dir`` names: ``to`` is relative to it.

        set_objects: versions of objects go along that were set and that no step names, as far as they lie on the disk.
        progress: is told with ``"copy"``. When it raises, or on Ctrl-C, the copy is given up and removed.

        Raises StateError when the directory is taken, or the server copies to nowhere; InputError for a path that leaves what it
        allows; RetryError when a check, copy or compaction is under way there.
        """
    def verify(self, *, progress: Progress | None = None) -> Verified:
        """Reads every byte that the store stands on, beside whoever works with it, and says what is wrong.

        progress: is told with ``"checkpoint"``, ``"log"``, ``"values"`` or ``"objects"``. When it raises, or on Ctrl-C, the check ends.
        """

@final
class Table:
    """The rows of one agent."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> dict[str, str]:
        """The data columns, with the names of their types."""
    def insert(
        self,
        batch: Batchlike | None = None,
        /,
        *,
        policy_version: int,
        sample_ids: Iterable[str],
        purpose: Purpose | None = None,
        agent: str | None = None,
        parents: Sequence[str | None] | None = None,
        weights: str | None = None,
        idempotency_tokens: Sequence[int] | None = None,
        version_spans: Sequence[Sequence[tuple[int, int]]] | None = None,
        trainable_from: int | Sequence[int] | None = None,
        rollouts: int = 1,
        next_attempt: bool = False,
        late: bool = False,
        excluded: str | None = None,
        origin: str | None = None,
        durability: Durability | None = None,
        timeout: float | None = None,
        **columns: Column,
    ) -> Rows:
        """Begins rows of a policy version, all of them or none, with what is known of them already.

        batch: columns by their names, one value a row; others may be given as keywords.
        sample_ids: ``INPUT_TURN_TRAJECTORY``; one that ends in ``_?`` gets the next free trajectory.
        parents: the rows that these continue, as ``TABLE/SAMPLE_ID``.
        weights: the fingerprint of the weights that the rollout runs on.
        idempotency_tokens: numbers that make the insert safe to repeat: the row that is there is given.
        version_spans: of each row pairs of a token and the later version that its rollout went on under from there, as ``span`` says of rows
            that are there; what ``show`` gives is taken too.
        trainable_from: the token from which on rows are trained on, one of all or one a row, as the call of that name says of rows that
            are there. Whether rows come too late goes by ``policy_version`` all the same.
        rollouts: so many rows a sample id, with the same cells, on the trajectories that follow; a token is for all of them. They are given
            one after the other.
        next_attempt: the rows are the next attempts of those with these ids, which are left out as ``superseded``.
        late: the rollouts began before their version was left behind: where they would be refused otherwise they are kept, and left out as
            ``stale``.
        excluded: the rows are left out from the start, with this reason: their places are taken, and nobody waits for them.
        origin: the peer and the round of it that the rows come from, as ``PEER/ROUND``. Trainers take such rows only where their
            ``origins`` say so.
        columns: those that are named as one of these are given in a batch.
        timeout: how long to wait for room, in seconds; over a connection five minutes at most. Default: the store's ``capacity_wait``.
        """
    def insert_async(
        self,
        batch: Batchlike | None = None,
        /,
        *,
        policy_version: int,
        sample_ids: Iterable[str],
        purpose: Purpose | None = None,
        agent: str | None = None,
        parents: Sequence[str | None] | None = None,
        weights: str | None = None,
        idempotency_tokens: Sequence[int] | None = None,
        version_spans: Sequence[Sequence[tuple[int, int]]] | None = None,
        trainable_from: int | Sequence[int] | None = None,
        rollouts: int = 1,
        next_attempt: bool = False,
        late: bool = False,
        excluded: str | None = None,
        origin: str | None = None,
        durability: Durability | None = None,
        timeout: float | None = None,
        **columns: Column,
    ) -> Coroutine[Any, Any, Rows]:
        """``insert`` for an event loop, on one of four threads of the package. Cancelling the task does not stop the call. Values are
        copied on that thread, when it comes to the call: whoever changes an array before the call was awaited changes what is written."""
    def write(
        self,
        rows: Rows,
        batch: Batchlike | None = None,
        /,
        *,
        durability: Durability | None = None,
        timeout: float | None = None,
        **columns: Column,
    ) -> None:
        """Turns cells of rows final, all of them or none. Writing a final cell again with the same bytes is success.

        batch: columns by their names, one value a row; others may be given as keywords.
        """
    def write_async(
        self,
        rows: Rows,
        batch: Batchlike | None = None,
        /,
        *,
        durability: Durability | None = None,
        timeout: float | None = None,
        **columns: Column,
    ) -> Coroutine[Any, Any, None]:
        """``write`` for an event loop, as ``insert_async``."""
    def append(self, row: Rows, column: str, value: Any) -> None:
        """Lets a text, binary or list cell of one row grow. It is final by ``finalize``, and no row is ready by it before; ``cells`` with
        ``partial`` shows how far it has come."""
    def append_async(self, row: Rows, column: str, value: Any) -> Coroutine[Any, Any, None]:
        """``append`` for an event loop, as ``insert_async``."""
    def finalize(self, row: Rows, column: str) -> None: ...
    def finalize_async(self, row: Rows, column: str) -> Coroutine[Any, Any, None]: ...
    def span(self, rows: Rows, /, *, start: int | Sequence[int], version: int) -> None:
        """Says that rows go on under a later version, all of them or none: their tokens from ``start`` on were made under it. One start
        of all rows, or one a row. The last span of a row may be told again.

        Raises InputError for a version or a token that does not follow on those of the last span.
        """
    def trainable_from(self, rows: Rows, start: int | Sequence[int]) -> None:
        """Says that only the tokens of rows from ``start`` on are trained on, all of them or none: how many versions a row is behind is
        counted from these alone. One start of all rows, or one a row. What is masked stays masked."""
    def exclude(self, rows: Rows, reason: str) -> None:
        """Leaves rows out for good, all of them or none."""
    def get(self, *, policy_version: int, sample_id: str) -> RowShown | None:
        """The live row with this identity, with what became of it: which step and gradient used it, or why it was left out. ``None``
        where there is none."""
    def get_async(self, *, policy_version: int, sample_id: str) -> Coroutine[Any, Any, RowShown | None]:
        """``get`` for an event loop, on one of two threads for reads."""
    def show(self, rows: Rows) -> list[RowShown]:
        """The same of rows that are named, one a row, also of those that a later attempt has taken the place of. Each is as it is when it
        is looked at; a server shows 256 in one call. Raises InputError for rows that were deleted."""
    def show_async(self, rows: Rows) -> Coroutine[Any, Any, list[RowShown]]: ...
    def find(self, *, policy_version: int, sample_ids: Sequence[str]) -> Rows:
        """The live rows with these identities, in that order, for instance those of a run that goes on after a crash; a server finds 10,000 in
        one call. Raises InputError for the first that is not there."""
    def cells(self, rows: Rows, column: str, *, partial: bool = False) -> list[Any]:
        """A column of rows, whoever holds them: one value a row, as in ``Batch`` (bfloat16: as float32), numbers as Python's; ``None``
        where a cell is null or not final.

        partial: a cell that still grows is shown as far as it has come.
        """
    def cells_async(self, rows: Rows, column: str, *, partial: bool = False) -> Coroutine[Any, Any, list[Any]]:
        """``cells`` for an event loop, as ``get_async``."""
    def delete(
        self,
        rows: Rows | None = None,
        *,
        version: int | None = None,
        versions_up_to: int | None = None,
        all: bool = False,
        force: bool = False,
    ) -> int:
        """Deletes rows and frees what they hold, all of them or none; gives how many there were. Which ones is said in one way.

        rows: these.
        version, versions_up_to: every row of that version, or of it and all before it. Nothing can be inserted under these again.
        all: every row of the table.
        force: also rows that somebody holds or that a rewind may need, or of the current version.

        A server wants a token with the scope ``admin`` for all but rows without ``force``.
        """
    def counts(self) -> dict[str, Any]:
        """How many rows there are: ``written``, ``consumed``, ``open``, and ``excluded`` by reason."""
    def add_column(self, name: str, type: Type, *, lazy: bool = False) -> None: ...
    def rename_column(self, column: str, name: str) -> None: ...
    def retire_column(self, column: str) -> None: ...

@final
class Changes:
    """Changes over any tables, that are made together: all of them or none. As a context manager, for ``with`` and for ``async with``, they are
    made when the block ends, and given up when it raises:

        with store.changes() as changes:
            asked = changes.insert(solver, policy_version=0, sample_ids=["q1_0_0"], prompt=[[1, 2]])
            changes.write(judged, verdict=["right"])

    Values are read and checked at each call, and may be changed afterwards. Rows that are inserted can be used once the block has ended,
    and raise StateError before; their number is known at once. Leaving the block raises the error of the first change that cannot be
    made, and then none was. Changes are made once: afterwards another call raises StateError, also where they could not be made.
    """

    def insert(
        self,
        table: Table | str,
        batch: Batchlike | None = None,
        /,
        *,
        policy_version: int,
        sample_ids: Iterable[str],
        purpose: Purpose | None = None,
        agent: str | None = None,
        parents: Sequence[str | None] | None = None,
        weights: str | None = None,
        idempotency_tokens: Sequence[int] | None = None,
        version_spans: Sequence[Sequence[tuple[int, int]]] | None = None,
        trainable_from: int | Sequence[int] | None = None,
        rollouts: int = 1,
        next_attempt: bool = False,
        late: bool = False,
        excluded: str | None = None,
        origin: str | None = None,
        **columns: Column,
    ) -> Rows:
        """Begins rows of a table, as ``Table.insert``."""
    def write(self, rows: Rows, batch: Batchlike | None = None, /, **columns: Column) -> None:
        """Turns cells of rows final, as ``Table.write``."""
    def span(self, rows: Rows, /, *, start: int | Sequence[int], version: int) -> None:
        """Says that rows go on under a later version, as ``Table.span``."""
    def trainable_from(self, rows: Rows, start: int | Sequence[int]) -> None:
        """Says from which token on rows are trained on, as ``Table.trainable_from``."""
    def exclude(self, rows: Rows, reason: str) -> None:
        """Leaves rows out for good, as ``Table.exclude``."""
    def expect_group(
        self, consumer: Consumer | str, table: str, key: str, *, policy_version: int, members: int
    ) -> None:
        """Says that a group has exactly so many members, as ``Consumer.expect_group``."""
    def close_group(self, consumer: Consumer | str, table: str, key: str, *, policy_version: int) -> None:
        """Says that nobody more will come to a group, as ``Consumer.close_group``."""
    def close_trajectory(
        self, consumer: Consumer | str, table: str, key: str, trajectory: int, *, policy_version: int
    ) -> None:
        """Says that a trajectory of a group has all its rows, as ``Consumer.close_trajectory``."""
    def apply(self) -> None:
        """Makes the changes now. The end of the block does nothing then."""
    def apply_async(self) -> Coroutine[Any, Any, None]:
        """``apply`` for an event loop, as ``Table.insert_async``."""
    def give_up(self) -> None:
        """Gives the changes up, if they were not made."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Coroutine[Any, Any, Literal[False]]: ...

@final
class Rows:
    """Rows of one table, in order: what an insert, a look-up or a claim gives. Those of the same rows in the same order are equal, whoever
    gave them; those of two stores are not told apart. They are of a store that is open and cannot be pickled: send sample ids and policy
    version, and look the rows up with ``Table.find``."""

    @property
    def table(self) -> str: ...
    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """Rows of one table, one after the other."""
    def __len__(self) -> int: ...
    def __getitem__(self, position: int | slice, /) -> Rows: ...
    def __iter__(self) -> Iterator[Rows]:
        """Row after row, each as the rows that it is alone."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Consumer:
    """A declared class of readers."""

    @property
    def name(self) -> str: ...
    def claim(
        self,
        size: int | None = None,
        *,
        tokens: tuple[str, int] | None = None,
        exact: bool = False,
        timeout: float | None = None,
        owner: str | None = None,
    ) -> Batch:
        """Claims rows for a task, as soon as there are any.

        size: so many rows at most, or one group if that is larger; with ``exact``, no fewer.
        tokens: a column of lists, and how many elements the rows may have together.
        timeout: in seconds; ``None`` waits as long as it takes, 0 does not wait.
        owner: the name by which SQL shows who holds the rows. Default: this process.

        Raises WaitTimeout when there were none in time; StateError for a trainer, whose rows are taken in a step.
        """
    def claim_async(
        self,
        size: int | None = None,
        *,
        tokens: tuple[str, int] | None = None,
        exact: bool = False,
        timeout: float | None = None,
        owner: str | None = None,
    ) -> Coroutine[Any, Any, Batch]:
        """``claim`` for an event loop. The wait has no thread and asks only when it is woken. A task that is cancelled has
        claimed nothing; rows that it has claimed and that nobody takes from it go back."""
    def subscribe(
        self,
        size: int | None = None,
        *,
        tokens: tuple[str, int] | None = None,
        exact: bool = False,
        outstanding: int = 2,
        columns: Sequence[str] | None = None,
        timeout: float | None = None,
        owner: str | None = None,
    ) -> Subscription:
        """The claims of a task as they become ready, for ``for`` and for ``async for``. What may be said of the rows is that of ``claim``.

        outstanding: how many claims may be unsettled at a time: those that are held, and those that a server has sent ahead. More
            come when these are finished or released, or their leases have ended.
        columns: what comes along with a server's claims, so that reading it asks nobody. Default: what is read as a rule.
        timeout: for each claim; ``WaitTimeout`` is raised when none came in time, and the next may be asked for.

        Raises StateError for a trainer, whose rows are taken in a step.
        """
    def open_groups(self) -> list[str]:
        """The keys of the groups that there are and that have not been handed out."""
    def expect_group(self, table: str, key: str, *, policy_version: int, members: int) -> None:
        """Says that a group has exactly so many members, whether they have come or not."""
    def close_group(self, table: str, key: str, *, policy_version: int) -> None:
        """Says that nobody more will come to a group."""
    def close_trajectory(self, table: str, key: str, trajectory: int, *, policy_version: int) -> None:
        """Says that a trajectory of a group has all its rows."""

@final
class Batch:
    """A micro-batch: rows of one table, in the order of their sample ids, that nobody else of this consumer can have.

    It ends by ``finish`` (of a task), ``accumulated`` (of a trainer) or ``release``; one that is dropped gives its rows back.
    What was read from it before stays as it is.
    """

    @property
    def table(self) -> str: ...
    @property
    def consumer(self) -> str: ...
    @property
    def rows(self) -> Rows: ...
    @property
    def sample_ids(self) -> list[str]: ...
    @property
    def step(self) -> int | None: ...
    @property
    def sequence(self) -> int:
        """Its place among its step's micro-batches of the same consumer, from 0."""
    @property
    def epoch(self) -> tuple[int, int]:
        """Incarnation of the store, and number of the claim in it."""
    @property
    def rows_in_gang(self) -> int:
        """How many rows the micro-batch has over all ranks; what a rank's loss is divided by."""
    @property
    def tokens_in_gang(self) -> int:
        """How many elements of the counted column it has over all ranks; 0 where nothing is counted."""
    @property
    def copied_bytes(self) -> int:
        """How many bytes of values were copied so far to show them. What came over a connection is not counted."""
    @property
    def is_held(self) -> bool: ...
    def open_groups(self) -> list[str]:
        """The keys of the groups of which the step will hand out more rows; none for a task, and once all that was planned has been handed
        out. ``batch["group_key"]`` says which groups its own rows are of."""
    def __len__(self) -> int: ...
    def __getitem__(self, column: str, /) -> Any:
        """A column of the rows. Lists and tensors: a list with one read-only numpy array a row, not copied (bfloat16: as
        float32). Bytes: a list of memory views, not copied. Texts: a list of ``str``. Numbers and bools: one array, masked
        where cells are null or not final. In a list those are ``None``.

        Arrays stay valid for as long as they are held, whatever becomes of the batch and of the store.
        """
    def arrow(self, columns: Sequence[str] | None = None, *, in_place: bool = False) -> pyarrow.RecordBatch:
        """Columns of the rows: all that are not lazy, with sample id and version, unless some are named. Texts and bytes are
        not copied; lists and tensors are, into one buffer each. ``in_place``: neither are they where the store is in this
        process, or beside it, and the rows lie in one extent. They are list views then (of tensors: of their elements), over all
        that lies between the first value and the last, so take what is needed before such a batch is sent or kept."""
    def torch(
        self,
        column: str,
        *,
        device: Any = None,
        pad: float = 0.0,
        layout: Literal["padded", "nested", "packed"] = "padded",
    ) -> Any:
        """A column as a torch tensor. Lists: filled up on the right with ``pad``; as a nested tensor; or packed, with
        ``values``, ``cu_seqlens``, ``position_ids`` and ``max_seqlen``. A rank's part without rows gives a tensor without rows, of the
        column's type."""
    def finish(self, **columns: Column) -> None:
        """Completes a task: the columns that it writes and the end of the claim are one record."""
    def finish_async(self, **columns: Column) -> Coroutine[Any, Any, None]:
        """``finish`` for an event loop, as ``Table.insert_async``."""
    def accumulated(self, cache: Any = None) -> None:
        """Says that the gradient of these rows is in the trainer's cache. From now on only the step's commit ends the claim,
        or the loss of the cache.

        cache: what holds the gradient: a list, or something with a list of ``claims`` (as the cache of ``forebay.trainer`` has).
            The micro-batch is listed there, so that a state that is stored from the cache says whose gradients are in it; where this
            raises it is not.
        """
    def accumulated_async(self, cache: Any = None) -> Coroutine[Any, Any, None]:
        """``accumulated`` for an event loop, on one of two threads that no writer and no commit takes. Cancelling the task does not stop it."""
    def extend(self, seconds: float) -> float:
        """Holds the rows for so long from now on, and no shorter than they are held already: for a task that takes longer than a ``lease``.
        Gives the end of that, in seconds since 1970, by the clock of the store. Raises StateError when the lease has ended."""
    def extend_async(self, seconds: float) -> Coroutine[Any, Any, float]:
        """``extend`` for an event loop, as ``accumulated_async``."""
    def release(self) -> None:
        """Gives the rows back, to be claimed again."""
    def release_async(self) -> Coroutine[Any, Any, None]:
        """``release`` for an event loop, as ``accumulated_async``."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Coroutine[Any, Any, Literal[False]]: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Step:
    """An open step: micro-batches, then one commit. Leaving it without one gives it up: its rows go back. In an event loop it is left by
    ``async with``, which waits for a commit that goes on though its task was cancelled, and holds up no other task."""

    @property
    def number(self) -> int: ...
    def micro_batches(
        self,
        consumer: Consumer | str,
        size: int | None = None,
        *,
        tokens: tuple[str, int] | None = None,
        exact: bool | None = None,
        early: int | None = None,
        timeout: float | None = None,
        rank: int | None = None,
        world: int | None = None,
        gang: str = "ranks",
        split: Literal["same", "balanced"] = "same",
    ) -> MicroBatches:
        """The micro-batches of a trainer, each as soon as enough is ready, until all that was planned has been handed out.

        size, tokens, exact: as for ``Consumer.claim``, but exact by default; the last may be smaller.
        early: whatever is ready, members of so many groups among it whose other members have not come yet; of other groups whole ones. For a
            trainer whose gradient does not wait for a group's mean (``forebay.trainer.Early``), and where members that fail take no others
            with them (``member_fails``). Default: whole groups.
        timeout: how long each may take to become ready, in seconds; then WaitTimeout is raised.
        rank, world, gang, split: which rank this is of how many; each rank, in a thread of its own, gets all of each
            micro-batch, or its share of it. One is accumulated when the last rank has said so.
        """
    def is_complete(self, consumer: Consumer | str) -> bool: ...
    def metrics(self) -> dict[str, float]:
        """What the step was like so far. ``forebay/rows``, ``tokens``, ``micro_batches``: of micro-batches that were
        accumulated. ``staleness_mean``, ``staleness_max``: how many versions their rows were behind. ``seconds`` since it
        began, ``seconds_waited`` for micro-batches, all ranks together. ``copied_bytes`` to show values. ``excluded``, and
        ``excluded/REASON``: rows of its tables that were left out since it began.

        Tokens are the lengths of the column that ``tokens=`` names, or else of the one with the role ``input_ids``.
        """
    def drop_cache(self, table: str) -> None:
        """Gives back what has been accumulated for one table: its gradients were lost or dropped. Who was told that others have dropped
        them says so that his part is gone, too, and goes on."""
    def return_lost(self, claims: Iterable[Batch | Sequence[int] | Mapping[str, Any]]) -> int:
        """Gives back the rows of micro-batches of this step whose gradients were lost, those of all ranks, and of no others: what else is
        accumulated stays so. Gives how many rows come again. Micro-batches that have gone back or are of another step are left as they are.

        claims: micro-batches, their epochs, or what a cache lists of them (``Batch.accumulated``). Who has lost all of them calls
            ``drop_cache``.
        """
    def commit(self, updates: Mapping[str, Moved]) -> int:
        """Commits: the rows are consumed, each named policy is one version on, its objects are recorded, all at once. Gives
        the number of rows.

        updates: by policy, the version that it comes to (checked), the objects that hold its new state, both as a tuple, or None. An object
            is bytes, which are stored with the commit, or the number of a version that was set before (``Store.objects``), which is brought
            to the disk first and kept from then on, as long as the policy may stand on it.

        Raises StateError when a micro-batch is neither accumulated nor given back, or a policy is missing or has nothing to
        move for; the step is open as before then.
        """
    def commit_async(self, updates: Mapping[str, Moved]) -> Coroutine[Any, Any, int]:
        """``commit`` for an event loop, on a thread that no writer takes. Cancelling the task does not stop it."""
    def abandon(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Coroutine[Any, Any, None]: ...

@final
class MicroBatches(Iterator[Batch], AsyncIterator[Batch]):
    """An iterator over the micro-batches of one trainer in one step, for ``for`` and for ``async for``. Each is to be
    accumulated or released before the next is asked for."""

    def __next__(self) -> Batch: ...
    def __anext__(self) -> Coroutine[Any, Any, Batch]: ...

@final
class Subscription(Iterator[Batch], AsyncIterator[Batch]):
    """An iterator over the claims of one task, for ``for`` and for ``async for``. It ends when it is closed; as a context manager it is
    closed at the end.

    After a short outage it goes on by itself, and nothing comes twice. After one that was longer than the server's grace, what was held
    has gone back: finishing it raises StateError, and its rows come again. Raises RetryError when the server was away for
    ``outage_timeout``, InputError when the token has expired, ClosedError when the store is closed.
    """

    def __next__(self) -> Batch: ...
    def __anext__(self) -> Coroutine[Any, Any, Batch]: ...
    def close(self) -> None:
        """Ends it, and the waits for its claims. What nobody has taken goes back; batches that are held stay."""
    def __enter__(self) -> Subscription: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Snapshot:
    """One instant of tables. The space of values that it shows is not used again while it is held. It ends with its deadline, when it is
    closed (as a context manager at the end), and with its store; reading it raises StateError then. What was read stays."""

    @property
    def commit(self) -> int:
        """How many records made what it shows: of two snapshots the one with more is the later."""
    @property
    def deadline(self) -> float:
        """When it ends, in seconds since 1970, by the clock of the store."""
    @property
    def tables(self) -> list[str]: ...
    def table(self, name: str) -> SnapshotTable: ...
    def extend(self, seconds: float) -> float:
        """Holds it for so many seconds from now, and no shorter than it is held already. Gives the new deadline."""
    def extend_async(self, seconds: float) -> Coroutine[Any, Any, float]:
        """``extend`` for an event loop, as ``Batch.extend_async``."""
    def close(self) -> None: ...
    def __enter__(self) -> Snapshot: ...
    def __exit__(self, *exception: object) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Snapshot]: ...
    def __aexit__(self, *exception: object) -> Coroutine[Any, Any, None]: ...

@final
class SnapshotTable:
    """A table of a snapshot. Its length is how many rows it has, excluded and superseded ones too."""

    @property
    def name(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def current_version(self) -> int:
        """The policy's version at the instant of the snapshot."""
    def __len__(self) -> int: ...
    def versions(self) -> dict[int, int]:
        """How many rows there are of each policy version."""
    def versions_async(self) -> Coroutine[Any, Any, dict[int, int]]: ...
    def arrow(
        self, columns: Sequence[str] | None = None, *, version: int | None = None, by_arrival: bool = False
    ) -> pyarrow.Table:
        """Rows: all columns that are not lazy unless some are named, meta, data or status; all rows unless a policy version is given;
        by version and sample id, or in the order in which they came."""
    def arrow_async(
        self, columns: Sequence[str] | None = None, *, version: int | None = None, by_arrival: bool = False
    ) -> Coroutine[Any, Any, pyarrow.Table]:
        """``arrow`` for an event loop, as ``Store.snapshot_async``."""
    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        version: int | None = None,
        by_arrival: bool = False,
        size: int | None = None,
    ) -> SnapshotReader:
        """The same batch by batch, each read when it is asked for: of ``size`` rows at most (default 4,096), and fewer where their values
        would have more than 16 MiB. Where there is no row, one batch without. For ``for`` and for ``async for``: a batch that a task
        waited for when it was cancelled is the next of ``async for``."""

@final
class SnapshotReader(Iterator[pyarrow.RecordBatch], AsyncIterator[pyarrow.RecordBatch]):
    def __next__(self) -> pyarrow.RecordBatch: ...
    def __anext__(self) -> Coroutine[Any, Any, pyarrow.RecordBatch]: ...

@final
class Answer:
    """The rows that a question gave."""

    @property
    def columns(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def arrow(self) -> pyarrow.Table: ...
    def to_pandas(self) -> pandas.DataFrame: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class RecordBatch:
    """A record batch, for whoever takes Arrow by its C interface."""

    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class View:
    """Read-only bytes of one value, with the buffer protocol: what arrays stand on."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Bell:
    """What wakes the waits of one event loop. Not for callers."""

    def fileno(self) -> int: ...
    def heard(self) -> list[int]: ...

@final
class Pending:
    """A wait of an event loop. Not for callers."""

    @property
    def timeout(self) -> float | None: ...
    def poll(self, bell: Bell, number: int) -> tuple[Any] | None: ...
    def cancel(self) -> None: ...
    def expire(self) -> NoReturn: ...


@final
class ObjectCalls:
    """The calls under ``forebay.objects``."""

    def begin(
        self, key: str, tensors: Sequence[tuple[str, str, str, Sequence[int]]], expected: int | None, published: bool
    ) -> ObjectFilling: ...
    def commit_together(self, fillings: Sequence[ObjectFilling]) -> int: ...
    def get(self, key: str, version: int | None, tier: str) -> HeldObject: ...
    def get_together(self, keys: Sequence[str]) -> list[HeldObject]: ...
    def wait(self, key: str, at_least: int | None, tier: str, timeout: float | None) -> HeldObject: ...
    def wait_async(self, key: str, at_least: int | None, tier: str, timeout: float | None) -> Awaitable[HeldObject]: ...
    def list(self) -> list[tuple[str, int, int, int, list[str], int, bool, int, dict[str, str]]]: ...
    def delete(self, key: str, version: int) -> bool: ...
    def spill(self, key: str, version: int | None) -> int: ...
    def demote(self, key: str, version: int | None) -> int: ...
    def exchange(self, out: tuple[str, int | None], into: tuple[str, int | None]) -> tuple[int, int, bool]: ...

@final
class ObjectFilling:
    def write(self, tensor: str, offset: int, bytes: bytes) -> None: ...
    def metadata(self, metadata: Mapping[str, str]) -> None: ...
    def commit(self, version: int | None, expected: int | None) -> int: ...
    def fail(self, reason: str) -> None: ...
    def abandon(self) -> None: ...

@final
class HeldObject:
    @property
    def key(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    def tensors(self) -> list[tuple[str, str, str, list[int]]]: ...
    def bytes(self, tensor: str, rows: tuple[int, int] | None) -> Any: ...
    def verify(self) -> None: ...
    def done(self) -> None: ...
    def release(self) -> None: ...

@final
class LeasedView:
    """Read-only bytes of a tensor, where they lie. As long as it lives its version is held, whatever becomes of the store."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
