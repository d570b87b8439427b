"""What a trainer trains: a whole model, or an adapter of one.

A *subject* says which parameters are trained, has what is frozen, and makes the model compute with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch

from ..errors import InputError, StateError
from .flat import FlatWeights
from .layout import Layout
from .parameters import Bound, plain_name, unique

__all__ = ["Subject", "WholeModel"]

Decays = Callable[[str, torch.Tensor], bool]


class Subject(Protocol):
    """What is trained. A trainer calls ``bind`` once, and ``check`` before every micro-batch and commit."""

    model: Any
    """What is called with tokens."""
    weights: FlatWeights
    """The trained parameters, once bound."""
    trained: dict[str, torch.nn.Parameter]
    """Them, by name."""

    def bind(self, decays: Decays) -> None:
        """Moves the trained parameters into flat buffers."""

    def check(self) -> None:
        """Raises ParameterChangedError where a parameter is not as it was left."""

    def adopt(self) -> None:
        """Takes parameters in as they are now."""

    def written(self) -> None:
        """The trained parameters have other values now: graphs that were made of them are of before."""

    def identity(self) -> dict[str, Any]:
        """What gradients of it depend on beside what is trained and stored: the base of an adapter, and its scale. As JSON has it."""

    def active(self) -> AbstractContextManager[None]:
        """Within it the model computes with what is trained."""

    def disabled(self) -> AbstractContextManager[None]:
        """Within it the model computes without: as the reference. StateError where there is no such thing."""

    def named_views(self) -> dict[str, tuple[torch.Tensor, list[str]]]:
        """By name, what can be loaded from a file: the memory, and the names that it may have there."""

    def owned(self) -> dict[str, torch.Tensor]:
        """What else is the subject's own and belongs to its state, by name."""

    def release(self) -> None:
        """Gives the memory of what it owns back."""

    def regain(self) -> None:
        """Takes memory for it again."""


class WholeModel:
    """A model of which all parameters that require a gradient are trained. The others are frozen, in a flat buffer of their own.

    Tied weights lie in a buffer once. Buffers of the module that it stores (running statistics) stay where they are, and belong to its
    state.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model: Any = model
        self.trained: dict[str, torch.nn.Parameter] = {}

    def named(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            yield plain_name(name), parameter

    def bind(self, decays: Decays) -> None:
        parameters = unique(self.named())
        trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
        frozen = {name: parameter for name, parameter in parameters.items() if not parameter.requires_grad}
        device = one_device(trained, "the model has no parameter that requires a gradient; thaw some, or train an adapter")
        one_device(parameters, "the model has no parameters")
        self.weights = FlatWeights(Layout.of(trained, decays), device, "weights")
        self.frozen = FlatWeights(Layout.of(frozen, lambda *_: False), device, "frozen weights")
        self.bound = Bound(self.named, self.weights, self.frozen)
        self.trained = trained

    def check(self) -> None:
        self.bound.check()

    def written(self) -> None:
        self.bound.written()

    def identity(self) -> dict[str, Any]:
        return {}

    def adopt(self) -> None:
        self.bound.take()
        first = unique(self.named())
        self.trained = {name: first[name] for name in self.trained}

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def disabled(self) -> Iterator[None]:
        raise StateError(
            "the whole model is trained, so nothing of it is the reference; give reference_logprobs as a column (a task of another "
            "model writes them), or train an adapter"
        )
        yield

    def named_views(self) -> dict[str, tuple[torch.Tensor, list[str]]]:
        return self.bound.views()

    def owned(self) -> dict[str, torch.Tensor]:
        names = {plain_name(name) for name, _ in self.model.named_parameters(remove_duplicate=False)}
        stored = {plain_name(name): tensor for name, tensor in self.model.state_dict(keep_vars=True).items()}
        buffers = {f"buffer.{name}": t for name, t in stored.items() if name not in names and isinstance(t, torch.Tensor)}
        return {**self.frozen.payloads("frozen"), **buffers}

    def release(self) -> None:
        self.bound.release()

    def regain(self) -> None:
        self.bound.regain()


def one_device(parameters: dict[str, torch.nn.Parameter], if_none: str) -> torch.device:
    """The device of all parameters."""
    if not parameters:
        raise InputError(if_none)
    devices = {parameter.device: name for name, parameter in parameters.items()}
    if len(devices) > 1:
        told = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise InputError(f"parameters are on several devices ({told}); a flat buffer lies on one: call model.to(...) first")
    return next(iter(devices))
