"""Tags on their way into a row and back.

They are JSON, so that SQL looks into them: null, booleans, numbers, texts, lists, and dicts by names lie as they are. What JSON would
bring back as something else lies as an object of one name, that says what it is: a tuple, a set, bytes, a dict by other keys, and
scalars, arrays and tensors of numbers. What comes back is equal to what was given (numpy's float64 as a float, which it is one of); an
object of a class that is none of these is refused. Reading runs no code.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from typing import Any

import torch

from .._arrays import numpy
from ..errors import StateError
from ._values import column_type, describe, flat, tensor_of

_MARK = "forebay:kind"
_PLAIN = (bool, int, float, str, type(None))
_COLLECTIONS = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encoded(tag: Mapping[Any, Any]) -> str:
    """TypeError for what would not come back."""
    return json.dumps(_words(dict(tag), "tag"))


def decoded(text: str) -> dict[Any, Any]:
    return json.loads(text, object_hook=_meant)


def copied(tag: dict[Any, Any]) -> dict[Any, Any]:
    """A tag of the caller's own, to change as they like."""
    return {name: value if isinstance(value, _PLAIN) else copy.deepcopy(value) for name, value in tag.items()}


def _words(value: Any, place: str) -> Any:
    """A value as JSON. place: where it lies, for people."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (numpy().generic, numpy().ndarray)):
        return _words_of_numbers(value, place)
    if isinstance(value, torch.Tensor):
        return _words_of_tensor(value, place)
    if isinstance(value, list):
        return [_words(item, f"{place}[{at}]") for at, item in enumerate(value)]
    if isinstance(value, dict):
        return _words_of_dict(value, place)
    if isinstance(value, (bytes, bytearray)):
        return {_MARK: ["bytes", base64.b64encode(value).decode()]}
    for kind, of in _COLLECTIONS.items():
        if isinstance(value, of):
            return {_MARK: [kind, [_words(item, f"{place}[{at}]") for at, item in enumerate(value)]]}
    raise _refused(value, place)


def _words_of_dict(value: dict[Any, Any], place: str) -> Any:
    named = {key: _words(item, f"{place}[{key!r}]") for key, item in value.items()}
    if all(isinstance(key, str) for key in named) and _MARK not in named:
        return named
    return {_MARK: ["dict", [[_words(key, f"a key of {place}"), item] for key, item in named.items()]]}


def _words_of_numbers(value: Any, place: str) -> Any:
    dtype = value.dtype
    is_known = dtype.kind in "biuSU" or (dtype.kind == "f" and dtype.itemsize <= 8)
    if not is_known or (isinstance(value, numpy().ndarray) and type(value) is not numpy().ndarray):
        raise _refused(value, place)
    kind = "scalar" if isinstance(value, numpy().generic) else "array"
    return {_MARK: [kind, dtype.str, list(value.shape), _words(value.tolist(), place)]}


def _words_of_tensor(value: torch.Tensor, place: str) -> Any:
    if value.is_nested or value.layout != torch.strided or column_type([value]) is None:
        raise _refused(value, place)
    numbers = flat(value)
    return {_MARK: ["tensor", *describe(value), numbers.dtype.str, numbers.tolist()]}


def _refused(value: Any, place: str) -> TypeError:
    of = f" of {value.dtype}" if hasattr(value, "dtype") else ""
    return TypeError(
        f"{place} is a {type(value).__module__}.{type(value).__qualname__}{of}, and would not come back: a tag takes None, booleans, "
        "numbers, texts, bytes, lists, tuples, sets and dicts of them, and scalars, arrays and tensors of numbers; put it as a field"
    )


def _meant(found: dict[str, Any]) -> Any:
    """What an object of JSON means; those within it have been asked already."""
    if _MARK not in found:
        return found
    kind, *given = found[_MARK]
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind](given[0])
    if kind == "bytes":
        return base64.b64decode(given[0])
    if kind == "dict":
        return {key: item for key, item in given[0]}
    if kind in ("scalar", "array"):
        array = numpy().array(given[2], dtype=given[0]).reshape(given[1])
        return array[()] if kind == "scalar" else array
    if kind == "tensor":
        return tensor_of(numpy().array(given[3], dtype=given[2]), (given[0], given[1]))
    raise StateError(f"a tag of the queue holds a {kind!r}, which a later version of forebay has written; read it with that")
