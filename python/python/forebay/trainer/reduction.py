"""What a commit applies: the sums of one cache, or of the caches of all ranks.

With ranks a commit has three parts. Each rank tells the others what it has, or why it cannot commit; then all fail alike, before anything
is sent. The gradients are added into a buffer of their own, so that each rank's cache stays as it is until the end. At last the ranks
tell each other the norm: all have the same, or nothing is applied.

A rank may die just when the last word is on its way, so that one rank has applied the update and another has not. They are a version apart
then, which the next exchange finds out; ``Trainer.join`` makes them equal again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import Error, StateError
from .cache import GradientCache
from .claims import Record
from .errors import RanksDifferError
from .flat import allocate
from .ranks import Ranks

__all__ = ["Totals", "agreed_norm", "of_all_ranks", "of_one"]


@dataclass(frozen=True)
class Totals:
    """Sums over the micro-batches of a step."""

    gradient: torch.Tensor
    """Unnormalised; what is to be scaled and applied."""
    numerator: float
    denominator: float
    rows: int
    tokens: int
    micro_batches: int
    metrics: Mapping[str, float]
    records: Sequence[Record]
    """Whose gradients they are."""
    came_again: bool
    """Whether rows came again whose gradients the weights have already."""


def of_one(cache: GradientCache, came_again: bool) -> Totals:
    """Those of one cache. The gradient is the cache's own buffer, or one with what closed groups add to it."""
    metrics = {name: float(value) for name, value in cache.metrics.items()}
    counts = (cache.denominator, cache.rows, cache.tokens, len(cache.claims))
    return Totals(cache.total(), float(cache.numerator), *counts, metrics, cache.claims, came_again)


def of_all_ranks(
    cache: GradientCache, came_again: bool, ranks: Ranks, state: Mapping[str, Any], problem: Error | None
) -> Totals:
    """Those of all ranks, the same bits on each.

    state: what is to be the same on all. problem: why this rank cannot commit. Raises it, or StateError with that of another rank, or
    RanksDifferError; RankLostError. The cache is as before.
    """
    own, gradient = of_one(cache, came_again), cache.flat
    if problem is None:
        try:  # the largest of a commit: who has no room says so before the others begin to sum
            gradient = allocate(cache.layout.elements, torch.float32, cache.device, "sum of the ranks' gradients")
        except Error as error:
            problem = error
    numbers = ("numerator", "denominator", "rows", "tokens", "micro_batches", "metrics", "records", "came_again")
    told = {name: getattr(own, name) for name in numbers} | {"state": dict(state), "problem": problem and str(problem)}
    all_told = ranks.exchange(told)
    if problem is not None:
        raise problem
    for rank, other in enumerate(all_told):
        if other["problem"]:
            raise StateError(f"rank {rank} cannot commit, so nobody does: {other['problem']}")
        refuse_difference(rank, other["state"], state)
    add = lambda name: sum(other[name] for other in all_told)
    names = sorted({name for other in all_told for name in other["metrics"]})
    metrics = {name: sum(other["metrics"].get(name, 0.0) for other in all_told) for name in names}
    if add("denominator") > 0:
        ranks.sum(cache.flat, gradient)
    else:
        gradient = cache.flat
    counts = (int(add("rows")), int(add("tokens")), int(add("micro_batches")))
    records = [record for other in all_told for record in other["records"]]
    again = any(other["came_again"] for other in all_told)
    return Totals(gradient, add("numerator"), add("denominator"), *counts, metrics, records, again)


def refuse_difference(rank: int, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raises RanksDifferError where something differs that is to be the same on all ranks."""
    for name, value in ours.items():
        if theirs.get(name) != value:
            raise RanksDifferError(
                f"rank {rank} has {name} {theirs.get(name)!r}, and this one {value!r}; nothing was changed: call join() in every rank, "
                "with the rank to take weights, moments and version from"
            )


def agreed_norm(ranks: Ranks, norm: float) -> None:
    """The last word before an update is applied. Raises RanksDifferError where ranks have other sums."""
    for rank, other in enumerate(ranks.exchange({"norm": norm.hex()})):
        refuse_difference(rank, other, {"norm": norm.hex()})
