"""Micro-batches to the device of the model.

On a CUDA device the tables of a micro-batch are packed into one block of pinned memory and copied at once, on a stream of its own,
while the model computes on the one before. Blocks are kept: after the first few nothing is pinned any more. On the CPU the tables are
where they have to be.

Invariants, on a CUDA device
- A block is written to only when its last copy has ended: its event says so.
- The stream of the model waits for the copy before it reads, and the tables' memory is not given to others before that stream is done
  with it (``record_stream``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from .batch import MicroBatch
from .layout import ALIGNMENT_BYTES

__all__ = ["Staging"]


class Staging:
    """Brings micro-batches to a device, one ahead of the one that is computed on.

    device: where to.
    depth: how many blocks of pinned memory there are; so many copies less one are under way at a time.
    """

    def __init__(self, device: torch.device, depth: int = 2) -> None:
        self.device, self.depth = device, max(2, depth)
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._blocks: deque[_Block] = deque(_Block() for _ in range(self.depth))

    @property
    def pinned_bytes(self) -> int:
        """How much memory is pinned."""
        return sum(block.memory.numel() for block in self._blocks if block.memory is not None)

    def stage(self, tables: Iterable[MicroBatch]) -> Iterator[MicroBatch]:
        """The micro-batches on the device, in their order. The copy of the next is under way when one is given."""
        if self._stream is None:
            for table in tables:
                yield _moved(table, {name: tensor.to(self.device) for name, tensor in table.tensors().items()})
            return
        ahead: deque[tuple[MicroBatch, Any]] = deque()
        for table in tables:
            ahead.append(self._copy(table))
            if len(ahead) == self.depth:
                yield self._arrived(*ahead.popleft())
        while ahead:
            yield self._arrived(*ahead.popleft())

    def _copy(self, table: MicroBatch) -> tuple[MicroBatch, Any]:
        if self._is_there(table):
            return table, None
        places, length = _packed(table)
        block = self._blocks[0]
        self._blocks.rotate(-1)
        memory = block.writable(length)
        for name, tensor in table.tensors().items():
            start, end = places[name]
            memory[start:end].view(tensor.dtype).copy_(tensor.reshape(-1))
        with torch.cuda.stream(self._stream):
            there = memory[:length].to(self.device, non_blocking=True, copy=True)
            block.copied = torch.cuda.Event()
            block.copied.record(self._stream)
        tensors = {
            name: there[slice(*places[name])].view(tensor.dtype).view(tensor.shape)
            for name, tensor in table.tensors().items()
        }
        return _moved(table, tensors), (there, block.copied)

    def _is_there(self, table: MicroBatch) -> bool:
        return table.input_ids.device == self.device

    def _arrived(self, table: MicroBatch, copy: tuple[torch.Tensor, Any] | None) -> MicroBatch:
        if copy is None:  # it was there already
            return table
        memory, copied = copy
        reader = torch.cuda.current_stream(self.device)
        reader.wait_event(copied)
        memory.record_stream(reader)
        return table


class _Block:
    """Pinned memory, and the end of the last copy out of it."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None
        self.copied: Any = None

    def writable(self, length: int) -> torch.Tensor:
        if self.copied is not None:
            self.copied.synchronize()
        if self.memory is None or self.memory.numel() < length:
            rounded = 1 << max(16, (length - 1).bit_length())
            self.memory = _pinned(rounded)
        return self.memory


def _pinned(length: int) -> torch.Tensor:
    return torch.empty(length, dtype=torch.uint8, pin_memory=True)


def _packed(table: MicroBatch) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each tensor of a micro-batch lies in a block, in bytes, and how long they are together."""
    places, at = {}, 0
    for name, tensor in table.tensors().items():
        places[name] = (at, at + tensor.numel() * tensor.dtype.itemsize)
        at = -(-places[name][1] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return places, at


def _moved(table: MicroBatch, tensors: dict[str, torch.Tensor]) -> MicroBatch:
    return replace(table, **tensors)  # type: ignore[arg-type]
