"""What may be set as a tensor: arrays of numpy, tensors of torch, and whatever has the interface of an array; as types, shapes and bytes."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple, TypeVar

from .. import _arrays
from ..errors import InputError

__all__ = ["BITS", "NUMPY", "TORCH", "TensorSpec", "array_of", "is_torch", "mapping_of", "memory_of", "number", "spec_of", "specs_of", "torch_module"]

NUMPY = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}
"""numpy's names of types, by those of safetensors. It has none for BF16 and the 8-bit floats."""
TORCH = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}
_OF_NUMPY = {name: dtype for dtype, name in NUMPY.items()}
_OF_TORCH = {f"torch.{name}": dtype for dtype, name in TORCH.items()}
BITS = {"BF16": "uint16", "F8_E5M2": "uint8", "F8_E4M3": "uint8"}
"""What numpy shows of types that it has no name for: their bits."""

Number = TypeVar("Number", int, "int | None")


class TensorSpec(NamedTuple):
    """What a tensor is."""

    dtype: str
    """As safetensors names it: ``"F32"``, ``"BF16"``."""
    shape: tuple[int, ...]
    memory_class: str
    """Which of the object's contiguous payloads it lies in."""

    @property
    def bytes(self) -> int:
        dtype = self.dtype
        width = 1 if dtype.startswith("F8") or dtype in ("BOOL", "U8", "I8") else int("".join(filter(str.isdigit, dtype))) // 8
        return width * math.prod(self.shape)


def torch_module() -> Any:
    try:
        import torch
    except ImportError as missing:
        raise ImportError("tensors are given as torch's; install torch") from missing
    return torch


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def mapping_of(given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    if hasattr(given, "state_dict"):
        return given.state_dict()
    raise InputError(f"an object is made of a mapping of names to arrays or of a module, and {type(given).__name__} was given")


def specs_of(tensors: Mapping[str, Any], memory_class: str | Mapping[str, str]) -> dict[str, TensorSpec]:
    def of(name: str) -> str:
        if isinstance(memory_class, str):
            return memory_class
        if not isinstance(memory_class, Mapping):
            raise InputError(f"memory_class is one class, or a class for each name, not {memory_class!r}")
        if name not in memory_class:
            raise InputError(f"memory_class names no class for tensor {name!r}")
        if not isinstance(memory_class[name], str):
            raise InputError(f"memory_class names {memory_class[name]!r} for tensor {name!r}; a class has a name")
        return memory_class[name]

    if unnamed := [name for name in tensors if not isinstance(name, str)]:
        raise InputError(f"tensors are named by texts, and {unnamed[0]!r} is none")
    return {name: spec_of(name, tensor, of(name)) for name, tensor in tensors.items()}


def checked(specs: Any) -> Mapping[str, TensorSpec]:
    """Specs as somebody gave them who has no tensors yet, with their sides as numbers."""
    if not isinstance(specs, Mapping):
        raise InputError(f"specs is a mapping of names to TensorSpec, not {specs!r}")
    for name, spec in specs.items():
        if not isinstance(name, str):
            raise InputError(f"tensors are named by texts, and {name!r} is none")
        if not isinstance(spec, TensorSpec):
            raise InputError(f"tensor {name!r} is described by a TensorSpec, not by {spec!r}")
        if not isinstance(spec.memory_class, str) or not isinstance(spec.dtype, str):
            raise InputError(f"tensor {name!r} is of a type and a memory class, which are texts, not {spec!r}")
    return {name: spec._replace(shape=_sides(name, spec.shape)) for name, spec in specs.items()}


def _sides(name: str, shape: Any) -> tuple[int, ...]:
    """The sides of a tensor, of whatever names them: what names them once, too."""
    try:
        given = tuple(shape)
        sides = tuple(map(index, given))
    except TypeError:
        raise InputError(f"tensor {name!r} has the shape {shape!r}, and sides are whole numbers, 0 or more") from None
    if any(not 0 <= side < 1 << 63 for side in sides):
        raise InputError(f"tensor {name!r} has the shape {given!r}, and sides are whole numbers, 0 or more")
    return sides


def spec_of(name: str, tensor: Any, memory_class: str) -> TensorSpec:
    if is_torch(tensor):
        dtype = _OF_TORCH.get(str(tensor.dtype))
    else:
        tensor = array_of(name, tensor)
        dtype = _OF_NUMPY.get(tensor.dtype.name)
    if dtype is None:
        raise InputError(f"tensor {name!r} has the type {tensor.dtype}, which no object has; it has {', '.join(TORCH)}")
    return TensorSpec(dtype, tuple(tensor.shape), memory_class)


def array_of(name: str, tensor: Any) -> Any:
    np = _arrays.numpy()
    if isinstance(tensor, np.ma.MaskedArray) and np.ma.getmaskarray(tensor).any():
        raise InputError(f"tensor {name!r} has masked values, and an object has no mask; give tensor.filled(...), and the mask beside it")
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "__dlpack__") and not hasattr(tensor, "__array__"):
        return np.from_dlpack(tensor)
    try:
        array = np.asarray(tensor)
    except (ValueError, TypeError) as unshaped:
        raise InputError(f"tensor {name!r} is no array of numbers: {unshaped}") from unshaped
    if array.dtype == object:
        raise InputError(f"tensor {name!r} is one {type(tensor).__name__} and no array of numbers")
    return array


def number(name: str, value: Number) -> Number:
    """A number that may be of a version or a row."""
    if value is None:
        return value
    try:
        whole = index(value)
    except TypeError:
        raise InputError(f"{name} is a whole number, 0 or more, not {value!r}") from None
    if not 0 <= whole < 1 << 64:
        raise InputError(f"{name}={value} is no number of one; it is 0 or more")
    return whole  # and not a number of numpy's, whose sums end where its type does


def memory_of(tensor: Any) -> memoryview:
    """The bytes of an array or tensor, row by row."""
    if is_torch(tensor):
        torch = torch_module()
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return memoryview(flat.view(torch.uint8).numpy() if flat.numel() else b"").cast("B")
    np = _arrays.numpy()
    array = np.ascontiguousarray(array_of("", tensor))
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return memoryview(array.reshape(-1).view(np.uint8) if array.size else b"").cast("B")
