"""One policy's trainer: micro-batches in, one update a step, versions out.

A trainer has five flat buffers (weights, master, two moments, gradient cache) and a number, the version. Between commits weights do not
move. Calls of one trainer are made by one thread at a time; trainers of one base may be used from several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import Error, StateError
from .adamw import AdamW, FlatAdamW
from .batch import MicroBatch
from .cache import BUCKET_BYTES, GradientCache
from .claims import Applied, Record, is_accumulated, record_of, refuse_other_versions
from .columns import Columns
from .early import Early
from .errors import NonFiniteGradientError
from .members import EarlyCalls, EarlyTraining
from .objective import Objective, PolicyGradient, identity_of
from .options import refuse_denominator, refuse_options, refuse_rate, refuse_unread, with_vocabulary
from .ranks import Ranks
from .reduction import Totals, agreed_norm, of_all_ranks, of_one
from .staging import Staging
from .stateful import Stateful
from .subject import Subject, WholeModel
from .update import Accumulated, Update

__all__ = ["Trainer"]


class Trainer(Stateful, EarlyCalls):
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
    early: how members of groups are trained before their group is complete. Default: whole groups are.
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
        early: Early | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        refuse_options(max_gradient_norm, rows_per_pass, max_lag)
        self.subject: Subject = WholeModel(subject) if isinstance(subject, torch.nn.Module) else subject
        self.model: Any = self.subject.model
        self.objective: Objective = objective or PolicyGradient()
        identity_of(self.objective)  # who has no name is told so now
        self.max_gradient_norm, self.rows_per_pass = max_gradient_norm, rows_per_pass
        self.version, self.updates, self.max_lag, self.applied = version, 0, max_lag, Applied()
        self.columns = with_vocabulary(columns or Columns(), self.model)
        refuse_unread(self.columns, self.objective)
        settings = optimizer or AdamW()
        self.subject.bind(settings.decays)
        weights = self.subject.weights
        self.cache = GradientCache(weights.layout, weights.device, bucket_bytes)
        self.optimizer = FlatAdamW(settings, weights.layout, weights)
        self._staging = Staging(weights.device)
        self._is_suspended, self._torn = False, None
        self._early = EarlyTraining(self, early) if early else None
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
        if self._early is not None and not is_own and self._early.groups.room:
            return self._early.accumulate(batch)
        record = {"name": claim} if is_own else record_of(batch)
        self._refuse_unusable()
        self.cache.refuse_spoiled()
        came_again = self.applied.has(record, self.cache.is_empty)
        is_new = not came_again and ((is_own and claim is None) or not is_accumulated(record, self.cache.claims))
        if is_new:
            self.applied.refuse_more("rows beside them")
            if not is_own:
                refuse_other_versions(record, self.version, self.max_lag)
        rows = tokens = 0
        tables: list[MicroBatch] = []
        if is_new:  # all of them are made, and refused, before one is computed on
            tables = batch.passes(self.rows_per_pass) if is_own else self._tables(batch)
        with self._folding(record if is_new else None):
            for part in self._staging.stage(tables):
                self._fold(part)
                rows, tokens = rows + part.rows, tokens + part.tokens
            if not is_own:
                batch.accumulated()
        self.applied.came_again |= came_again
        return Accumulated(rows, tokens, is_new)

    def _tables(self, batch: Any) -> list[MicroBatch]:
        advantages = None if self._early is None else self._early.whole(batch)
        return list(self.columns.tables(batch, self.rows_per_pass, advantages=advantages))

    def add(
        self, numerator: torch.Tensor, denominator: float, *, rows: int = 0, tokens: int = 0, claim: str | None = None
    ) -> None:
        """Adds the gradient of a loss of one's own: a scalar, a sum over the micro-batch and no mean, and what it adds to what all sums
        are divided by at the commit."""
        self._refuse_unusable()
        self.cache.refuse_spoiled()
        refuse_denominator(denominator)
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
        refuse_denominator(found.denominator)
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
        if self._early is not None:
            self._early.settle()
        total = self._total(lr)
        again = self.applied.again(total.micro_batches, total.came_again)
        if again is not None:
            return again
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

    def settled(self) -> None:
        """Forgets which rows the last commit applied: the store has committed them, and will hand them out again only to be trained on
        again, as after it went back to an earlier version. Until the next commit they would be passed over otherwise."""
        self.applied = Applied()

    def _total(self, lr: float | None) -> Totals:
        """The sums that a commit applies."""
        problem: Error | None = None
        try:
            self._refuse_unusable()
            self.cache.refuse_spoiled()
            self.subject.check()
            refuse_rate(lr)
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
