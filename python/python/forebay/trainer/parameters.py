"""The parameters of a module that lie in flat buffers, and whether they still do.

A module may give a parameter other memory at any time: ``to``, ``load_state_dict(assign=True)``, a parametrisation, another trainer.
Gradients would then be of weights that the optimiser never writes. So before each micro-batch every parameter is compared: the object
that the module has under each of its names, the address of its memory, whether it is trained, and how often it was written to in
place. Writing through ``parameter.data`` is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from ..errors import InputError
from .errors import LayoutError, ParameterChangedError, ShardedParameterError
from .flat import FlatWeights, stand_in
from .layout import Entry

__all__ = ["Bound", "Named", "plain_name", "unique"]

Named = Iterable[tuple[str, torch.nn.Parameter]]
"""Parameters by name; one that a module has twice comes under both names."""

TRAINABLE = (torch.float32, torch.bfloat16, torch.float16)


def plain_name(name: str) -> str:
    """A parameter's name without what wrappers of torch put into it."""
    return name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")


def unique(named: Named) -> dict[str, torch.nn.Parameter]:
    """Each parameter once, under its first name. Refuses what cannot lie in a flat buffer."""
    found: dict[int, str] = {}
    parameters: dict[str, torch.nn.Parameter] = {}
    for name, parameter in named:
        if found.setdefault(id(parameter), name) == name:
            _refuse(name, parameter)
            parameters[name] = parameter
    _refuse_overlaps(parameters)
    return parameters


def _refuse(name: str, parameter: torch.nn.Parameter) -> None:
    if _is_sharded(parameter):
        raise ShardedParameterError(
            f"parameter {name!r} is a DTensor, spread over a mesh of devices (fully_shard, tensor parallel); a flat buffer holds "
            "whole tensors: train it unsharded, or train an adapter of each rank's whole copy"
        )
    if type(parameter) is not torch.nn.Parameter:
        raise ShardedParameterError(
            f"parameter {name!r} is a {type(parameter).__name__}, which has more than plain memory (a quantised weight, say); give "
            "a model whose parameters are torch.nn.Parameter"
        )
    if parameter.is_meta:
        raise InputError(
            f"parameter {name!r} is on the device 'meta' and has no values; call model.to_empty(device=...) and load them first"
        )
    if parameter.requires_grad and parameter.dtype not in TRAINABLE:
        raise InputError(
            f"parameter {name!r} is {parameter.dtype}; what is trained is float32, bfloat16 or float16: call model.to(...) first"
        )


def _is_sharded(parameter: torch.Tensor) -> bool:
    if not torch.distributed.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(parameter, DTensor) or isinstance(parameter.data, DTensor)


def _refuse_overlaps(parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """Two parameters over the same memory would be parted silently."""
    last_end, last = -1, ""
    there = [(parameter.data_ptr(), name) for name, parameter in parameters.items() if parameter.numel()]
    for start, name in sorted(there):
        parameter = parameters[name]
        if start < last_end:
            raise InputError(
                f"parameters {last!r} and {name!r} are two objects over the same memory; to tie them, let the module have the same "
                "Parameter under both names (model.tie_weights() of transformers, after load_state_dict(assign=True))"
            )
        span = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride())) + 1
        last_end, last = start + span * parameter.dtype.itemsize, name


@dataclass(frozen=True)
class _Place:
    parameter: torch.nn.Parameter
    entry: Entry
    flat: FlatWeights
    is_trained: bool
    written: int


