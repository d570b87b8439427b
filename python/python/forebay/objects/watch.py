"""News of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .version import Version

if TYPE_CHECKING:
    from .handle import Objects

__all__ = ["Watch"]


class Watch:
    """New versions of a key, the newest each time: an iterator, and an asynchronous one. Versions that were followed by others before
    somebody looked are passed over."""

    def __init__(self, objects: Objects, key: str, seen: int) -> None:
        self._objects, self._key = objects, key
        self.seen = seen
        """The newest version that it has told of."""

    def next(self, timeout: float | None = None) -> Version:
        """The newest version, once it is newer than the last that was told. WaitTimeout when the time is over."""
        held = self._objects.get(self._key, at_least=self.seen + 1, timeout=timeout)
        self.seen = held.version
        return held

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Version:
        return self.next()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Version:
        held = await self._objects.get_async(self._key, self.seen + 1)
        self.seen = held.version
        return held
