"""Fetches of an event loop. Each has a thread of its own, so that no number of them keeps others from putting what they wait for.

A task that is cancelled has taken nothing: its fetch looks whether it is given up before it takes samples, and gives back what it took where
that was decided meanwhile. Its thread ends soon; a process that ends waits for it, or what it gives back would be lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import TypeVar

from ..errors import WaitTimeout

IsOver = Callable[[], bool]
Given = TypeVar("Given")


class FetchTimeout(WaitTimeout, RuntimeError):
    """There were not enough samples in time. TransferQueue's client raises a RuntimeError then, of the store's errors it is a WaitTimeout."""


class GivenUp(CancelledError):
    """Nobody waits for this fetch any more. It has taken nothing."""


def refuse_given_up(is_over: IsOver | None) -> None:
    if is_over is not None and is_over():
        raise GivenUp


async def fetched(fetch: Callable[[IsOver], Given], give_back: Callable[[Given], None]) -> Given:
    """What a fetch gives, which asks whether it is given up.

    give_back: what becomes of what was fetched where the task was cancelled too late for the fetch to see it.
    """
    coming: Future[Given] = Future()  # never said to run, so that it is either cancelled or has an outcome
    _thread(_deliver, coming, fetch, give_back)
    try:
        return await asyncio.wrap_future(coming)
    except asyncio.CancelledError:
        if not coming.cancel() and coming.exception() is None:
            _thread(give_back, coming.result())
        raise


def _deliver(coming: Future[Given], fetch: Callable[[IsOver], Given], give_back: Callable[[Given], None]) -> None:
    try:
        given = fetch(coming.cancelled)
    except BaseException as error:
        _settle(lambda: coming.set_exception(error))
        return
    if not _settle(lambda: coming.set_result(given)):
        give_back(given)


def _settle(settle: Callable[[], None]) -> bool:
    """False where it was cancelled before."""
    try:
        settle()
    except InvalidStateError:
        return False
    return True


def _thread(call: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=call, args=arguments, name="forebay-fetch").start()
