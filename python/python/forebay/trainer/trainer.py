"""One policy's trainer: micro-batches in, one update a step, versions out.

A trainer has five flat buffers (weights, master, two moments, gradient cache) and a number, the version. Between commits weights do not
move. Calls of one trainer are made by one thread at a time; trainers of one base may be used from several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch

from ..errors import Error, InputError, StateError
from .adamw import AdamW, FlatAdamW
from .batch import MicroBatch
from .cache import BUCKET_BYTES, GradientCache
from .claims import Applied, Record, is_accumulated, record_of, refuse_other_versions
from .columns import Columns
from .errors import NonFiniteGradientError
from .objective import Objective, PolicyGradient, identity_of
from .ranks import Ranks
from .reduction import Totals, agreed_norm, of_all_ranks, of_one
from .staging import Staging
from .stateful import Stateful
from .subject import Subject, WholeModel

__all__ = ["Accumulated", "Trainer", "Update"]


@dataclass(frozen=True)
class Accumulated:
    """What a micro-batch added to the cache."""

    rows: int
    tokens: int
    is_new: bool
    """False where the cache had its gradient already, as after ``resume``; then nothing was computed."""


@dataclass(frozen=True)
class Update:
    """What a commit did."""

    version: int
    """The version that the weights are now."""
    loss: float
    gradient_norm: float
    """Of the whole batch's gradient, before it was clipped."""
    is_clipped: bool
    rows: int
    tokens: int
    denominator: float
    metrics: dict[str, float]
    """Of the objective, a token."""


