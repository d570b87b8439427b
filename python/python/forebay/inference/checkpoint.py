"""Publications as directories that servers load: of ``transformers`` for a whole model, of ``peft`` for an adapter.

A *template* says all that weights do not: it is the directory that the servers were started with, or, for an adapter, one that
``Trainer.save_pretrained`` or peft has written. Its files are copied (configuration, tokenizer), and so are its tensors that the trainer
does not train. Names and shapes are compared first: a tensor that the template does not have would be loaded by nobody, in silence.

The format is safetensors: 8 bytes of length, a header in JSON, the tensors without gaps. The header's ``__metadata__`` names version and
fingerprint.
"""

from __future__ import annotations

import json
import math
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._files import directory_made_whole
from ..errors import CorruptError, InputError
from .publication import Publication, PublishedTensor

__all__ = ["Template", "write_checkpoint"]

_PEFT_PREFIX = "base_model.model."
_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_CONFIG = "adapter_config.json"
_ADAPTER, _MODEL, _INDEX = "adapter_model.safetensors", "model.safetensors", "model.safetensors.index.json"
_WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".safetensors.index.json", ".bin.index.json")
_HEADER_BYTES = 100_000_000
_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file."""

    file: pathlib.Path
    dtype: str
    """As safetensors names it."""
    shape: tuple[int, ...]
    start: int
    """Of the file, in bytes."""
    end: int

    def chunks(self) -> Iterator[bytes]:
        with open(self.file, "rb") as opened:
            opened.seek(self.start)
            left = self.end - self.start
            while left:
                chunk = opened.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise CorruptError(f"{self.file} ends {left} bytes too early")
                left -= len(chunk)
                yield chunk


class Template:
    """The directory that servers were started with, or a directory of peft."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)
        self.is_adapter = (self.path / _CONFIG).is_file()
        if not self.is_adapter and not (self.path / "config.json").is_file():
            raise InputError(f"{self.path} has no config.json and no adapter_config.json: give what servers were started with")
        self._settings = _adapter_settings(self.path) if self.is_adapter else {}
        self.tensors = {name: tensor for file in self._files() for name, tensor in _read_header(file).items()}

    def _files(self) -> list[pathlib.Path]:
        if self.is_adapter:
            return [self.path / _ADAPTER]
        if (self.path / _INDEX).is_file():
            return _shards(self.path / _INDEX)
        return [self.path / _MODEL]

    def beside_weights(self) -> Iterator[pathlib.Path]:
        """The files that say everything else."""
        for file in sorted(self.path.iterdir()):
            if file.is_file() and not file.name.endswith(_WEIGHT_SUFFIXES):
                yield file

    def refuse_other_settings(self, publication: Publication) -> None:
        """An adapter means something else with another scale, which is in its configuration and in no tensor."""
        for name, key in (("rank", "r"), ("alpha", "lora_alpha")):
            told, published = self._settings.get(key), publication.subject.get(name)
            if told is not None and published is not None and told != published:
                raise InputError(
                    f"{self.path / _CONFIG} has {key} {told}, and the adapter that was published has {published}: take a template that "
                    "its trainer has saved (Trainer.save_pretrained)"
                )

    def name_of(self, tensor: PublishedTensor) -> str:
        """Under which name the files have a published tensor."""
        for name in (tensor.name, _PEFT_PREFIX + tensor.name):
            if name in self.tensors:
                shape = self.tensors[name].shape
                if shape != tensor.shape:
                    raise InputError(f"{self.path}: {name!r} has the shape {list(shape)}, and {list(tensor.shape)} was published")
                return name
        raise InputError(f"{self.path} has no tensor {tensor.name!r}, which was published: servers would not load it")


def write_checkpoint(publication: Publication, template: Template, directory: pathlib.Path) -> Publication:
    """Writes a publication so that servers load it, and gives it with its directory, which is there whole or not at all. One that is
    there already is taken where it is of this version, and refused with CorruptError where not."""
    file = _ADAPTER if template.is_adapter else _MODEL
    written = replace(publication, directory=directory.absolute(), is_adapter=template.is_adapter)
    if directory.is_dir():
        _refuse_another(directory / file, publication)
        return written
    template.refuse_other_settings(publication)
    published = {template.name_of(tensor): tensor for tensor in publication.tensors.values()}
    with directory_made_whole(directory) as made:
        for beside in template.beside_weights():
            shutil.copyfile(beside, made / beside.name)
        _write(made / file, publication, template, published)
    return written


