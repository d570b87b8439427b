"""Where the binding meets numpy and pyarrow. Both are imported by the call that needs them, and by no other."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

from .errors import InputError


def numpy() -> ModuleType:
    try:
        import numpy
    except ImportError as missing:
        raise ImportError("columns are given as numpy arrays; install numpy") from missing
    return numpy


def pyarrow() -> ModuleType:
    try:
        import pyarrow
    except ImportError as missing:
        raise ImportError("record batches and answers are given through pyarrow; install pyarrow") from missing
    return pyarrow


def type_name(given: Any) -> str:
    """The store's name for a type of pyarrow."""
    if not type(given).__module__.startswith("pyarrow"):
        raise InputError(f"{given!r} is no type of a column; give one of pyarrow's, or a name like 'list<int32>'")
    pa = pyarrow()
    types = pa.types
    if isinstance(given, pa.FixedShapeTensorType):
        return f"tensor<{_number(given, given.value_type)}, {list(given.shape)}>"
    if types.is_fixed_size_list(given):
        return f"tensor<{_number(given, given.value_type)}, [{given.list_size}]>"
    if types.is_list(given) or types.is_large_list(given):
        return f"list<{_number(given, given.value_type)}>"
    if types.is_string(given) or types.is_large_string(given) or types.is_string_view(given):
        return "utf8"
    if types.is_binary(given) or types.is_large_binary(given) or types.is_binary_view(given):
        return "binary"
    if types.is_boolean(given):
        return "bool"
    return _number(given, given)


def _number(whole: Any, given: Any) -> str:
    types = pyarrow().types
    if types.is_integer(given):
        return str(given)
    if types.is_floating(given):
        return f"float{given.bit_width}"
    raise InputError(
        f"a column cannot hold {whole}; it holds a bool, a number, a text, bytes, a list of numbers, or a tensor of numbers"
    )


def arranged(column: str, values: Any) -> Any:
    """Values that are neither a list nor an array, as one of the two."""
    if _is_of("torch", values):
        return _from_torch(values)
    # A series of pandas has both: Arrow takes what is not a number for null, and knows no arrays of two dimensions within one.
    dtype = getattr(values, "dtype", None) if _is_of("pandas", values) else None
    is_of_numpy = dtype is not None and isinstance(dtype, numpy().dtype)  # else values that need no numpy would want it
    is_of_pandas = dtype is not None and not is_of_numpy  # Arrow knows its missing values, also of a pandas that does not say so
    if is_of_pandas or not is_of_numpy and (hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")):
        return _from_arrow(values)
    if hasattr(values, "__array__"):
        return numpy().asarray(values)
    if hasattr(values, "__iter__"):
        return list(values)
    raise InputError(f"column {column!r} is one {type(values).__name__} ({values!r:.80}); give a list with one value a row")


def _is_of(package: str, values: Any) -> bool:
    """Whether a value's class is of a package, which is not imported for it, or stands on one that is."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(values).__mro__)


def _from_torch(values: Any) -> Any:
    """A tensor as an array; a nested one as a list with one array a row."""
    values = values.detach().cpu()
    if values.is_nested:
        return [_from_torch(row) for row in values.unbind()]
    if str(values.dtype) == "torch.bfloat16":
        values = values.float()  # exact; numpy has no bfloat16
    return values.numpy()


def ragged(values: Any) -> tuple[Any, list[int | None]] | None:
    """The lists of an array of pyarrow: their numbers in one array of numpy, and how many each has. None for anything else."""
    if not _is_of("pyarrow", values):
        return None
    pa = pyarrow()
    array = values.chunk(0) if isinstance(values, pa.ChunkedArray) and values.num_chunks == 1 else values
    if not isinstance(array, pa.ListArray | pa.LargeListArray):
        return None
    if array.null_count:
        inner = array.flatten()  # of the rows of this slice that are there, and no others
        lengths = array.value_lengths().to_pylist()
    else:  # what lies there, without a kernel of Arrow, which costs more than a batch of rows
        offsets = array.offsets.to_numpy().tolist()
        inner = array.values[offsets[0] : offsets[-1]]
        lengths = [end - start for start, end in pairwise(offsets)]
    if inner.null_count:
        raise InputError(f"a list of {array.type.value_type} has an element that is null; a list is null as a whole or not at all")
    return inner.to_numpy(zero_copy_only=False), lengths


def _from_arrow(values: Any) -> Any:
    """An Arrow array as a list: numbers of lists as slices of one numpy array, the rest as Python has it."""
    pa = pyarrow()
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if isinstance(array, pa.ChunkedArray):  # as a series of pandas may give one
        return [value for chunk in array.chunks for value in _from_arrow(chunk)]
    types = pa.types
    parts = ragged(array)
    if parts is not None:
        (numbers, lengths), lists, start = parts, [], 0
        for length in lengths:
            lists.append(None if length is None else numbers[start : start + length])
            start += length or 0
        return lists
    if array.null_count == 0 and (types.is_integer(array.type) or types.is_floating(array.type)):
        return array.to_numpy(zero_copy_only=False)
    return array.to_pylist()
