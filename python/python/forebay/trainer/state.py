"""A trainer's state as named payloads, and the seam to what keeps them.

A *payload* is a flat piece of memory with a type and a shape: a whole flat buffer, as a rule, so that a state of any model has about ten.
``Trainer.state()`` gives views of the buffers themselves and copies nothing.

===================== ==================================================================================
payload               what it is
===================== ==================================================================================
``weights.DTYPE``     the trained weights of one type
``master``            the fp32 weights of all segments that are narrower; none for a model in fp32
``exp_avg``           first moments of AdamW, fp32
``exp_avg_sq``        second moments
``gradient``          the gradient cache, fp32, unnormalised
``frozen.DTYPE``      frozen weights, where the trainer has its own (the base of adapters has its own owner)
``buffer.NAME``       a buffer that the module stores
``counters``          JSON: version, updates, claims in the cache and their denominator, layout's fingerprint
``rng.cpu``           torch's random state; ``rng.cuda`` that of the trainer's device
===================== ==================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch

from ..errors import InputError
from .errors import LayoutError
from .layout import dtype_name

__all__ = ["Payload", "StateStore", "as_payloads", "fill", "parts_of"]


class Payload(NamedTuple):
    """One named piece of a state."""

    dtype: str
    """torch's name of the type: ``"bfloat16"``, ``"float32"``, ``"uint8"``."""
    shape: tuple[int, ...]
    memory: torch.Tensor
    """Its bytes: one dimension of uint8, wherever they lie. A view: what changes the trainer changes it."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Payload:
        tensor = tensor.detach()
        memory = tensor.contiguous().reshape(-1).view(torch.uint8)
        return cls(dtype_name(tensor.dtype), tuple(tensor.shape), memory)

    def tensor(self) -> torch.Tensor:
        """The payload as a tensor of its type, over the same memory."""
        return self.memory.view(getattr(torch, self.dtype)).view(self.shape)


class StateStore(Protocol):
    """Keeps states under keys. The versions of a key count from 1 and never change."""

    def set(self, key: str, payloads: Mapping[str, Payload], expected: int | None = None) -> int:
        """Stores the next version of a key, whole or not at all, and gives its number.

        expected: the version that has to be the latest (0: there is none yet); VersionConflictError where it is not. ``None``:
            whichever is.
        """

    def get(self, key: str, version: int | None = None) -> tuple[int, dict[str, Payload]]:
        """A version and its number. Default: the latest."""


def parts_of(key: str) -> list[str]:
    """The parts of a key, which is a path of them."""
    parts = key.split("/")
    if not all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", part) for part in parts):
        raise InputError(f"{key!r} is no key; a key has parts of letters, digits, '.', '_' and '-', with '/' between them")
    return parts


def as_payloads(tensors: Mapping[str, torch.Tensor]) -> dict[str, Payload]:
    return {name: Payload.of(tensor) for name, tensor in tensors.items()}


@torch.no_grad()
def fill(tensors: Mapping[str, torch.Tensor], payloads: Mapping[str, Payload]) -> None:
    """Copies payloads into the tensors of the same names. Raises LayoutError, and changes nothing, where one does not fit."""
    for name, tensor in tensors.items():
        payload = payloads.get(name)
        if payload is None:
            raise LayoutError(f"the state has no payload {name!r}; it has {', '.join(sorted(payloads))}")
        wanted = (dtype_name(tensor.dtype), tuple(tensor.shape))
        if (payload.dtype, tuple(payload.shape)) != wanted:
            raise LayoutError(
                f"payload {name!r} is {payload.dtype} {list(payload.shape)}, and the model takes {wanted[0]} {list(wanted[1])}"
            )
    for name, tensor in tensors.items():
        tensor.copy_(payloads[name].tensor())
