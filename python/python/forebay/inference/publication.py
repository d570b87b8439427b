"""What ``Trainer.publish`` stored, read back and compared with what it says of itself.

A publication has a *manifest* (version, fingerprint, where each tensor lies) and a payload for each type of weights. The fingerprint is
computed anew from the payloads' bytes: a manifest that is of other weights, or bytes that are damaged, make no publication.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._fingerprint import fingerprint_of_layout, fingerprint_of_weights
from .errors import PublicationError
from .version import Version

if TYPE_CHECKING:
    from ..trainer.state import Payload

__all__ = ["Publication", "PublishedTensor", "read_publication"]

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class PublishedTensor:
    """One tensor of a publication."""

    name: str
    dtype: str
    """torch's name of the type."""
    shape: tuple[int, ...]
    offset: int
    """In elements, from the beginning of the payload of its type."""

    @property
    def elements(self) -> int:
        found = 1
        for length in self.shape:
            found *= length
        return found

    @property
    def bytes(self) -> tuple[int, int]:
        """Where it begins and ends in the payload of its type."""
        return self.offset * _ITEM_BYTES[self.dtype], (self.offset + self.elements) * _ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Publication:
    """One version of a policy's weights.

    version: what it is. tensors: by name. payloads: the buffers, by type.
    directory: the same weights as files that servers load, once there are such.
    is_adapter: whether they are of an adapter and not of a whole model.
    subject: of an adapter: the fingerprint of its base, its rank and alpha.
    """

    version: Version
    tensors: Mapping[str, PublishedTensor]
    payloads: Mapping[str, Payload]
    directory: pathlib.Path | None = None
    is_adapter: bool = False
    subject: Mapping[str, Any] = field(default_factory=dict)

    def memory(self, tensor: PublishedTensor) -> memoryview:
        """The bytes of a tensor, on the CPU."""
        start, end = tensor.bytes
        return _memory(self.payloads[tensor.dtype])[start:end]


def read_publication(payloads: Mapping[str, Payload]) -> Publication:
    """The publication that a state store keeps. Raises PublicationError where it is none, or is not what it says."""
    if "manifest" not in payloads:
        raise PublicationError(f"there is no manifest among {sorted(payloads)}; Trainer.publish stores one, Trainer.suspend does not")
    try:
        told = json.loads(bytes(_memory(payloads["manifest"])))
        version = Version(int(told["version"]), str(told["fingerprint"]))
        tensors = {tensor.name: tensor for tensor in map(_tensor, told["tensors"])}
        layout, subject = str(told["layout"]), dict(told.get("subject", {}))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise PublicationError(f"the manifest cannot be read: {type(error).__name__}: {error}") from error
    weights = {name: payload for name, payload in payloads.items() if name.startswith("weights.")}
    _refuse_other_places(version, tensors, weights)
    found = fingerprint_of_layout((t.name, t.dtype, t.shape, t.offset) for t in tensors.values())
    if found != layout:
        raise PublicationError(f"{version.label}: the layout's fingerprint is {found[:12]}, and the manifest says {layout[:12]}")
    found = fingerprint_of_weights(layout, ((name, _memory(weights[name])) for name in sorted(weights)))
    if found != version.fingerprint:
        raise PublicationError(f"{version.label}: the weights that are stored have the fingerprint {found}; publish them again")
    by_type = {name.removeprefix("weights."): payload for name, payload in weights.items()}
    return Publication(version, tensors, by_type, subject=subject)


def _tensor(entry: Any) -> PublishedTensor:
    """A tensor as the manifest tells it. Raises like any conversion."""
    name, dtype, shape, offset = entry["name"], entry["dtype"], tuple(entry["shape"]), entry["offset"]
    if not isinstance(name, str) or not isinstance(dtype, str):
        raise TypeError(f"{name!r} and {dtype!r} are to be texts")
    for number in (*shape, offset):
        if type(number) is not int:
            raise TypeError(f"{number!r} in the place of {name!r} is to be a whole number")
    return PublishedTensor(name, dtype, shape, offset)


def _refuse_other_places(version: Version, tensors: Mapping[str, PublishedTensor], weights: Mapping[str, Payload]) -> None:
    for tensor in tensors.values():
        payload = weights.get(f"weights.{tensor.dtype}")
        if tensor.dtype not in _ITEM_BYTES or payload is None:
            raise PublicationError(f"{version.label}: {tensor.name!r} is {tensor.dtype}, and the payloads are {sorted(weights)}")
        if tensor.offset < 0 or tensor.bytes[1] > len(_memory(payload)):
            raise PublicationError(f"{version.label}: {tensor.name!r} ends at byte {tensor.bytes[1]} of {len(_memory(payload))}")


def _memory(payload: Any) -> memoryview:
    """A payload's bytes. What it comes from knows torch; this does not."""
    memory = payload.memory
    return memoryview(memory.cpu().numpy()).cast("B") if hasattr(memory, "cpu") else memoryview(memory).cast("B")


def tensors_in_order(publication: Publication) -> Iterator[PublishedTensor]:
    """The tensors as they lie in their payloads."""
    yield from sorted(publication.tensors.values(), key=lambda tensor: (tensor.dtype, tensor.offset))