def _write(
    file: pathlib.Path, publication: Publication, template: Template, published: Mapping[str, PublishedTensor]
) -> None:
    version = publication.version
    metadata = {"format": "pt", "policy_version": str(version.number), "fingerprint": version.fingerprint}
    header: dict[str, object] = {"__metadata__": metadata}
    at = 0
    names = [*published, *(name for name in template.tensors if name not in published)]
    for name in names:
        tensor = published.get(name)
        stored = template.tensors[name]
        start, end = tensor.bytes if tensor else (stored.start, stored.end)
        dtype = _DTYPES[tensor.dtype] if tensor else stored.dtype
        header[name] = {"dtype": dtype, "shape": list(stored.shape), "data_offsets": [at, at + end - start]}
        at += end - start
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)
    with open(file, "wb") as opened:
        opened.write(len(told).to_bytes(8, "little") + told)
        for name in names:
            pieces = [publication.memory(published[name])] if name in published else template.tensors[name].chunks()
            for piece in pieces:
                opened.write(piece)


def _adapter_settings(path: pathlib.Path) -> dict[str, Any]:
    return _mapping(path / _CONFIG, (path / _CONFIG).read_bytes(), "configuration of peft")


def _shards(index: pathlib.Path) -> list[pathlib.Path]:
    """The files that an index names."""
    names = _mapping(index, index.read_bytes(), "index of safetensors").get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CorruptError(f"{index} is no index of safetensors: its weight_map is {str(names)[:60]}")
    return [index.parent / name for name in sorted(set(names.values()))]


def _mapping(file: pathlib.Path, text: bytes, what: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{file} is no {what}: {error}") from error
    if not isinstance(told, dict):
        raise CorruptError(f"{file} is no {what}: it is {str(told)[:60]}")
    return told


def _read_header(file: pathlib.Path) -> dict[str, StoredTensor]:
    found, base, size = _header(file)
    return {name: _stored(file, name, told, base, size) for name, told in found.items() if name != "__metadata__"}


def _stored(file: pathlib.Path, name: str, told: Any, base: int, size: int) -> StoredTensor:
    """A tensor as the header tells it."""
    try:
        dtype, shape, (start, end) = told["dtype"], tuple(told["shape"]), told["data_offsets"]
        numbers = (*shape, start, end)
        is_right = isinstance(dtype, str) and all(type(number) is int and number >= 0 for number in numbers)
    except (LookupError, TypeError, ValueError) as error:
        raise CorruptError(f"{file}: the header's entry {name!r} cannot be read: {error}") from error
    if not is_right:
        raise CorruptError(f"{file}: the header's entry {name!r} cannot be read: {str(told)[:100]}")
    if not start <= end <= size - base:
        raise CorruptError(f"{file}: {name!r} lies at bytes {start} to {end} of {size - base}")
    width = _WIDTHS.get(dtype)
    if width is not None and end - start != width * math.prod(shape):
        raise CorruptError(f"{file}: {name!r} is {dtype} {list(shape)}, and has {end - start} bytes")
    return StoredTensor(file, dtype, shape, base + start, base + end)


def _header(file: pathlib.Path) -> tuple[dict[str, Any], int, int]:
    """The header of a file, where its tensors begin, and how long it is."""
    try:
        with open(file, "rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > _HEADER_BYTES:
                raise CorruptError(f"{file} is no file of safetensors: its header would have {length} bytes")
            return _mapping(file, opened.read(length), "file of safetensors"), 8 + length, file.stat().st_size
    except FileNotFoundError as error:
        raise InputError(f"{file} does not exist; a template has its weights in safetensors") from error


def _refuse_another(file: pathlib.Path, publication: Publication) -> None:
    metadata = _header(file)[0].get("__metadata__")
    told = metadata.get("fingerprint") if isinstance(metadata, dict) else None
    if told != publication.version.fingerprint:
        raise CorruptError(f"{file} is of the fingerprint {told}, and {publication.version.label} was to be there; remove it")
