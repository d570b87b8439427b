"""The processes that train one policy together: what they tell each other, and sums whose bits do not depend on who is first.

A sum over ranks is made in one place: each rank owns a piece of every chunk, gets that piece of all ranks, adds them in the order of ranks
and gives the result to all. So every rank has the same bits, each time, and sends twice the buffer whatever the number of ranks. The
reduction of the library may add in another order on another day, and on each rank in another.

Every exchange ends in ``timeout_s``, with RankLostError where a rank has died or is late. The group is of no use after that; the trainer
is as it was, but for one that was taking over another rank's weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed

from ..errors import InputError
from .errors import RankLostError

__all__ = ["Ranks"]

_CHUNK_ELEMENTS = 1 << 20
"""How much is added at once: what is sent, got and added stays in a processor's cache."""

_UNCHANGED = "nothing was changed here: make a new group, join() it and commit again"


class Ranks:
    """A process group of torch, as a trainer uses it: gloo, or nccl where the weights lie on a CUDA device.

    group: of ``torch.distributed``. Default: a new one of all ranks of ``init_process_group``, whose limit of time is ``timeout_s``, too;
        all ranks make it together. A group of one's own with a longer limit keeps ``destroy_process_group`` waiting for as long.
    timeout_s: how long one exchange may take.
    """

    def __init__(self, group: Any = None, *, timeout_s: float = 300.0) -> None:
        if not distributed.is_available() or not distributed.is_initialized():
            raise InputError("there is no process group; call torch.distributed.init_process_group('gloo') in every rank first")
        if not timeout_s > 0:
            raise InputError(f"timeout_s={timeout_s!r} is no time")
        self.timeout_s = timeout_s
        self.group = group
        if group is None:
            with self._told("it could not make a group"):
                self.group = distributed.new_group(timeout=timedelta(seconds=timeout_s))
        self.rank, self.world = distributed.get_rank(group), distributed.get_world_size(group)
        if self.rank < 0:
            raise InputError("this process is no rank of the group")
        self._is_nccl = "nccl" in distributed.get_backend(group)

    def key(self, key: str) -> str:
        """Where this rank stores a state of its own: gradients in a cache are each rank's own."""
        return f"{key}/rank-{self.rank}-of-{self.world}"

    def exchange(self, told: Any) -> list[Any]:
        """What each rank tells, in the order of ranks: anything that JSON holds. All ranks call."""
        text = torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)
        lengths = self._gathered(torch.tensor([len(text)]))
        padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
        padded[: len(text)] = text
        rows = self._gathered(padded)
        return [json.loads(row[:length].numpy().tobytes()) for row, length in zip(rows, lengths.flatten().tolist())]

    def sum(self, flat: torch.Tensor, out: torch.Tensor) -> None:
        """Adds the buffers of all ranks, in the order of ranks, into another one. All ranks call, with as many elements."""
        for start in range(0, flat.numel(), _CHUNK_ELEMENTS):
            chunk = flat[start : start + _CHUNK_ELEMENTS]
            piece = -(-chunk.numel() // self.world)
            mine = torch.zeros(piece * self.world, dtype=flat.dtype, device=self._device(flat))
            mine[: chunk.numel()].copy_(chunk)
            theirs = torch.empty_like(mine)
            with self._told():
                self._wait(distributed.all_to_all_single(theirs, mine, group=self.group, async_op=True))
            total = theirs[:piece].clone()
            for rank in range(1, self.world):
                total.add_(theirs[rank * piece : (rank + 1) * piece])
            out[start : start + chunk.numel()].copy_(self._gathered(total).view(-1)[: chunk.numel()])

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Gives every rank the bytes of one rank's tensor. All ranks call, with tensors of one type and shape."""
        memory = tensor.detach().reshape(-1).view(torch.uint8)
        for start in range(0, memory.numel(), 4 * _CHUNK_ELEMENTS):
            chunk = memory[start : start + 4 * _CHUNK_ELEMENTS]
            staged = chunk.to(self._device(chunk))
            with self._told(then="make a new group and join() it, which makes weights whole again"):
                self._wait(distributed.broadcast(staged, group_src=source, group=self.group, async_op=True))
            if staged.data_ptr() != chunk.data_ptr():
                chunk.copy_(staged)

    def _gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensors of all ranks, of one dimension, one a row."""
        staged = tensor.to("cuda") if self._is_nccl else tensor.cpu()
        found = torch.empty(self.world * len(staged), dtype=staged.dtype, device=staged.device)
        with self._told():
            self._wait(distributed.all_gather_into_tensor(found, staged, group=self.group, async_op=True))
        return found.view(self.world, len(staged)).to(tensor.device)

    def _device(self, tensor: torch.Tensor) -> torch.device:
        return tensor.device if self._is_nccl else torch.device("cpu")

    def _wait(self, work: Any) -> None:
        if not work.wait(timedelta(seconds=self.timeout_s)):
            raise RuntimeError("the exchange was given up")

    @contextmanager
    def _told(self, what: str = "an exchange was not finished", then: str = _UNCHANGED) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RankLostError(
                f"{what}: another rank has died, or is more than {self.timeout_s:g} s late; {then} "
                f"({str(error).splitlines()[0]})"
            ) from error
