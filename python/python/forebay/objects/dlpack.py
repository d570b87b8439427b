"""A tensor on its way to another library, by DLPack."""

from __future__ import annotations

from typing import Any

__all__ = ["Exported"]

_HOST = (1, 0)
"""kDLCPU, and the only one of its kind."""


class Exported:
    """A held tensor that any library with ``from_dlpack`` takes: a copy of its own, or the store's memory where that was asked for.

    Shared, it goes as read-only, which only DLPack 1.0 can say, and keeps its version for as long as it is used; who speaks no DLPack
    1.0 gets a copy. The flag binds nobody: torch takes no notice of it, and what lies in a store never changes. Hence the copy.
    """

    def __init__(self, array: Any, shared: bool) -> None:
        self._array, self._shared = array, shared

    def __dlpack_device__(self) -> tuple[int, int]:
        return _HOST

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != _HOST:
            raise BufferError(f"the tensor lies in host memory {_HOST}, not on {tuple(dl_device)}; copy it there")
        speaks = max_version is not None and max_version[0] >= 1
        if copy is not True and self._shared and speaks:
            given = _versioned(self._array, max_version)
            if given is not None:
                return given
        if copy is False:
            raise BufferError(
                "the store's memory goes to nobody without a copy, except by dlpack(name, shared=True) to who speaks DLPack 1.0"
            )
        own = self._array.copy()
        given = _versioned(own, max_version) if speaks else None
        return own.__dlpack__() if given is None else given


def _versioned(array: Any, max_version: tuple[int, int] | None) -> Any:
    """What tells whether it may be written; none of a numpy before 2.1, which cannot."""
    try:
        return array.__dlpack__(max_version=max_version)
    except TypeError:
        return None
