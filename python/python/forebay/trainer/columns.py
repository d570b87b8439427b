"""From the columns of a claim to tables of tokens, on the CPU.

A row is its prompt and then its response; what is said of the response stands where the response stands, and zeros elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .._arrays import numpy
from ..errors import InputError
from .batch import MicroBatch

__all__ = ["Columns"]


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what.

    prompt: token ids before the response, or ``None``: then ``response`` is the whole row.
    response: token ids. What follows has a value for each of them.
    advantage: a number a row, or a list with one a token.
    mask: 0 and 1 a token: 0 was not said by the model, and is not trained on. Default: all of the response is trained on.
    old_logprobs, behaviour_logprobs, reference_logprobs: as in ``MicroBatch``.
    pad: the token that rows are filled up with.
    vocabulary: how many tokens the model knows. One that it does not know is refused here; on a device it would end the process.
    """

    prompt: str | None = "prompt"
    response: str = "response"
    advantage: str = "advantage"
    mask: str | None = None
    old_logprobs: str | None = None
    behaviour_logprobs: str | None = None
    reference_logprobs: str | None = None
    pad: int = 0
    vocabulary: int | None = None

    def tables(self, batch: Any, rows: int | None = None, *, advantages: Any = None) -> Iterator[MicroBatch]:
        """The rows of a claim in their order, at most so many at once.

        batch: a ``forebay.Batch``, or a mapping of columns with ``sample_ids`` beside them.
        advantages: one a row, in place of the column's.
        """
        samples: list[str] = list(batch["sample_ids"] if isinstance(batch, dict) else batch.sample_ids)
        given = {} if advantages is None else {"advantage": advantages}
        named = {name: column for name, column in self._named().items() if column is not None and name not in given}
        there = {**{name: batch[column] for name, column in named.items()}, **given}
        step = max(1, len(samples) if rows is None else rows)
        for start in range(0, len(samples), step):
            stop = min(start + step, len(samples))
            yield _table(
                samples[start:stop],
                {name: values[start:stop] for name, values in there.items()},
                self.pad,
                self.vocabulary,
            )

    def _named(self) -> dict[str, str | None]:
        by_token = ("mask", "old_logprobs", "behaviour_logprobs", "reference_logprobs")
        return {name: getattr(self, name) for name in ("prompt", "response", "advantage", *by_token)}


def _table(samples: list[str], columns: dict[str, Any], pad: int, vocabulary: int | None) -> MicroBatch:
    np = numpy()
    responses = _rows(samples, "response", columns["response"])
    prompts = _rows(samples, "prompt", columns["prompt"]) if "prompt" in columns else [responses[0][:0]] * len(samples)
    begins = [len(prompt) for prompt in prompts]
    ends = [begin + len(response) for begin, response in zip(begins, responses)]
    shape = (len(samples), max(ends, default=0))
    tokens, attention, loss = np.full(shape, pad, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    for row, (begin, end) in enumerate(zip(begins, ends)):
        tokens[row, :begin], tokens[row, begin:end] = prompts[row], responses[row]
        attention[row, :end], loss[row, begin:end] = 1, 1.0
    if "mask" in columns:
        loss *= _spread(samples, "mask", columns["mask"], begins, ends, shape) != 0
    _refuse_tokens(samples, tokens, attention, vocabulary)
    _refuse_first(samples, loss)
    names = [name for name in columns if name.endswith("_logprobs")]
    beside = {name: _spread(samples, name, columns[name], begins, ends, shape) for name in names}
    beside["advantages"] = _advantages(samples, columns["advantage"], begins, ends, shape)
    tensors = {name: torch.from_numpy(table) for name, table in beside.items()}
    return MicroBatch(
        torch.from_numpy(tokens), torch.from_numpy(attention), torch.from_numpy(loss), tensors.pop("advantages"),
        rows=len(samples), tokens=int(np.count_nonzero(loss)), **tensors,
    )  # fmt: skip


def _rows(samples: list[str], name: str, values: Any) -> list[Any]:
    np = numpy()
    rows = []
    for sample, value in zip(samples, values):
        if value is None:
            raise InputError(f"{name} of {sample} has no value; let the consumer be ready by that column")
        row = np.asarray(value)
        if row.ndim != 1:
            raise InputError(f"{name} of {sample} has the shape {list(row.shape)}; it is a list with one value a token")
        rows.append(row)
    return rows


def _spread(samples: list[str], name: str, values: Any, begins: list[int], ends: list[int], shape: tuple[int, int]) -> Any:
    """Values of the tokens of responses, where the responses stand."""
    table = numpy().zeros(shape, numpy().float32)
    for row, value in enumerate(_rows(samples, name, values)):
        wanted = ends[row] - begins[row]
        if len(value) != wanted:
            raise InputError(f"{name} of {samples[row]} has {len(value)} values, and its response {wanted} tokens")
        table[row, begins[row] : ends[row]] = value
        _refuse_numbers(samples[row], name, table[row])
    return table


def _advantages(samples: list[str], values: Any, begins: list[int], ends: list[int], shape: tuple[int, int]) -> Any:
    np = numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        sample = samples[int(np.ma.getmaskarray(values).argmax())]
        raise InputError(f"advantage of {sample} has no value; let the consumer be ready by that column")
    if np.ndim(values[0] if len(values) else 0.0) == 1:
        return _spread(samples, "advantage", values, begins, ends, shape)
    table = np.asarray(values, np.float32).reshape(-1, 1)
    for sample, value in zip(samples, table):
        _refuse_numbers(sample, "advantage", value)
    return np.array(table)


def _refuse_numbers(sample: str, name: str, values: Any) -> None:
    wrong = values[~numpy().isfinite(values)]
    if wrong.size:
        raise InputError(f"{name} of {sample} has the value {wrong[0]}, of which no gradient can be made")


def _refuse_tokens(samples: list[str], tokens: Any, attention: Any, vocabulary: int | None) -> None:
    if vocabulary is None or not tokens.size:
        return
    wrong = ((tokens < 0) | (tokens >= vocabulary)) & (attention != 0)
    if wrong.any():
        row, place = (int(index[0]) for index in wrong.nonzero())
        raise InputError(f"token {place} of {samples[row]} is {tokens[row, place]}, and the model knows {vocabulary} tokens")


def _refuse_first(samples: list[str], loss: Any) -> None:
    if loss.size and loss[:, 0].any():
        sample = samples[int(loss[:, 0].nonzero()[0][0])]
        raise InputError(
            f"the first token of {sample} is to be trained on, and nothing gives its log-probability; name the prompt's column, or "
            "mask that token"
        )
