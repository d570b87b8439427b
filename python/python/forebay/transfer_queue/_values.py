"""Values of fields on their way into rows and back.

A tensor becomes the list of its numbers and a description: its type and its shape. Types that a store has no list of lie as numbers of
the same width (``bool``, ``bfloat16``). Anything else is an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict

from .._arrays import numpy

Description = tuple[str, list[int]]
"""The type of a tensor, and its shape."""

_ELEMENTS = {
    torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64", torch.uint8: "uint8",
    torch.float16: "float16", torch.float32: "float32", torch.float64: "float64",
}  # fmt: skip
_AS_NUMBERS = {torch.bool: torch.uint8, torch.bfloat16: torch.int16}
_TYPES = {str(dtype): dtype for dtype in (*_ELEMENTS, *_AS_NUMBERS)}


def rows_of(fields: Mapping[str, Any] | TensorDict) -> dict[str, list[Any]]:
    """The values of each field, one a row."""
    return {name: _rows(value) for name, value in fields.items()}


def _rows(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return list(value.unbind())
    return list(value.tolist()) if hasattr(value, "tolist") else list(value)


def column_type(values: list[Any]) -> str | None:
    """The type of the column for these values; None where they need none or more than one."""
    types = {value.dtype if isinstance(value, torch.Tensor) else None for value in values}
    dtype = types.pop() if len(types) == 1 else None
    if dtype is None:
        return None
    element = _ELEMENTS.get(_AS_NUMBERS.get(dtype, dtype))
    return element and f"list<{element}>"


def describe(tensor: torch.Tensor) -> Description:
    return str(tensor.dtype), list(tensor.shape)


def schema_of(there: Mapping[int, Description | None], count: int) -> dict[str, Any]:
    """What a batch says of a field: its type, and its shape or that of each sample.

    there: the values of the field that there are, by their place among ``count`` samples; None for what is no tensor.
    """
    types = {described and described[0] for described in there.values()}
    dtype = types.pop() if len(types) == 1 else None
    if dtype is None:
        return {"dtype": None, "shape": None, "is_nested": False, "is_non_tensor": bool(there)}
    # TransferQueue says of a number that it has one dimension.
    shapes = {at: tuple(described[1]) or (1,) for at, described in there.items() if described is not None}
    is_nested = len(set(shapes.values())) > 1
    shape = None if is_nested else next(iter(shapes.values()))
    schema = {"dtype": _TYPES[dtype], "shape": shape, "is_nested": is_nested, "is_non_tensor": False}
    if is_nested:
        schema["per_sample_shapes"] = [shapes.get(at) for at in range(count)]
    return schema


def flat(tensor: torch.Tensor) -> Any:
    """A tensor's numbers, in one dimension."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor.reshape(-1).view(_AS_NUMBERS.get(tensor.dtype, tensor.dtype)).numpy()


def tensor_of(numbers: Any, description: Description) -> torch.Tensor:
    """The other way: a tensor of the caller's own."""
    dtype, shape = _TYPES[description[0]], description[1]
    return torch.from_numpy(numpy().array(numbers)).view(dtype).reshape(shape)


def packed(values: list[Any]) -> Any:
    """Rows as TransferQueue gives them: scalars dense, other tensors nested (also when all are equally long), else a stack."""
    if not all(isinstance(value, torch.Tensor) for value in values):
        return NonTensorStack(*values)
    if all(value.dim() == 0 for value in values):
        return torch.stack(values)
    for layout in (torch.jagged, torch.strided):
        try:
            return torch.nested.as_nested_tensor(values, layout=layout)
        except (RuntimeError, TypeError):
            continue
    return NonTensorStack(*values)
