"""A micro-batch as a model takes it: rows of tokens below each other, and beside each token what its loss is made of.

Position ``t`` of every table is about token ``t`` of a row: its log-probability is that of ``input_ids[:, t]`` after the tokens before
it. The first token of a row has none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from ..errors import InputError

__all__ = ["MicroBatch"]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of tokens, filled up on the right, on the device of the model."""

    input_ids: torch.Tensor
    """[rows, length], int64."""
    attention_mask: torch.Tensor
    """[rows, length], int64: 1 for tokens, 0 for what fills up."""
    loss_mask: torch.Tensor
    """[rows, length], float32: 1 for tokens that are trained on; 0 in the first column."""
    advantages: torch.Tensor
    """[rows, 1] or [rows, length], float32."""
    rows: int
    """How many rows count in a denominator: the first ones. What is behind them has no token that is trained on."""
    tokens: int
    """How many tokens are trained on: the ones of ``loss_mask``."""
    old_logprobs: torch.Tensor | None = None
    """[rows, length]: what the ratio of a PPO clip is taken to. Without them the ratio is 1, and its gradient that of the
    log-probability."""
    behaviour_logprobs: torch.Tensor | None = None
    """[rows, length]: of the sampler. With ``old_logprobs`` beside them they give truncated importance weights."""
    reference_logprobs: torch.Tensor | None = None
    """[rows, length]: what a KL penalty is taken to."""

    def __post_init__(self) -> None:
        shape = tuple(self.input_ids.shape)
        if len(shape) != 2:
            raise InputError(f"input_ids have the shape {list(shape)}; give [rows, length]")
        for name, tensor in self.tensors().items():
            allowed = (shape, (shape[0], 1)) if name == "advantages" else (shape,)
            if tuple(tensor.shape) not in allowed:
                raise InputError(f"{name} have the shape {list(tensor.shape)} beside input_ids of {list(shape)}")
        if not 0 <= self.rows <= shape[0] or not 0 <= self.tokens <= shape[0] * shape[1]:
            raise InputError(f"rows={self.rows} and tokens={self.tokens} do not fit input_ids of {list(shape)}")

    @classmethod
    def of(cls, **tensors: torch.Tensor) -> MicroBatch:
        """A micro-batch of tensors alone; counts the tokens of ``loss_mask``, for which it waits for the device."""
        mask = tensors["loss_mask"]
        _refuse_first(mask)
        return cls(rows=len(mask), tokens=int(mask.count_nonzero()), **tensors)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that there are, by name."""
        found: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}

    def with_reference(self, logprobs: torch.Tensor) -> MicroBatch:
        return replace(self, reference_logprobs=logprobs)

    def passes(self, rows: int | None) -> list[MicroBatch]:
        """The rows in their order, at most so many at once; together they count the rows and tokens that this one does. Raises
        InputError for numbers of which no gradient can be made; waits for the device, to look at them."""
        masks = self._checked()
        there = len(self.input_ids)
        if rows is None or rows >= there:
            return [self]
        return [self._rows(start, min(start + rows, there), masks) for start in range(0, max(1, self.rows), rows)]

    def _rows(self, start: int, stop: int, masks: torch.Tensor) -> MicroBatch:
        tensors: dict[str, Any] = {name: tensor[start:stop] for name, tensor in self.tensors().items()}
        return MicroBatch(rows=max(0, min(stop, self.rows) - start), tokens=int(masks[start:stop].sum()), **tensors)

    def _checked(self) -> torch.Tensor:
        """How many tokens of each row are trained on."""
        _refuse_first(self.loss_mask)
        masks = self.loss_mask.count_nonzero(1).cpu()
        if int(masks.sum()) != self.tokens or bool(masks[self.rows :].any()):
            raise InputError(
                f"rows={self.rows} and tokens={self.tokens} are not what loss_mask says: {int(masks[: self.rows].sum())} tokens in those "
                f"rows, {int(masks.sum())} in all; rows that do not count stand behind the others, with a loss_mask of zeros"
            )
        if not bool(torch.isfinite(self.advantages).all()):
            row = int((~torch.isfinite(self.advantages)).any(1).nonzero()[0])
            raise InputError(f"advantages of row {row} have a value that is no number; leave the row out, or give it an advantage of 0")
        return masks


def _refuse_first(mask: torch.Tensor) -> None:
    if mask.shape[-1] and bool(mask[:, 0].any()):
        raise InputError("loss_mask has the first token of a row, whose log-probability nothing gives")
