"""Whose turn it is to look at the queue and to change it.

In one process that is a lock. Of a server's store it is a claim besides: one row that a task takes and gives back. So a process
that ends, or whose host does, gives its turn back, and the next finds what it has done whole or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from .._forebay import Batch, Store
from ..errors import InputError, StateError

_NAME = "transfer_queue_turn"
_LOOK_EVERY = 0.1
"""How often who waits for samples looks for those of other processes, in seconds."""


class Turn:
    """Reentrant. ``refresh`` is called at the beginning of a turn that others may have had in between.

    store: the store; of a server where it has an address.
    timeout: how many seconds to wait for the others.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._depth, self._timeout = 0, timeout
        self._claim: Batch | None = None
        self._last: tuple[int, int] | None = None
        self.refresh: Callable[[], None] = lambda: None
        self._task = _task(store) if store.address is not None else None

    def __enter__(self) -> Turn:
        self._lock.acquire()
        try:
            if self._depth == 0:
                self._take()
            self._depth += 1
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        try:
            if self._depth == 0:
                self._give()
        finally:
            self._lock.release()

    def changed(self) -> None:
        """Wakes who waits in this process."""
        self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Lets others have the turn for a while, within a turn; False where no time is left for that."""
        if seconds <= 0:
            return False
        depth, self._depth = self._depth, 0
        self._give()
        try:
            self._changed.wait(seconds if self._task is None else min(seconds, _LOOK_EVERY))
        finally:
            self._depth = depth
            self._take()
        return True

    def _take(self) -> None:
        if self._task is None:
            return
        claim = self._task.claim(size=1, timeout=self._timeout)
        try:
            incarnation, number = claim.epoch
            if self._last != (incarnation, number - 1):
                self.refresh()
        except BaseException:
            claim.release()
            raise
        self._claim, self._last = claim, (incarnation, number)

    def _give(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()


def _task(store: Store):
    """The task whose one row is the turn."""
    try:
        table = store.create_table(_NAME, {"taken": "bool"})
    except (InputError, StateError):
        table = store.table(_NAME)  # another process has made it
    try:
        table.insert(policy_version=0, sample_ids=["turn_0_0"], taken=[False])
    except StateError:
        pass  # it is there
    try:
        return store.create_consumer(_NAME, tables=[_NAME], kind="task", ready=["taken"])
    except (InputError, StateError):
        return store.consumer(_NAME)