class Bound:
    """Parameters that were made views of flat buffers.

    named: a function that gives the parameters as the module has them now.
    trained, frozen: the buffers that they lie in.
    """

    def __init__(self, named: Callable[[], Named], trained: FlatWeights | None, frozen: FlatWeights | None) -> None:
        self.named, self.trained, self.frozen = named, trained, frozen
        self.places: dict[str, _Place] = {}
        self.take()

    def take(self) -> None:
        """Copies all parameters into their buffers, as they are now, and makes them views. Raises LayoutError, and changes nothing,
        where they are others than before."""
        now = list(self.named())
        parameters = unique(now)
        entries = {entry.name: (entry, flat) for flat in self._flats() for entry in flat.layout.entries()}
        self._compare(parameters, entries)
        written = {buffer.untyped_storage().data_ptr() for flat in self._flats() for buffer in flat.buffers.values()}
        moved = [flat.moved(parameters, written) for flat in self._flats()]
        for flat, values in zip(self._flats(), moved):
            flat.take(parameters, values)
        first = {id(parameter): name for name, parameter in parameters.items()}
        self.places = {}
        for name, parameter in now:
            entry, flat = entries[first[id(parameter)]]
            self.places[name] = _Place(parameter, entry, flat, flat is self.trained, parameter._version)

    def written(self) -> None:
        """Says that the buffers were written to: what autograd has saved of the parameters is of other values, and a backward pass
        through it is refused by torch."""
        for place in {id(place.parameter): place for place in self.places.values() if place.is_trained}.values():
            torch.autograd.graph.increment_version(place.parameter)
        self.places = {name: replace(place, written=place.parameter._version) for name, place in self.places.items()}

    def release(self) -> None:
        """Gives the memory of all buffers back. Parameters are stand-ins until it is regained."""
        for place in self.places.values():
            place.parameter.data = stand_in(place.entry, place.flat.device)
        for flat in self._flats():
            flat.release()

    def regain(self) -> None:
        """Takes memory again, and points the parameters at it. What is in it is to be filled in."""
        for flat in self._flats():
            flat.regain()
        for place in self.places.values():
            place.parameter.data = place.flat.view(place.entry)

    def _flats(self) -> list[FlatWeights]:
        return [flat for flat in (self.trained, self.frozen) if flat is not None]

    def views(self) -> dict[str, tuple[torch.Tensor, list[str]]]:
        """By first name: the memory that each parameter is a view of, and all names that the module has it under."""
        found: dict[str, tuple[torch.Tensor, list[str]]] = {}
        for name, place in self.places.items():
            found.setdefault(place.entry.name, (place.flat.view(place.entry), []))[1].append(name)
        return found

    def _compare(
        self, parameters: Mapping[str, torch.nn.Parameter], entries: Mapping[str, tuple[Entry, FlatWeights]]
    ) -> None:
        for name in parameters.keys() ^ entries.keys():
            have = "has a parameter" if name in parameters else "no longer has the parameter"
            raise LayoutError(f"the model {have} {name!r}, other than when the trainer was made; make a new one")
        for name, parameter in parameters.items():
            entry, flat = entries[name]
            there = (parameter.dtype, tuple(parameter.shape), parameter.device, parameter.requires_grad)
            wanted = (entry.dtype, entry.shape, flat.device, flat is self.trained)
            if there != wanted:
                raise LayoutError(
                    f"parameter {name!r} is {_told(*there)}, and was {_told(*wanted)} when the trainer was made; make a new one"
                )

    def check(self) -> None:
        """Raises ParameterChangedError where a parameter is not as it was left."""
        seen = 0
        for name, parameter in self.named():
            place = self.places.get(name)
            if place is None:
                raise ParameterChangedError(f"the model has a parameter {name!r} that it had not; make a new trainer")
            seen += 1
            reason = _change(parameter, place)
            if reason:
                raise ParameterChangedError(
                    f"parameter {name!r} {reason}; call adopt() on the trainer to go on from its values as they are, or make a "
                    "new trainer"
                )
        if seen != len(self.places):
            gone = sorted(self.places.keys() - {name for name, _ in self.named()})
            raise ParameterChangedError(f"the model no longer has the parameter {gone[0]!r}; make a new trainer")


def _change(parameter: torch.nn.Parameter, place: _Place) -> str | None:
    if parameter is not place.parameter:
        return "is another object than it was (load_state_dict(assign=True) makes new ones)"
    if parameter.numel() and parameter.data_ptr() != place.flat.address(place.entry):
        return "lies in other memory than the trainer's buffer (model.to(...), or another trainer)"
    if parameter.dtype != place.entry.dtype or tuple(parameter.shape) != place.entry.shape:
        return "has another type or shape than it had"
    if not parameter.is_contiguous():
        return f"has the strides {list(parameter.stride())}: it reads its memory in another order (.data = .t(), as_strided)"
    if parameter.requires_grad != place.is_trained:
        return "was frozen" if place.is_trained else "was thawed: it requires a gradient now"
    if parameter._version != place.written:
        return "was written to by somebody else (load_state_dict, another optimiser)"
    return None


def _told(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device, is_trained: bool) -> str:
    return f"{dtype} {list(shape)} on {device}, {'trained' if is_trained else 'frozen'}"
