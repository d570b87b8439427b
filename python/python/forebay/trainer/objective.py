"""Losses as numerators.

What is divided by is not known before the last micro-batch of a step: the tokens of the whole batch, or its rows. So a loss here is a
*numerator*, a sum without a division over the batch, and the *denominator* that belongs to it; both add up over micro-batches, and one
division at the commit gives the gradient of the whole batch, however it was cut. The mean of the means of micro-batches is another
number as soon as their token counts differ.

With ``l`` the loss of a token and ``m`` its mask, ``sum_t`` over a row and ``sum_i`` over the rows:

=========== ============================================== ===================================
form        numerator                                      denominator
=========== ============================================== ===================================
``grpo``    ``sum_i (sum_t l m) / max(sum_t m, 1)``        rows (Shao et al., DeepSeekMath)
``dapo``    ``sum_i sum_t l m``                            tokens (Yu et al., DAPO)
``dr_grpo`` ``sum_i sum_t l m``                            rows x ``length`` (Liu et al., Dr. GRPO)
=========== ============================================== ===================================

    ratio = exp(logprob - old)           l = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) w + kl k3
    w = min(exp(old - behaviour), importance_cap)      k3 = exp(reference - logprob) - (reference - logprob) - 1    (x ratio: unbiased_kl)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal, Protocol

import torch

from ..errors import InputError
from .batch import MicroBatch
from .naming import name_of

__all__ = ["AdvantageTerm", "Numerator", "Objective", "PolicyGradient", "identity_of", "token_logprobs"]


@dataclass(frozen=True)
class Numerator:
    """What one micro-batch adds."""

    value: torch.Tensor
    """A scalar with a gradient: a sum, not a mean."""
    denominator: float
    """What this micro-batch adds to what the sum is divided by at last."""
    metrics: dict[str, torch.Tensor] = field(default_factory=dict)
    """Sums over trained tokens; a commit divides them by the tokens."""


@dataclass(frozen=True)
class AdvantageTerm:
    """How a loss depends on the advantage, where it is linear in it: what early training asks for (``advantage_term``)."""

    by_sign: bool
    """Whether it is linear only for advantages of one sign, as a clipped ratio is."""
    rest: bool
    """Whether it has terms without the advantage, as a KL penalty is."""


class Objective(Protocol):
    """A loss of micro-batches. One that is no dataclass and has settings has an ``identity``, too: a text that names them, by which a
    state and other ranks are compared. One that can be trained early has an ``advantage_term``, as ``PolicyGradient`` has."""

    @property
    def needs_reference(self) -> bool:
        """Whether it reads ``reference_logprobs``."""

    def logprobs(self, model: Any, batch: MicroBatch) -> torch.Tensor:
        """The log-probability of each token: [rows, length]."""

    def __call__(self, logprobs: torch.Tensor, batch: MicroBatch) -> Numerator: ...


def identity_of(objective: Objective) -> str:
    """What a loss is called where gradients of one must not be added to those of another: its ``identity``, where it has one; else its
    class, and its fields where that is a dataclass. The same in every process: InputError where something in it has no such name."""
    told = getattr(objective, "identity", None)
    is_named = isinstance(told, str) or is_dataclass(objective)
    return name_of(objective if is_named else type(objective))


def token_logprobs(model: Any, batch: MicroBatch, temperature: float = 1.0) -> torch.Tensor:
    """The log-probability of each token after those before it, by a causal language model of ``transformers``: [rows, length],
    float32, 0 for the first of a row."""
    told = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
    logits = told.logits[:, :-1].float() / temperature
    targets = batch.input_ids[:, 1:]
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return torch.nn.functional.pad(-losses.view(targets.shape), (1, 0))


@dataclass(frozen=True)
class PolicyGradient:
    """The group-relative policy gradient in its forms, with clip, penalty and importance weights.

    form: see the table of this module. ``length`` is for ``dr_grpo``: the constant, as a rule the greatest length of a response.
    clip_low, clip_high: how far the ratio may move before its gradient ends.
    kl: the weight of the penalty. With an adapter and no ``reference_logprobs`` its base is the reference.
    unbiased_kl: multiplies the penalty by the ratio, whose gradient is then that of the reverse KL divergence (DeepSeek-V3.2).
    importance_cap: where importance weights are truncated. ``None``: there are none.
    temperature: what logits are divided by, as the sampler does.
    forward: how log-probabilities come of a model: a function of the model, the micro-batch and the temperature.
    name: what ``forward`` is called, where it is an object without a name that is the same in every process.
    """

    form: Literal["grpo", "dapo", "dr_grpo"] = "dapo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    unbiased_kl: bool = False
    importance_cap: float | None = None
    length: int | None = None
    temperature: float = 1.0
    forward: Callable[[Any, MicroBatch, float], torch.Tensor] = token_logprobs
    name: str | None = None

    def __post_init__(self) -> None:
        if self.form not in ("grpo", "dapo", "dr_grpo"):
            raise InputError(f"{self.form!r} is no form of the loss; it is 'grpo', 'dapo' or 'dr_grpo'")
        if (self.form == "dr_grpo") != (self.length is not None):
            raise InputError(f"length={self.length!r} with form={self.form!r}: 'dr_grpo' has a length, the others have none")
        if self.length is not None and self.length <= 0:
            raise InputError(f"length={self.length!r} is no number of tokens to divide by")
        for name in ("clip_low", "clip_high", "kl"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}={getattr(self, name)!r} is not 0 or more")
        if not self.temperature > 0 or (self.importance_cap is not None and not self.importance_cap > 0):
            raise InputError(f"temperature={self.temperature!r} and importance_cap={self.importance_cap!r} are to be above 0")

        identity_of(self)  # who has no name is told so now

    @property
    def needs_reference(self) -> bool:
        return self.kl > 0

    @property
    def unread(self) -> tuple[str, ...]:
        """What of a micro-batch it does not read though it could: a column of that name would be there for nothing."""
        return ("behaviour_logprobs",) if self.importance_cap is None else ()

    def advantage_term(self, has_old_logprobs: bool) -> AdvantageTerm:
        """Without log-probabilities to be compared with the ratio is 1, and nothing is clipped."""
        return AdvantageTerm(by_sign=has_old_logprobs, rest=self.kl > 0)

    def logprobs(self, model: Any, batch: MicroBatch) -> torch.Tensor:
        return self.forward(model, batch, self.temperature)

    def __call__(self, logprobs: torch.Tensor, batch: MicroBatch) -> Numerator:
        trained = batch.loss_mask != 0
        difference = lambda a, b: torch.where(trained, a - b, 0.0)
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
        ratio = torch.exp(difference(logprobs, old))
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        losses = -torch.minimum(ratio * batch.advantages, clipped * batch.advantages)
        metrics = {"clip_share": _sum((ratio * batch.advantages > clipped * batch.advantages) & trained)}
        if self.importance_cap is not None:
            behaviour = _there(batch.behaviour_logprobs, "importance_cap", "behaviour_logprobs")
            weights = torch.exp(difference(old, behaviour)).clamp(max=self.importance_cap)
            losses = losses * weights
            metrics["importance_weight"] = _sum(weights * trained)
        if self.needs_reference:
            apart = difference(_there(batch.reference_logprobs, "kl", "reference_logprobs"), logprobs)
            penalty = (torch.exp(apart) - apart - 1) * (ratio if self.unbiased_kl else 1.0)
            losses = losses + self.kl * penalty
            metrics["kl"] = _sum(penalty * trained)
        return Numerator((losses * self._weights(batch)).sum(), self._denominator(batch), metrics)

    def _weights(self, batch: MicroBatch) -> torch.Tensor:
        if self.form == "grpo":
            return batch.loss_mask / batch.loss_mask.sum(1, keepdim=True).clamp(min=1.0)
        return batch.loss_mask

    def _denominator(self, batch: MicroBatch) -> float:
        if self.form == "dapo":
            return float(batch.tokens)
        return float(batch.rows * (self.length or 1))


def _sum(values: torch.Tensor) -> torch.Tensor:
    return values.detach().float().sum()


def _there(values: torch.Tensor | None, option: str, column: str) -> torch.Tensor:
    if values is None:
        raise InputError(f"{option} asks for {column}, and the micro-batch has none; name their column, or leave {option} out")
    return values
