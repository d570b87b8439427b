"""Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models"), many over one frozen base.

    base = forebay.trainer.Base(model)
    solver = base.adapter("solver", rank=16, alpha=32, targets=["q_proj", "v_proj"])
    trainer = forebay.trainer.Trainer(solver)

A layer that an adapter targets becomes a ``LoRALinear``: the same Parameter objects under the same names, and beside them a pair ``A``
[rank, in] and ``B`` [out, rank] for each adapter. It computes ``x W' + alpha / rank * x A' B'``. ``B`` begins as zeros, so a new adapter
computes what the base does.

Adapters are saved in peft's format, and read from it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from .._files import directory_made_whole
from ..errors import InputError, StateError
from .base import PEFT_PREFIX, AdapterSubject, FrozenBase, names_of_linears, refuse_other_linear
from .export import save_tensors
from .parameters import plain_name

__all__ = ["Adapter", "Base", "LoRALinear"]

_PAIRS = "lora_pairs"


class _Switch:
    """Which adapter the layers of a model compute with."""

    active: str | None = None


class _Pair(torch.nn.Module):
    def __init__(self, linear: torch.nn.Linear, rank: int, scale: float, dtype: torch.dtype) -> None:
        super().__init__()
        device = linear.weight.device
        self.scale = scale
        self.A = torch.nn.Parameter(torch.empty(rank, linear.in_features, dtype=dtype, device=device))
        self.B = torch.nn.Parameter(torch.zeros(linear.out_features, rank, dtype=dtype, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow = torch.nn.functional.linear(x.to(self.A.dtype), self.A)
        return torch.nn.functional.linear(narrow, self.B) * self.scale


class LoRALinear(torch.nn.Linear):
    """A linear layer with adapters. It has taken weight and bias over from the layer in whose place it is."""

    def __init__(self, linear: torch.nn.Linear, switch: _Switch) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", linear.bias)
        self.switch = switch
        self.training = linear.training
        self.add_module(_PAIRS, torch.nn.ModuleDict())

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output = torch.nn.functional.linear(input, self.weight, self.bias)
        name, pairs = self.switch.active, self.pairs()
        if name is None or name not in pairs:
            return output
        change: torch.Tensor = pairs[name](input)
        return output + change.to(output.dtype)

    def pairs(self) -> torch.nn.ModuleDict:
        """The pairs of its adapters, by name."""
        pairs = self._modules[_PAIRS]
        assert isinstance(pairs, torch.nn.ModuleDict)
        return pairs


class Base(FrozenBase):
    """A model that is frozen and shared by adapters. The model is changed in place: its parameters are frozen and made views of one
    flat buffer, and layers that adapters target get a pair each."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model, lambda name: f".{_PAIRS}." in name)
        self.adapters: dict[str, Adapter] = {}
        self._switch = _Switch()

    def adapter(
        self,
        name: str,
        *,
        rank: int = 16,
        alpha: float = 32.0,
        targets: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
        dtype: torch.dtype = torch.float32,
        seed: int | None = None,
    ) -> Adapter:
        """A new adapter.

        targets: the layers that it changes, by the ends of their names.
        seed: for its ``A``; torch's random state is left as it is then.
        """
        if not name.isidentifier() or name in self.adapters:
            raise InputError(f"{name!r} is no name for a new adapter; there are {sorted(self.adapters)}")
        if rank < 1:
            raise InputError(f"rank={rank} is no number of dimensions")
        layers = names_of_linears(self.model, targets)
        if not layers:
            raise InputError(f"no linear layer's name ends with one of {list(targets)}; model.named_modules() has them")
        for layer in layers:
            if not isinstance(self._linear(layer), LoRALinear):
                refuse_other_linear(layer, self._linear(layer))
        self.adapters[name] = adapter = Adapter(self, name, layers, rank, alpha, tuple(targets))
        for layer in layers:
            self._wrapped(layer).add_module(name, _Pair(self._linear(layer), rank, alpha / rank, dtype))
        adapter.initialise(seed)
        return adapter

    def remove(self, name: str) -> None:
        """Takes an adapter off the model. Its memory is free when its trainer is gone, too."""
        for layer in self.adapters.pop(name).layers:
            del self._wrapped(layer)[name]

    @contextmanager
    def using(self, name: str | None) -> Iterator[None]:
        """Within it the model computes with an adapter, or with none, and no other thread's does."""
        if name is not None and name not in self.adapters:
            raise InputError(f"there is no adapter {name!r}; there are {sorted(self.adapters)}")
        with self.lock:
            before, self._switch.active = self._switch.active, name
            try:
                yield
            finally:
                self._switch.active = before

    def disabled(self) -> AbstractContextManager[None]:
        """Within it the model computes as the base does."""
        return self.using(None)

    def _linear(self, layer: str) -> torch.nn.Linear:
        linear = self.model.get_submodule(layer)
        assert isinstance(linear, torch.nn.Linear)
        return linear

    def _wrapped(self, layer: str) -> torch.nn.ModuleDict:
        linear = self._linear(layer)
        if not isinstance(linear, LoRALinear):
            linear = LoRALinear(linear, self._switch)
            self.model.set_submodule(layer, linear)
        return linear.pairs()


class Adapter(AdapterSubject):
    """What one agent trains of a base. Made by ``Base.adapter``."""

    def __init__(
        self, base: Base, name: str, layers: list[str], rank: int, alpha: float, targets: tuple[str, ...]
    ) -> None:
        super().__init__(base, self._pairs, lambda on: base.using(name if on else None))
        self.name, self.layers, self.rank, self.alpha, self.targets = name, layers, rank, alpha, targets
        self._base = base

    def _pairs(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Its parameters, by names that do not name the adapter."""
        for layer in self.layers:
            pairs, plain = self._base._wrapped(layer), plain_name(layer)
            if self.name not in pairs:
                raise StateError(f"adapter {self.name!r} was removed from its base; make a new one, and a new trainer of it")
            pair = pairs[self.name]
            yield f"{plain}.lora_A.weight", pair.A  # type: ignore[misc]
            yield f"{plain}.lora_B.weight", pair.B  # type: ignore[misc]

    def settings(self) -> dict[str, Any]:
        next(self._pairs())  # of one that was removed there are none
        return {"alpha": float(self.alpha), "rank": self.rank}

    @torch.no_grad()
    def initialise(self, seed: int | None = None) -> None:
        """``A`` as a linear layer of torch begins (uniform, Kaiming), ``B`` as zeros."""
        random = None if seed is None else torch.Generator().manual_seed(seed)
        for name, parameter in self._pairs():
            if name.endswith("lora_B.weight"):
                parameter.zero_()
                continue
            bound = 1 / math.sqrt(parameter.shape[1])
            drawn = torch.empty(parameter.shape).uniform_(-bound, bound, generator=random)
            parameter.copy_(drawn)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Writes the adapter as peft does: ``adapter_model.safetensors`` and ``adapter_config.json``. The directory is there whole or
        not at all; it must not exist."""
        settings = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": getattr(getattr(self.model, "config", None), "_name_or_path", "") or None,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "target_modules": list(self.targets),
            "lora_dropout": 0.0,
            "bias": "none",
        }
        with directory_made_whole(directory) as made:
            tensors = {PEFT_PREFIX + name: parameter.detach() for name, parameter in self._pairs()}
            save_tensors(tensors, made / "adapter_model.safetensors")
            (made / "adapter_config.json").write_text(json.dumps(settings, indent=2))
