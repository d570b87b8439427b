"""An experience store for reinforcement learning of language-model agents: embedded, or behind a server.

    import forebay

    with forebay.open("run/store") as store:
        solver = store.create_table("solver", {"prompt": "list<int32>", "reward": "float32"})
        rows = solver.insert(policy_version=0, sample_ids=["q1_0_0", "q1_0_1"], prompt=[[1, 2], [3]])
        solver.write(rows, reward=[1.0, 0.0])
        print(store.sql("select count(*) as rows from solver").to_pylist())

Begin with :func:`open`, or with :func:`connect` where a server has the store; ``docs/python.md`` of the repository has the loop of a trainer.
"""

import atexit
import weakref

from . import errors
from ._forebay import __version__ as __version__
from ._forebay import (
    Admin,
    Answer,
    Batch,
    Changes,
    Consumer,
    MicroBatches,
    RecordBatch,
    Rows,
    Snapshot,
    SnapshotTable,
    Step,
    Store,
    Subscription,
    Table,
    View,
)
from ._forebay import connect as _connect
from ._forebay import open as _open
from .errors import (
    CapacityError,
    ClosedError,
    CorruptError,
    Error,
    InputError,
    RetryError,
    StateError,
    WaitTimeout,
)

__all__ = [
    "Admin",
    "Answer",
    "Batch",
    "CapacityError",
    "Changes",
    "ClosedError",
    "Consumer",
    "CorruptError",
    "Error",
    "InputError",
    "MicroBatches",
    "RecordBatch",
    "RetryError",
    "Rows",
    "Snapshot",
    "SnapshotTable",
    "StateError",
    "Step",
    "Store",
    "Subscription",
    "Table",
    "View",
    "WaitTimeout",
    "connect",
    "errors",
    "open",
]

_opened: "weakref.WeakSet[Store]" = weakref.WeakSet()


def open(path, **options):
    store = _open(path, **options)
    _opened.add(store)
    return store


def connect(address, **options):
    store = _connect(address, **options)
    _opened.add(store)
    return store


open.__doc__, connect.__doc__ = _open.__doc__, _connect.__doc__


@atexit.register
def _close_all() -> None:
    """What the level ``memory`` has not written yet outlives an orderly end of the process, and servers hear of it at once."""
    for store in list(_opened):
        store.close()
