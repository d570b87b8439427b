"""Flat buffers, and parameters that are views of them.

Buffers can give their memory back and regain it. Parameters without memory are stand-ins of the right shape that read as NaN, so that a
model whose trainer is suspended computes nothing that could be taken for an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import CapacityError
from .layout import Entry, Layout, dtype_name

__all__ = ["FlatWeights", "allocate", "stand_in", "storage_bytes"]


def allocate(elements: int, dtype: torch.dtype, device: torch.device, what: str) -> torch.Tensor:
    """A buffer of zeros. Raises CapacityError where there is no room for it."""
    try:
        return torch.zeros(elements, dtype=dtype, device=device)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise CapacityError(
            f"{what} take {elements * dtype.itemsize} bytes on {device}, which are not to be had: suspend another trainer, train "
            f"an adapter (forebay.trainer.Base), or take a smaller model ({str(error).splitlines()[0]})"
        ) from error


def stand_in(entry: Entry, device: torch.device) -> torch.Tensor:
    """A tensor of an entry's shape with the memory of one number."""
    value = float("nan") if entry.dtype.is_floating_point else 0
    return torch.full((1,), value, dtype=entry.dtype, device=device).expand(entry.shape)


def storage_bytes(*tensors: torch.Tensor) -> int:
    """How much memory tensors hold together, where they share it counted once."""
    storages = {storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storages.values())


class FlatWeights:
    """One buffer for each type of a layout's tensors."""

    def __init__(self, layout: Layout, device: torch.device, what: str) -> None:
        self.layout, self.device, self.what = layout, device, what
        self.buffers: dict[torch.dtype, torch.Tensor] = {}
        self.regain()

    def regain(self) -> None:
        """Takes memory, of zeros."""
        self.buffers = {
            segment.dtype: allocate(segment.elements, segment.dtype, self.device, f"{dtype_name(segment.dtype)} {self.what}")
            for segment in self.layout.segments
        }

    def release(self) -> None:
        """Gives the memory back. What is a view of it holds it until it is pointed elsewhere."""
        self.buffers = {dtype: buffer.new_empty(0) for dtype, buffer in self.buffers.items()}

    def view(self, entry: Entry) -> torch.Tensor:
        return self.buffers[entry.dtype][entry.offset : entry.end].view(entry.shape)

    def address(self, entry: Entry) -> int:
        """Where an entry lies now."""
        return self.buffers[entry.dtype].data_ptr() + entry.offset * entry.dtype.itemsize

    def moved(self, parameters: Mapping[str, torch.nn.Parameter], written: set[int]) -> dict[Entry, torch.Tensor]:
        """The values of parameters that are not in their place; copies where they lie in memory that is about to be written."""
        found = {}
        for entry in self.layout.entries():
            values = parameters[entry.name].detach()
            if not self.is_in_place(entry, values):
                found[entry] = values.clone() if values.untyped_storage().data_ptr() in written else values
        return found

    @torch.no_grad()
    def take(self, parameters: Mapping[str, torch.nn.Parameter], moved: Mapping[Entry, torch.Tensor]) -> None:
        """Copies moved values in, and makes all parameters views. Their old memory is free as soon as nobody else holds it."""
        for entry in self.layout.entries():
            view = self.view(entry)
            if entry in moved:
                view.copy_(moved[entry])
            parameters[entry.name].data = view

    def is_in_place(self, entry: Entry, parameter: torch.Tensor) -> bool:
        """Whether a parameter reads the elements of an entry in their order."""
        return not parameter.numel() or (parameter.data_ptr() == self.address(entry) and parameter.is_contiguous())

    def payloads(self, prefix: str) -> dict[str, torch.Tensor]:
        return {f"{prefix}.{dtype_name(dtype)}": buffer for dtype, buffer in self.buffers.items()}
