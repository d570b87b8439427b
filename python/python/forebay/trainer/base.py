"""One frozen base that the adapters of all agents of a device share.

The base's parameters lie in a flat buffer and are trained by nobody. An adapter owns its own parameters alone, so that n agents take the
base once and n times the little that is trained. Which adapter the model computes with is one word that its layers read: switching
copies nothing.

A lock goes with the word: an adapter is active, or all are off, for one thread at a time, forward and backward pass included, since
checkpointed layers are computed again in the backward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from .._fingerprint import fingerprint_of_weights
from ..errors import InputError
from .flat import FlatWeights, storage_bytes
from .layout import Layout
from .parameters import Bound, plain_name, unique
from .subject import Decays, one_device

__all__ = ["AdapterSubject", "FrozenBase"]


PEFT_PREFIX = "base_model.model."
"""What peft puts before the names of a model's modules."""


class FrozenBase:
    """A model whose own parameters are frozen, in one flat buffer a type.

    is_adapter: by the name of a parameter, whether it is an adapter's and not the base's.
    """

    def __init__(self, model: torch.nn.Module, is_adapter: Callable[[str], bool]) -> None:
        self.model: Any = model
        self.is_adapter = is_adapter
        self.lock = threading.RLock()
        self._fingerprint: str | None = None
        parameters = unique(self.named())
        device = one_device(parameters, "the model has no parameters")
        layout = Layout.of(parameters, lambda *_: False)
        self.frozen = FlatWeights(layout, device, "frozen base")
        for parameter in parameters.values():
            parameter.requires_grad_(False)
        self.bound = Bound(self.named, None, self.frozen)

    @property
    def device(self) -> torch.device:
        return self.frozen.device

    @property
    def bytes(self) -> int:
        """How much memory the base takes."""
        return storage_bytes(*self.frozen.buffers.values())

    def named(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            if not self.is_adapter(name):
                yield plain_name(name), parameter

    def adopt(self) -> None:
        """Takes the base in as it is now, for all of its adapters."""
        self._fingerprint = None
        self.bound.take()

    @property
    def fingerprint(self) -> str:
        """A hash of the frozen weights, computed when it is first asked for: the same for the same bits anywhere."""
        if self._fingerprint is None:
            buffers = sorted(self.frozen.payloads("frozen").items())
            memory = ((name, buffer.view(torch.uint8).cpu().numpy().data) for name, buffer in buffers)
            self._fingerprint = fingerprint_of_weights(self.frozen.layout.fingerprint, memory)
        return self._fingerprint


class AdapterSubject:
    """An adapter, as a trainer sees it. Its base belongs to no trainer, and to no state of one.

    named: a function that gives its parameters as the model has them now.
    switched: makes the model compute with the adapter, or without any, and holds the base's lock meanwhile.
    """

    def __init__(
        self,
        base: FrozenBase,
        named: Callable[[], Iterator[tuple[str, torch.nn.Parameter]]],
        switched: Callable[[bool], AbstractContextManager[None]],
    ) -> None:
        self.base, self.model, self.named, self._switched = base, base.model, named, switched
        self.trained: dict[str, torch.nn.Parameter] = {}

    def bind(self, decays: Decays) -> None:
        with self.active():  # some libraries let only the active one require gradients
            self.trained = unique(self.named())
            device = one_device(self.trained, "the adapter has no parameters")
            self.weights = FlatWeights(Layout.of(self.trained, decays), device, "adapter weights")
            self.bound = Bound(self.named, self.weights, None)

    def check(self) -> None:
        self.base.bound.check()
        with self.active():
            self.bound.check()

    def written(self) -> None:
        self.bound.written()

    def settings(self) -> dict[str, Any]:
        """What its parameters are multiplied by, and where, as JSON has it."""
        return {}

    def identity(self) -> dict[str, Any]:
        return {"base": self.base.fingerprint, **self.settings()}

    def adopt(self) -> None:
        with self.active():
            self.base.adopt()
            self.bound.take()
            self.trained = unique(self.named())

    @contextmanager
    def active(self) -> Iterator[None]:
        with self._switched(True):
            yield

    @contextmanager
    def disabled(self) -> Iterator[None]:
        with self._switched(False):
            yield

    def named_views(self) -> dict[str, tuple[torch.Tensor, list[str]]]:
        views = self.bound.views()
        return {name: (view, [*known, *(PEFT_PREFIX + other for other in known)]) for name, (view, known) in views.items()}

    def owned(self) -> dict[str, torch.Tensor]:
        return {}

    def release(self) -> None:
        self.bound.release()

    def regain(self) -> None:
        self.bound.regain()


def names_of_linears(model: torch.nn.Module, targets: Sequence[str]) -> list[str]:
    """The linear layers whose name ends with one of these."""
    ends = tuple(f".{target}" for target in targets)
    linears = (name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    return [name for name in linears if f".{plain_name(name)}".endswith(ends)]


_CALLED = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def refuse_other_linear(name: str, linear: torch.nn.Module) -> None:
    """Refuses a layer that computes something else than torch.nn.Linear does: an adapter would replace that."""
    what = f"is a {type(linear).__name__}" if type(linear) is not torch.nn.Linear else ""
    if not what and any(getattr(linear, hooks) for hooks in _CALLED):
        what = "has hooks"
    if not what and "forward" in vars(linear):
        what = "has a forward of its own"
    if what:
        raise InputError(
            f"layer {name!r} {what}, which an adapter would take away: it goes beside a plain torch.nn.Linear. Leave it out of the targets, "
            "let peft wrap the model (PeftBase), or take hooks off first and put them on again afterwards"
        )
