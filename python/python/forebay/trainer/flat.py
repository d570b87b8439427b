"""Flat buffers, and parameters that are views of them.

A buffer can give its memory back and regain it: views of it stay views, and find the new memory. So a model whose trainer is
suspended holds none, and no parameter has to be pointed anew.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import CapacityError
from .layout import Entry, Layout, dtype_name

__all__ = ["FlatWeights", "allocate", "regain", "release", "storage_bytes"]


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


def release(buffer: torch.Tensor) -> None:
    """Gives a buffer's memory back. Its views have none either, until it is regained."""
    buffer.untyped_storage().resize_(0)


def regain(buffer: torch.Tensor, what: str) -> None:
    """Gives a buffer memory again, with nothing said of what is in it."""
    if buffer.numel() and not buffer.untyped_storage().nbytes():
        wanted = buffer.numel() * buffer.dtype.itemsize
        try:
            buffer.untyped_storage().resize_(wanted)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            raise CapacityError(f"{what} take {wanted} bytes on {buffer.device}, which are not to be had: {error}") from error


def storage_bytes(*tensors: torch.Tensor) -> int:
    """How much memory tensors hold together, where they share it counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


class FlatWeights:
    """One buffer for each type of a layout's tensors."""

    def __init__(self, layout: Layout, device: torch.device, what: str) -> None:
        self.layout, self.device, self.what = layout, device, what
        self.buffers: dict[torch.dtype, torch.Tensor] = {
            segment.dtype: allocate(segment.elements, segment.dtype, device, f"{dtype_name(segment.dtype)} {what}")
            for segment in layout.segments
        }

    def view(self, entry: Entry) -> torch.Tensor:
        return self.buffers[entry.dtype][entry.offset : entry.end].view(entry.shape)

    def address(self, entry: Entry) -> int:
        """Where an entry lies now."""
        return self.buffers[entry.dtype].data_ptr() + entry.offset * entry.dtype.itemsize

    @torch.no_grad()
    def take(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        """Copies parameters in and makes them views. Their old memory is free as soon as nobody else holds it."""
        for entry in self.layout.entries():
            view = self.view(entry)
            parameter = parameters[entry.name]
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter.detach())
            parameter.data = view

    def payloads(self, prefix: str) -> dict[str, torch.Tensor]:
        return {f"{prefix}.{dtype_name(dtype)}": buffer for dtype, buffer in self.buffers.items()}

    def release(self) -> None:
        for buffer in self.buffers.values():
            release(buffer)

    def regain(self) -> None:
        for buffer in self.buffers.values():
            regain(buffer, self.what)
