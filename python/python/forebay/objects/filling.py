"""A version that is being filled."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .arguments import whole
from .tensors import TensorSpec, memory_of, number, spec_of

if TYPE_CHECKING:
    from .._forebay import ObjectFilling

__all__ = ["Filling"]

PIECE_BYTES = 8 << 20
"""How much is copied at a time on its way in."""


class Filling:
    """A version that is being filled. Nobody sees it before its commit; leaving the ``with`` without one gives it up."""

    def __init__(self, filling: ObjectFilling, specs: dict[str, TensorSpec]) -> None:
        self._filling = filling
        self.specs = specs

    def write(self, name: str, tensor: Any, *, row: int = 0) -> None:
        """Fills a tensor, or some of its rows from ``row`` on, with an array or tensor of the same type and the shape of those rows."""
        spec = self.specs.get(name)
        if spec is None:
            raise InputError(f"the version has no tensor {name!r}; it has {', '.join(self.specs)}")
        row = whole("row", row)
        found = spec_of(name, tensor, spec.memory_class)
        rows = found.shape[0] if found.shape else 0
        is_part = len(found.shape) == len(spec.shape) > 0 and found.shape[1:] == spec.shape[1:] and row + rows <= spec.shape[0]
        if found.dtype != spec.dtype or not (is_part or (row == 0 and found.shape == spec.shape)):
            raise InputError(
                f"tensor {name!r} is {spec.dtype} {list(spec.shape)}, and {found.dtype} {list(found.shape)} from row {row} on was given"
            )
        start = row * (spec.bytes // spec.shape[0]) if row else 0
        memory = memory_of(tensor)
        for at in range(0, len(memory), PIECE_BYTES):
            self._filling.write(name, start + at, bytes(memory[at : at + PIECE_BYTES]))

    def commit(self, *, version: int | None = None, expected: int | None = None) -> int:
        """Makes it the key's newest version, and gives its number. After a conflict it may be committed again with what is ``expected``
        now."""
        return self._filling.commit(number("version", version), number("expected", expected))

    def fail(self, reason: str) -> None:
        """Gives it up, and tells those who wait for a version of the key why."""
        self._filling.fail(reason)

    def __enter__(self) -> Filling:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._filling.abandon()