class Trainer(Stateful):
    """Trains a model, or an adapter of one, by micro-batches of any size.

    subject: a ``torch.nn.Module``, of which all that requires a gradient is trained; or what ``Base.adapter`` or ``PeftBase.adapter``
        gives. Its parameters become views of flat buffers.
    objective: the loss. Default: the form ``dapo``.
    optimizer: the settings of AdamW.
    max_gradient_norm: what the norm of the whole batch's gradient is clipped to. ``None``: it is not.
    columns: which column of a claim is what.
    rows_per_pass: how many rows the model takes at once; a micro-batch of more is cut. Default: all.
    version: the policy version that the weights are.
    max_lag: how many versions the rows of a store may be behind the weights. ``None``: rows of any version are taken. Default: they are of
        the weights' own version.
    bucket_bytes: how much of the cache is added to at once.
    ranks: the processes that train this policy together; they are joined, and have the weights of rank 0 then.

    Raises InputError for parameters that cannot lie in a flat buffer (ShardedParameterError: DTensor), CapacityError where there is no
    memory for five buffers; values of parameters are as before then.
    """

    def __init__(
        self,
        subject: torch.nn.Module | Subject,
        *,
        objective: Objective | None = None,
        optimizer: AdamW | None = None,
        max_gradient_norm: float | None = 1.0,
        columns: Columns | None = None,
        rows_per_pass: int | None = None,
        version: int = 0,
        max_lag: int | None = 0,
        bucket_bytes: int = BUCKET_BYTES,
        ranks: Ranks | None = None,
    ) -> None:
        _refuse_options(max_gradient_norm, rows_per_pass, max_lag)
        self.subject: Subject = WholeModel(subject) if isinstance(subject, torch.nn.Module) else subject
        self.model: Any = self.subject.model
        self.objective: Objective = objective or PolicyGradient()
        self.max_gradient_norm, self.rows_per_pass = max_gradient_norm, rows_per_pass
        self.version, self.updates, self.max_lag, self.applied = version, 0, max_lag, Applied()
        self._columns = _with_vocabulary(columns or Columns(), self.model)
        _refuse_unread(self._columns, self.objective)
        settings = optimizer or AdamW()
        self.subject.bind(settings.decays)
        weights = self.subject.weights
        self.cache = GradientCache(weights.layout, weights.device, bucket_bytes)
        self.optimizer = FlatAdamW(settings, weights.layout, weights)
        self._staging = Staging(weights.device)
        self._is_suspended, self._torn = False, None
        self._hooks: list[Any] = []
        self._hook()
        self.ranks: Ranks | None = None
        if ranks is not None:
            self.join(ranks)

    def _hook(self) -> None:
        self.close()
        with self.subject.active():
            self._hooks = self.cache.hooks(self.subject.trained)

    def close(self) -> None:
        """Takes the hooks off the model. Its parameters stay where they are."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @property
    def claims(self) -> list[Record]:
        """The claims whose gradients are in the cache."""
        return list(self.cache.claims)

    # Micro-batches

    def accumulate(self, batch: Any, claim: str | None = None) -> Accumulated:
        """Adds the gradient of a micro-batch to the cache.

        batch: a ``forebay.Batch``, whose claim is then accumulated; or a ``MicroBatch`` of one's own.
        claim: the name of a micro-batch of one's own, by which it counts once.

        Rows whose gradients are in the cache already are not computed again, nor are those that the last commit applied, which come again
        where the store has not committed them. Raises OtherVersionError for rows of another version than the weights, and
        ParameterChangedError where a parameter is no longer the trainer's. After an exception the cache is as it was, or
        SpoiledCacheError says what to do.
        """
        is_own = isinstance(batch, MicroBatch)
        record = {"name": claim} if is_own else record_of(batch)
        self._refuse_unusable()
        self.cache.refuse_spoiled()
        came_again = self._came_again(record)
        is_new = not came_again and ((is_own and claim is None) or not is_accumulated(record, self.cache.claims))
        if is_new:
            self.applied.refuse_more("rows beside them")
            if not is_own:
                refuse_other_versions(record, self.version, self.max_lag)
        rows = tokens = 0
        tables: list[MicroBatch] = []
        if is_new:  # all of them are made, and refused, before one is computed on
            tables = batch.passes(self.rows_per_pass) if is_own else list(self._columns.tables(batch, self.rows_per_pass))
        with self._folding(record if is_new else None):
            for part in self._staging.stage(tables):
                self._fold(part)
                rows, tokens = rows + part.rows, tokens + part.tokens
            if not is_own:
                batch.accumulated()
        self.applied.came_again |= came_again
        return Accumulated(rows, tokens, is_new)

    def _came_again(self, record: Record) -> bool:
        """Whether the weights have the gradients of these rows already."""
        if not self.applied.has(record):
            return False
        if not self.cache.is_empty:
            raise StateError(
                f"{record['rows'][0][1]} is among the rows that the last commit applied, and the cache has gradients of other rows; drop() "
                "them, and commit what came again first"
            )
        return True

    def add(
        self, numerator: torch.Tensor, denominator: float, *, rows: int = 0, tokens: int = 0, claim: str | None = None
    ) -> None:
        """Adds the gradient of a loss of one's own: a scalar, a sum over the micro-batch and no mean, and what it adds to what all sums
        are divided by at the commit."""
        self._refuse_unusable()
        self.cache.refuse_spoiled()
        _refuse_denominator(denominator)
        self.applied.refuse_more("a loss beside them")
        record = {"name": claim}
        if claim is not None and is_accumulated(record, self.cache.claims):
            return
        with self._folding(record):
            numerator.backward()
            self._count(numerator, denominator, rows, tokens, {})

    def logprobs(self, batch: MicroBatch) -> torch.Tensor:
        """The log-probability of each token as the model is now, without a gradient: [rows, length]."""
        self._refuse_unusable()
        with torch.no_grad(), self.subject.active():
            return self.objective.logprobs(self.model, batch)

    def reference_logprobs(self, batch: MicroBatch) -> torch.Tensor:
        """The log-probability of each token with the adapter off: [rows, length]. StateError where a whole model is trained."""
        with torch.no_grad(), self.subject.disabled():
            return self.objective.logprobs(self.model, batch)

    def _fold(self, part: MicroBatch) -> None:
        if self.objective.needs_reference and part.reference_logprobs is None:
            part = part.with_reference(self.reference_logprobs(part))
        found = self.objective(self.objective.logprobs(self.model, part), part)
        _refuse_denominator(found.denominator)
        found.value.backward()  # type: ignore[no-untyped-call]
        self._count(found.value, found.denominator, part.rows, part.tokens, found.metrics)

    def _count(
        self, numerator: torch.Tensor, denominator: float, rows: int, tokens: int, metrics: Mapping[str, torch.Tensor]
    ) -> None:
        cache = self.cache
        cache.numerator = cache.numerator + numerator.detach()
        cache.denominator += denominator
        cache.rows, cache.tokens = cache.rows + rows, cache.tokens + tokens
        for name, value in metrics.items():
            cache.metrics[name] = cache.metrics.get(name, 0.0) + value

    @contextmanager
    def _folding(self, record: Record | None) -> Iterator[None]:
        """Takes the gradients of the backward passes within, and lists them under a record."""
        cache = self.cache
        before = (cache.numerator, cache.denominator, cache.rows, cache.tokens, dict(cache.metrics))
        with self.subject.active():
            self.subject.check()
            try:
                with cache.folding(self.subject.trained):
                    yield
            except BaseException:
                cache.numerator, cache.denominator, cache.rows, cache.tokens, cache.metrics = before
                raise
        if record is not None:
            cache.claims.append(record)

    # The update

    def commit(self, *, lr: float | None = None) -> Update:
        """Applies the gradient of all micro-batches: divides it by their denominator, clips its norm, moves the weights by AdamW, empties
        the cache and raises the version.

        lr: the learning rate of this update. Default: that of the settings.

        With ranks the micro-batches are those of all of them, and all call; a rank without rows takes part.

        Where nothing was accumulated since the last commit, or only rows that it applied, nothing is changed and its update is given again:
        so a loop that failed between this and ``Step.commit`` may go round.

        Raises StateError when nothing was accumulated, InputError for a learning rate that is none, and NonFiniteGradientError for a
        gradient that is none; RankLostError and RanksDifferError with ranks. Weights, moments and cache are as before then.
        """
        total = self._total(lr)
        if self._is_repeated(total):
            self.applied.came_again = False
            applied: Update = self.applied.update
            return applied
        if not total.denominator > 0:
            raise StateError(
                f"there is nothing to commit: {total.micro_batches} micro-batches with a denominator of {total.denominator} were "
                "accumulated; accumulate micro-batches with tokens to train on, or leave the version as it is"
            )
        norm = float(torch.linalg.vector_norm(total.gradient)) / total.denominator
        if not math.isfinite(norm):
            raise NonFiniteGradientError(self._not_finite(total))
        limit = self.max_gradient_norm
        is_clipped = limit is not None and norm > limit
        scale = (limit / (norm + 1e-6) if is_clipped and limit is not None else 1.0) / total.denominator
        if self.ranks is not None:
            agreed_norm(self.ranks, norm)
        with torch.no_grad(), self._tearing("an update was applied"):
            total.gradient.mul_(scale)
            self.optimizer.step(total.gradient, self.updates + 1, lr)
        self.version, self.updates = self.version + 1, self.updates + 1
        self.subject.written()
        metrics = {name: value / max(total.tokens, 1) for name, value in total.metrics.items()}
        counts = (total.rows, total.tokens, total.denominator)
        update = Update(self.version, total.numerator / total.denominator, norm, is_clipped, *counts, metrics)
        self.applied = Applied.of(total.records, update)
        self.cache.drop()
        return update

    def _is_repeated(self, total: Totals) -> bool:
        """Whether all that there is to commit was applied by the last commit."""
        if total.micro_batches == 0:
            return bool(self.applied.rows)
        if total.came_again:
            raise StateError(
                "one rank has gradients to commit, and another has rows that the last commit applied; drop() in every rank, and accumulate "
                "what came again alone"
            )
        return False

    def settled(self) -> None:
        """Forgets which rows the last commit applied: the store has committed them, and will hand them out again only to be trained on
        again, as after it went back to an earlier version. Until the next commit they would be passed over otherwise."""
        self.applied = Applied()

    def _applied_of(self, told: Mapping[str, Any]) -> Applied:
        """What a state, or another rank, says that its last commit applied."""
        return Applied(told["applied"], told["update"] and Update(**told["update"]))

    def _total(self, lr: float | None) -> Totals:
        """The sums that a commit applies."""
        problem: Error | None = None
        try:
            self._refuse_unusable()
            self.cache.refuse_spoiled()
            self.subject.check()
            _refuse_rate(lr)
        except Error as error:
            if self.ranks is None:
                raise
            lr, problem = None, error
        if self.ranks is None:
            return of_one(self.cache, self.applied.came_again)
        state = {"version": self.version, "updates": self.updates, "lr": lr, "objective": identity_of(self.objective)}
        return of_all_ranks(self.cache, self.applied.came_again, self.ranks, state, problem)

    def _not_finite(self, total: Totals) -> str:
        names = [
            entry.name
            for entry, start in self.layout.placed()
            if not bool(torch.isfinite(total.gradient[start : start + entry.elements]).all())
        ]
        if not names:
            return "the norm of the gradient is too large for fp32; scale the loss down. Nothing was changed; drop() empties the cache"
        return (
            f"the gradient of {names[0]!r} and {len(names) - 1} more parameters has values that are no numbers, after "
            f"{total.micro_batches} micro-batches; nothing was changed. drop() empties the cache"
        )

    def drop(self) -> None:
        """Empties the cache. The rows that were in it are to be given back (``Step.drop_cache``, or leaving the step)."""
        self.cache.drop()
        self.applied.came_again = False


def _refuse_options(max_gradient_norm: float | None, rows_per_pass: int | None, max_lag: int | None) -> None:
    if max_lag is not None and max_lag < 0:
        raise InputError(f"max_lag={max_lag!r} is no number of versions; 0 takes rows of the weights' own version, None of any")
    if max_gradient_norm is not None and not max_gradient_norm > 0:
        raise InputError(f"max_gradient_norm={max_gradient_norm!r} is not above 0; None does not clip")
    if rows_per_pass is not None and rows_per_pass < 1:
        raise InputError(f"rows_per_pass={rows_per_pass!r} is no number of rows")


def _refuse_denominator(denominator: float) -> None:
    if not 0 <= denominator < math.inf:
        raise InputError(f"denominator={denominator!r} is nothing to divide by; give how many rows or tokens the sum is over")


def _refuse_unread(columns: Columns, objective: Objective) -> None:
    for name in getattr(objective, "unread", ()):
        if getattr(columns, name, None) is not None:
            raise InputError(
                f"columns name {name}={getattr(columns, name)!r}, and the loss does not read it; give importance_cap= and old_logprobs for "
                "importance weights, name the column old_logprobs for a clipped ratio, or leave it out"
            )


def _refuse_rate(lr: object) -> None:
    if lr is not None and not (isinstance(lr, Real) and 0 <= lr < math.inf):
        raise InputError(f"lr={lr!r} is no learning rate; give a number of 0 or more, or None for that of the settings")


def _with_vocabulary(columns: Columns, model: Any) -> Columns:
    """The columns, with the number of tokens that the model knows where it says so."""
    embeddings = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    known = getattr(embeddings, "num_embeddings", None)
    return columns if columns.vocabulary is not None or known is None else replace(columns, vocabulary=known)
