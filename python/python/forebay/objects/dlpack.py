"""A tensor on its way to another library, by DLPack."""

from __future__ import annotations

from typing import Any

__all__ = ["Exported"]

_HOST = (1, 0)
"""kDLCPU, and the only one of its kind."""


class Exported:
    """A held tensor that any library with ``from_dlpack`` takes.

    Who speaks DLPack 1.0, which can say that memory is read-only, gets the store's memory itself, and keeps its version for as long
    as that is used. All others get a copy of their own: they could write, and what lies in a store never changes.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

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
        if not copy and max_version is not None and max_version[0] >= 1:
            try:
                return self._array.__dlpack__(max_version=max_version)
            except TypeError:  # numpy before 2.1, which knows no such version
                pass
        if copy is False:
            raise BufferError("the tensor's memory is read-only, which only DLPack 1.0 can say; take a copy")
        return self._array.copy().__dlpack__()
