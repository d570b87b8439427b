"""Whose turn it is to look at the queue and to change it.

In one process that is a lock. Of a server's store it is a claim besides: one row that a task takes and gives back. So a process
that ends, or whose host does, gives its turn back. A turn may also end by itself, when the server comes back or a lease ends: what is
changed in it after that is refused where others have changed the queue meanwhile (:mod:`._log`), and the call is made again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from .._forebay import Batch, Store
from ..errors import Error, InputError, StateError
from ._log import Overtaken, refuse_forbidden

_NAME = "transfer_queue_turn"
_LOOK_EVERY = 0.1
"""How often who waits for samples looks for those of other processes, and whether an event loop still wants them, in seconds."""

Given = TypeVar("Given")


class Turn:
    """Reentrant. ``refresh`` is called at the beginning of a turn where ``is_behind`` says that the queue was changed, or it was told
    to look anew.

    store: the store; of a server where it has an address.
    timeout: how many seconds to wait for the others.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._depth, self._timeout = 0, timeout
        self._claim: Batch | None = None
        self._last: tuple[int, int] | None = None
        self.is_stale = True
        """Whether what is known may not be what is there: a change was not finished."""
        self.refresh: Callable[[], None] = lambda: None
        self.is_behind: Callable[[], bool] = lambda: True
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

    def make(self, call: Callable[[], Given]) -> Given:
        """Makes a call within a turn; in another one, when others have changed the queue in this one."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                with self:
                    return call()
            except Overtaken as error:
                self.is_stale = True
                if time.monotonic() > end:
                    raise StateError(
                        f"others changed the queue each time within {self._timeout} s, so nothing was changed: {error}"
                    ) from error

    def changed(self) -> None:
        """Wakes who waits in this process."""
        self._changed.notify_all()

    def wait(self, seconds: float, is_over: Callable[[], bool] | None = None) -> bool:
        """Lets others have the turn until the queue was changed, or the wait is over, within a turn; False where no time is left for that."""
        if seconds <= 0:
            return False
        end, (depth, self._depth) = time.monotonic() + seconds, (self._depth, 0)
        try:
            self._give()
            if self._task is None and is_over is None:
                self._changed.wait(seconds)
            else:
                self._look(end, is_over)
        finally:
            self._depth = depth
            self._take()
        return True

    def _look(self, end: float, is_over: Callable[[], bool] | None) -> None:
        """Looks for what nobody wakes it for: changes of other processes, and the end of the wait itself."""
        while (left := end - time.monotonic()) > 0:
            if self._changed.wait(min(left, _LOOK_EVERY)) or (is_over is not None and is_over()):
                return
            if self._task is not None and self.is_behind():
                return

    def _take(self) -> None:
        try:
            if self._task is not None:
                self._claim = self._task.claim(size=1, timeout=self._timeout)
                incarnation, number = self._claim.epoch
                # Who had the turn last has seen all. What was claimed in between may have nothing to do with the queue.
                self.is_stale = self.is_stale or (self._last != (incarnation, number - 1) and self.is_behind())
                self._last = incarnation, number
            if self.is_stale:
                self.refresh()
                self.is_stale = False
        except BaseException:
            self.is_stale = True
            self._give()
            raise

    def _give(self) -> None:
        claim, self._claim = self._claim, None
        try:
            if claim is not None:
                claim.release()
        except Error:
            # It has ended by itself, or will with the connection. What was changed in it stays changed, and others may have it by now.
            self.is_stale = True


def _task(store: Store):
    """The task whose one row is the turn."""
    try:
        table = store.create_table(_NAME, {"taken": "bool"})
    except (InputError, StateError) as error:
        refuse_forbidden(error)
        table = store.table(_NAME)  # another process has made it
    try:
        table.insert(policy_version=0, sample_ids=["turn_0_0"], taken=[False])
    except StateError:
        pass  # it is there
    try:
        return store.create_consumer(_NAME, tables=[_NAME], kind="task", ready=["taken"])
    except (InputError, StateError) as error:
        refuse_forbidden(error)
        return store.consumer(_NAME)
