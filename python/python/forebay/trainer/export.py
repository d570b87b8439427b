"""Weights out to files that others read, and in from them."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from .._files import directory_made_whole
from ..errors import CorruptError, InputError
from .errors import LayoutError
from .parameters import plain_name

__all__ = ["found_weights", "save_pretrained", "save_tensors"]

_FLOATS = ("F64", "F32", "BF16", "F16")
"""What is cast to the weights' own type."""


def save_tensors(tensors: Mapping[str, torch.Tensor], file: pathlib.Path) -> None:
    from safetensors.torch import save_file

    # Views of one buffer become tensors of their own: the format wants each to have its bytes.
    save_file({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}, file, {"format": "pt"})


def save_pretrained(model: Any, directory: str | os.PathLike[str]) -> None:
    """Writes a model's weights so that ``from_pretrained`` reads them, with its configuration. A module that is not of
    ``transformers`` gets one file, ``model.safetensors``, with tied weights once."""
    model = getattr(model, "_orig_mod", model)
    with directory_made_whole(directory) as made:
        if hasattr(model, "save_pretrained"):
            model.save_pretrained(made)
            return
        kept: dict[int, str] = {}
        stored = model.state_dict(keep_vars=True).items()
        once = {name: tensor for name, tensor in stored if kept.setdefault(id(tensor), name) == name}
        save_tensors({plain_name(name): tensor for name, tensor in once.items()}, made / "model.safetensors")


@contextmanager
def found_weights(
    parameters: Mapping[str, tuple[torch.Tensor, list[str]]], path: str | os.PathLike[str]
) -> Iterator[Callable[[], None]]:
    """Finds values for tensors in files of safetensors, and gives what copies them. Nothing is changed before that is called.

    parameters: by name, the tensor, and the names that it may have in a file.
    path: a file, or a directory with ``model.safetensors``, its index, or ``adapter_model.safetensors``.

    Raises LayoutError where a tensor is missing, has another shape or no numbers of weights, CorruptError where files are damaged or missing.
    """
    from safetensors import SafetensorError, safe_open

    with ExitStack() as stack:
        held: dict[str, Any] = {}
        for file in _files(pathlib.Path(path)):
            try:
                opened = stack.enter_context(safe_open(file, "pt"))
            except SafetensorError as error:
                raise CorruptError(f"{file} is no file of safetensors: {error}") from error
            held.update(dict.fromkeys(opened.keys(), opened))
        chosen: dict[str, str] = {}
        for name, (tensor, known) in parameters.items():
            there = next((other for other in known if other in held), None)
            if there is None:
                raise LayoutError(f"{path} has no tensor {name!r}")
            stored = held[there].get_slice(there)
            shape, dtype = list(stored.get_shape()), stored.get_dtype()
            if shape != list(tensor.shape):
                raise LayoutError(f"{path}: {name!r} has the shape {shape}, and that of the model {list(tensor.shape)}")
            if dtype not in _FLOATS:
                raise LayoutError(f"{path}: {name!r} is {dtype}, and weights are one of {', '.join(_FLOATS)}; convert the file first")
            chosen[name] = there

        @torch.no_grad()
        def copy() -> None:
            for name, (tensor, _) in parameters.items():
                tensor.copy_(held[chosen[name]].get_tensor(chosen[name]))

        yield copy


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file():
        return [path]
    index = path / "model.safetensors.index.json"
    if index.is_file():
        return _shards(index)
    for name in ("model.safetensors", "adapter_model.safetensors"):
        if (path / name).is_file():
            return [path / name]
    raise InputError(f"{path} is no file, and no directory with model.safetensors or adapter_model.safetensors")


def _shards(index: pathlib.Path) -> list[pathlib.Path]:
    """The files that an index names."""
    try:
        files = [index.parent / name for name in sorted(set(json.loads(index.read_bytes())["weight_map"].values()))]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptError(f"{index} is no index of safetensors: {type(error).__name__}: {error}") from error
    for file in files:
        if not file.is_file():
            raise CorruptError(f"{index} names {file.name!r}, which is not there; copy the directory whole")
    return files
