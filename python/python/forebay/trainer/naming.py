"""Names of losses that are the same in every process: what gradients are added up by.

A function of a module is its name. One that was made on the way (a lambda, one within another) is named by its code and what it closes
over, since two of them may have one name. What has an address for a name has none.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from ..errors import InputError

__all__ = ["name_of"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


def name_of(value: Any) -> str:
    """The name of a loss, or of what one is made of. Raises InputError for what has none."""
    told = getattr(value, "identity", None)
    if isinstance(told, str):
        return told
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{_of_type(type(value))}.{value.name}"
    if isinstance(value, functools.partial):
        return _called("partial", [value.func, *value.args], value.keywords)
    if isinstance(value, types.MethodType):
        return f"{name_of(value.__self__)}.{value.__name__}"
    if isinstance(value, types.FunctionType):
        return _of_function(value)
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return _of_type(value)
    return _of_object(value)


def _of_object(value: Any) -> str:
    if is_dataclass(value):
        return _of_dataclass(value)
    if isinstance(value, (list, tuple)):
        return _called(type(value).__name__, value, {})
    if isinstance(value, Mapping):
        return _called(type(value).__name__, [], {str(key): entry for key, entry in value.items()})
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}({', '.join(sorted(map(name_of, value)))})"
    if callable(value) or " at 0x" in repr(value):
        raise InputError(
            f"{value!r} has no name that is the same in another process, by which its gradients could be told from those of another "
            "loss; give the loss one (PolicyGradient(name=...), or a text `identity`), or use a function of a module"
        )
    return f"{_of_type(type(value))}:{value!r}"


def _of_dataclass(value: Any) -> str:
    """``name``, where it has one, stands for what has none."""
    shown, given = {}, getattr(value, "name", None)
    for each in fields(value):
        try:
            shown[each.name] = name_of(getattr(value, each.name))
        except InputError:
            if not isinstance(given, str):
                raise
            shown[each.name] = "named"
    return f"{_of_type(type(value))}({', '.join(f'{name}={text}' for name, text in shown.items())})"


def _called(name: str, values: Iterable[Any], named: Mapping[str, Any]) -> str:
    given = [*map(name_of, values), *(f"{key}={name_of(value)}" for key, value in sorted(named.items()))]
    return f"{name}({', '.join(given)})"


def _of_type(value: Any) -> str:
    module = "__main__" if value.__module__ == "__mp_main__" else value.__module__  # a process that multiprocessing has spawned
    return f"{module}.{value.__qualname__}"


def _of_function(function: types.FunctionType) -> str:
    name = _of_type(function)
    if "<" not in name:
        return name
    code = hashlib.sha256(_of_code(function.__code__).encode()).hexdigest()[:16]
    cells = [_contents(function, cell) for cell in function.__closure__ or ()]
    return _called(f"{name}#{code}", [*cells, *(function.__defaults__ or ())], function.__kwdefaults__ or {})


def _contents(function: types.FunctionType, cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise InputError(
            f"{function!r} reads a variable that has no value yet, so it has no name that is the same in another process; give the loss one "
            "(PolicyGradient(name=...), or a text `identity`)"
        ) from None


def _of_code(code: types.CodeType) -> str:
    constants = [_of_code(each) if isinstance(each, types.CodeType) else name_of(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {constants}"
