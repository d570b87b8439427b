"""Waiting for a name to appear in a directory, by inotify of Linux: whoever makes the name wakes the waiter.

The file system of another machine (NFS, say) tells of nothing that others do there, so waiters look for themselves now and then.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["watched"]

_CREATE, _MOVED_TO, _ONLYDIR = 0x100, 0x80, 0x01000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def watched(directory: str | os.PathLike[str]) -> Iterator[Callable[[float], None]]:
    """Listens from now on. Gives a function that waits for the next name in the directory, or so many seconds."""
    listener = _checked(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), directory)
    try:
        _checked(_LIBC.inotify_add_watch(listener, os.fsencode(directory), _CREATE | _MOVED_TO | _ONLYDIR), directory)

        def wait(timeout_s: float) -> None:
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            if poll.poll(timeout_s * 1000):
                os.read(listener, 1 << 16)  # which names, the caller sees when it looks

        yield wait
    finally:
        os.close(listener)


def _checked(result: int, directory: str | os.PathLike[str]) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(directory))
    return result
