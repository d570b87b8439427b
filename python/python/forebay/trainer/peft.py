"""Adapters of the library peft, trained as one's own are: over one frozen base, each with a trainer.

    base = forebay.trainer.PeftBase(peft.get_peft_model(model, config, adapter_name="solver"))
    trainer = forebay.trainer.Trainer(base.adapter("solver"))

An adapter that is added to the model later (``add_adapter``) is taken with ``base.adapter`` like the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .._files import directory_made_whole
from ..errors import InputError
from .base import AdapterSubject, FrozenBase
from .parameters import plain_name

__all__ = ["PeftAdapter", "PeftBase"]


class PeftBase(FrozenBase):
    """A ``peft.PeftModel`` with LoRA adapters. Its base is frozen and moved into one flat buffer."""

    def __init__(self, model: Any) -> None:
        if not hasattr(model, "peft_config"):
            raise InputError(f"{type(model).__name__} is no peft.PeftModel; for a plain model take forebay.trainer.Base")
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and ".lora_" not in name:
                raise InputError(
                    f"parameter {name!r} is trained beside the adapters (modules_to_save, or another method than LoRA); a base that is "
                    "shared has none of that: leave it out of the adapter's configuration"
                )
        super().__init__(model, lambda name: ".lora_" in name)

    def adapter(self, name: str) -> PeftAdapter:
        """What a trainer trains of an adapter that the model has."""
        if name not in self.model.peft_config:
            raise InputError(f"the model has no adapter {name!r}; it has {sorted(self.model.peft_config)}")
        return PeftAdapter(self, name)

    @contextmanager
    def using(self, name: str | None) -> Iterator[None]:
        """Within it the model computes with an adapter, or with none, and no other thread's does."""
        with self.lock:
            if name is None:
                with self.model.disable_adapter():
                    yield
                return
            before = self.model.active_adapter
            if before != name:
                self.model.set_adapter(name)
            try:
                yield
            finally:
                if before != name:
                    self.model.set_adapter(before)


class PeftAdapter(AdapterSubject):
    """An adapter of a ``peft.PeftModel``. Made by ``PeftBase.adapter``."""

    def __init__(self, base: PeftBase, name: str) -> None:
        super().__init__(base, self._own, lambda on: base.using(name if on else None))
        self.name = name

    def _own(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Its parameters, by names that do not name the adapter."""
        for full, parameter in self.model.named_parameters(remove_duplicate=False):
            layer, _, kind = full.partition(".lora_")
            matrix, is_own, rest = kind.partition(f".{self.name}")  # A.solver.weight; embedding_A.solver
            if is_own and rest in ("", ".weight", ".bias"):
                yield f"{plain_name(layer)}.lora_{matrix}{rest}", parameter

    def settings(self) -> dict[str, Any]:
        config = self.model.peft_config[self.name]
        patterns = {**getattr(config, "rank_pattern", {}), **getattr(config, "alpha_pattern", {})}
        uniform = {"alpha": float(config.lora_alpha), "rank": config.r}
        return uniform | {"variant": [bool(getattr(config, "use_rslora", False)), bool(getattr(config, "use_dora", False)), patterns]}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Writes the adapter with peft. The directory is there whole or not at all; it must not exist."""
        with directory_made_whole(directory) as made:
            self.model.save_pretrained(made, selected_adapters=[self.name])
            own = made / self.name  # where peft puts all but the one that is called default
            for file in own.iterdir() if own.is_dir() else ():
                file.rename(made / file.name)
            if own.is_dir():
                own.rmdir()
