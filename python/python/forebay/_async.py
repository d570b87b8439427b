"""Waits of an asyncio event loop. None has a thread, and none asks before it was woken.

A wait has a number and looks once. The store's own wake-up then rings the bell of the loop (a socket that the loop watches)
with that number, and the wait looks again; what it claims goes to the task without another pause, so that a task which is
cancelled has claimed nothing. Calls that are no waits for rows but may block (for room, for a sync, for a server that reads) run on a few
threads. A forked child begins with threads of its own.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ._forebay import Bell, Pending, SnapshotReader, Step

WRITERS, COMMITTERS, HOLDERS, READERS = 4, 2, 2, 2
"""How many threads there are at most for calls of each kind. Writers may wait for room that only a commit can make, so commits
have threads of their own. So have the calls of who holds something, for a commit wants its rows accumulated and a lease does not wait, and
reads, which wait for neither."""

COMMITTING = frozenset({"abandon", "commit", "sync"})
HOLDING = frozenset({"Batch.__exit__", "accumulated", "close", "extend", "release", "step"})
READING = frozenset({"arrow", "cells", "get", "replay", "show", "snapshot", "versions"})
"""The calls of each kind, by name; all others are writers'."""

_writers: ThreadPoolExecutor
_committers: ThreadPoolExecutor
_holders: ThreadPoolExecutor
_readers: ThreadPoolExecutor
_commits: weakref.WeakKeyDictionary[Step, Future[None]]
"""When the commit is over that each step was told last to make."""
_untaken: weakref.WeakKeyDictionary[SnapshotReader, list[Future[Any]]]
"""What readers of snapshots were asked for by tasks that were cancelled meanwhile: the next batch of each."""


def _begin_threads() -> None:
    """Makes the pools, which begin a thread when there is work for it. A forked child has the pools of its parent without their threads:
    calls that it gives to them would wait for ever."""
    global _writers, _committers, _holders, _readers, _commits, _untaken
    _writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="forebay-write")
    _committers = ThreadPoolExecutor(COMMITTERS, thread_name_prefix="forebay-commit")
    _holders = ThreadPoolExecutor(HOLDERS, thread_name_prefix="forebay-hold")
    _readers = ThreadPoolExecutor(READERS, thread_name_prefix="forebay-read")
    _commits = weakref.WeakKeyDictionary()
    _untaken = weakref.WeakKeyDictionary()


_begin_threads()
os.register_at_fork(after_in_child=_begin_threads)


class _Waits:
    """The waits of one loop."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.asleep: dict[int, asyncio.Future[bool]] = {}
        self.begun = 0
        self.open = 0

    def begin(self, loop: asyncio.AbstractEventLoop) -> int:
        if self.open == 0:
            loop.add_reader(self.bell.fileno(), self.hear)
        self.open += 1
        self.begun += 1
        return self.begun

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        self.open -= 1
        if self.open == 0:
            loop.remove_reader(self.bell.fileno())

    def hear(self) -> None:
        for number in self.bell.heard():
            _settle(self.asleep.get(number), True)

    async def sleep(self, loop: asyncio.AbstractEventLoop, number: int, end: float | None) -> bool:
        """Until the bell rings; false when the time is over."""
        rung = self.asleep[number] = loop.create_future()
        alarm = None if end is None else loop.call_at(end, _settle, rung, False)
        try:
            return await rung
        finally:
            del self.asleep[number]
            if alarm is not None:
                alarm.cancel()


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waits] = weakref.WeakKeyDictionary()


def _settle(rung: asyncio.Future[bool] | None, how: bool) -> None:
    if rung is not None and not rung.done():
        rung.set_result(how)


async def wait(pending: Pending) -> Any:
    """What a wait comes to. Raises WaitTimeout when its time is over."""
    loop = asyncio.get_running_loop()
    waits = _of_loops.get(loop)
    if waits is None:
        waits = _of_loops[loop] = _Waits()
    end = None if pending.timeout is None else loop.time() + pending.timeout
    number = waits.begin(loop)
    try:
        while (found := pending.poll(waits.bell, number)) is None:
            if not await waits.sleep(loop, number, end):
                found = pending.poll(waits.bell, number)  # what came while the alarm was on its way
                break
        if found is None:
            return pending.expire()
        return found[0]
    finally:
        waits.end(loop)
        pending.cancel()


async def next_batch(pending: Pending) -> Any:
    """The next micro-batch of an ``async for``."""
    batch = await wait(pending)
    if batch is None:
        raise StopAsyncIteration
    return batch


async def entered(manager: Any) -> Any:
    """What an ``async with`` is given whose beginning waits for nothing."""
    return manager


async def in_thread(call: Callable[..., Any], arguments: tuple, keywords: dict[str, Any] | None) -> Any:
    """What a call gives that may block. A task that is cancelled meanwhile does not stop the call: it is done whole."""
    name = call.__name__
    made = _pool_of(call).submit(lambda: call(*arguments, **(keywords or {})))
    if name == "commit":
        over: Future[None] = Future()  # not what it comes to: the frames of an error hold the step
        made.add_done_callback(lambda _: over.set_result(None))
        _commits[call.__self__] = over  # type: ignore[attr-defined]
    try:
        # A question that nobody waits for any more need not be asked. Anything else is done, also where no thread has come to it yet.
        awaited = asyncio.wrap_future(made)
        return await (awaited if name in READING else asyncio.shield(awaited))
    except asyncio.CancelledError:
        if name == "step":  # nobody has it
            made.add_done_callback(_give_up)
        raise


def _pool_of(call: Callable[..., Any]) -> ThreadPoolExecutor:
    names = {call.__name__, call.__qualname__}
    if names & COMMITTING:
        return _committers
    if names & HOLDING:
        return _holders
    return _readers if names & READING else _writers


def _give_up(begun: Future[Any]) -> None:
    if begun.exception() is None:
        _committers.submit(begun.result().abandon)


async def left(step: Step) -> None:
    """Gives a step up at the end of its ``async with``. A commit whose task was cancelled goes on, and comes first: else it would be chance
    which of the two finds the step. The step is given up also where this is cancelled."""
    over: Future[None] = Future()

    def give_up(_: object) -> None:
        try:
            _committers.submit(step.abandon).add_done_callback(lambda _: over.set_result(None))
        except RuntimeError:  # the interpreter ends, and gives out no more work
            try:
                step.abandon()
            finally:
                over.set_result(None)

    if (commit := _commits.pop(step, None)) is None:
        give_up(None)
    else:
        commit.add_done_callback(give_up)
    await asyncio.shield(asyncio.wrap_future(over))


async def next_read(reader: SnapshotReader) -> Any:
    """The next batch of an ``async for`` over the rows of a snapshot. What a task asked for that was cancelled meanwhile is given to who asks
    next, so that no batch is passed over."""
    untaken = _untaken.pop(reader, [])
    reading = untaken.pop(0) if untaken else _readers.submit(next, reader, None)
    if untaken:
        _untaken[reader] = untaken
    try:
        batch = await asyncio.wrap_future(reading)
    except asyncio.CancelledError:
        if not reading.cancel():  # it is being read, or was
            _untaken.setdefault(reader, []).append(reading)
        raise
    if batch is None:
        raise StopAsyncIteration
    return batch
