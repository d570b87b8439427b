"""AdamW over flat buffers.

Loshchilov and Hutter, "Decoupled Weight Decay Regularization", as torch computes it: the fused kernel of ``torch.optim.AdamW``, called
once for what decays and once for what does not, whatever the number of tensors. Where weights are narrower than fp32 it moves an fp32
master, and the weights are its rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.optim.adamw import adamw

from ..errors import InputError
from .flat import FlatWeights, allocate
from .layout import Layout, Segment

__all__ = ["AdamW", "FlatAdamW"]


@dataclass(frozen=True)
class AdamW:
    """The settings of AdamW, with the defaults of torch.

    decay: what weight decay is for: ``"all"`` parameters, as in torch, or ``"matrices"`` (of two dimensions or more), which leaves out
        biases and the weights of norms.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    decay: Literal["all", "matrices"] = "all"

    def __post_init__(self) -> None:
        checks = {
            "lr": self.lr >= 0,
            "eps": self.eps > 0,
            "weight_decay": self.weight_decay >= 0,
            "betas": all(0 <= beta < 1 for beta in self.betas),
            "decay": self.decay in ("all", "matrices"),
        }
        for name, holds in checks.items():
            if not holds:
                raise InputError(f"AdamW({name}={getattr(self, name)!r}) is out of range")

    @property
    def identity(self) -> dict[str, object]:
        """What moments are made by, as JSON has it: all but the learning rate, which changes from step to step."""
        return {"betas": list(self.betas), "eps": self.eps, "weight_decay": self.weight_decay}

    def decays(self, name: str, parameter: torch.Tensor) -> bool:
        return self.decay == "all" or parameter.dim() >= 2


class FlatAdamW:
    """Master weights and moments of a layout."""

    def __init__(self, settings: AdamW, layout: Layout, weights: FlatWeights) -> None:
        self.settings, self.layout, self.weights = settings, layout, weights
        self.regain()
        self.take_weights()

    def regain(self) -> None:
        """Takes memory, of zeros."""
        device, narrow = self.weights.device, [segment for segment in self.layout.segments if segment.dtype != torch.float32]
        self.exp_avg = allocate(self.layout.elements, torch.float32, device, "first moments")
        self.exp_avg_sq = allocate(self.layout.elements, torch.float32, device, "second moments")
        self.master = allocate(sum(segment.elements for segment in narrow), torch.float32, device, "master weights")

    def release(self) -> None:
        """Gives the memory back."""
        self.exp_avg, self.exp_avg_sq, self.master = (torch.empty(0, device=self.weights.device) for _ in range(3))

    def masters(self) -> list[tuple[Segment, torch.Tensor]]:
        """The fp32 weights of each segment: the weights themselves, or a piece of the master."""
        found, at = [], 0
        for segment in self.layout.segments:
            if segment.dtype == torch.float32:
                found.append((segment, self.weights.buffers[segment.dtype]))
            else:
                found.append((segment, self.master[at : at + segment.elements]))
                at += segment.elements
        return found

    @torch.no_grad()
    def take_weights(self) -> None:
        """Makes the master what the weights are."""
        for segment, master in self.masters():
            if segment.dtype != torch.float32:
                master.copy_(self.weights.buffers[segment.dtype])

    @torch.no_grad()
    def step(self, gradient: torch.Tensor, update: int, lr: float | None = None) -> None:
        """Moves the weights along a gradient. update: which one this is, from 1. lr: in place of that of the settings."""
        for decay, spans in ((self.settings.weight_decay, self._spans(True)), (0.0, self._spans(False))):
            if spans:
                self._apply(spans, gradient, update, self.settings.lr if lr is None else lr, decay)
        for segment, master in self.masters():
            if segment.dtype != torch.float32:
                self.weights.buffers[segment.dtype].copy_(master)

    def _spans(self, decayed: bool) -> list[tuple[torch.Tensor, int]]:
        """Pieces of the master, each with where it begins in buffers over all segments."""
        spans = []
        for segment, master in self.masters():
            start, end = (0, segment.decayed) if decayed else (segment.decayed, segment.elements)
            if end > start:
                spans.append((master[start:end], segment.start + start))
        return spans

    def _apply(
        self, spans: list[tuple[torch.Tensor, int]], gradient: torch.Tensor, update: int, lr: float, decay: float
    ) -> None:
        beside = lambda flat: [flat[start : start + piece.numel()] for piece, start in spans]
        counts = [torch.full((), float(update - 1), device=gradient.device) for _ in spans]
        adamw(
            [piece for piece, _ in spans], beside(gradient), beside(self.exp_avg), beside(self.exp_avg_sq), [], counts,
            fused=True, amsgrad=False, maximize=False, lr=lr, weight_decay=decay, eps=self.settings.eps,
            beta1=self.settings.betas[0], beta2=self.settings.betas[1],
        )  # fmt: skip

    def payloads(self) -> dict[str, torch.Tensor]:
        own = {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        is_narrow = any(segment.dtype != torch.float32 for segment in self.layout.segments)
        return {"master": self.master, **own} if is_narrow else own
