"""Members of open groups: from the rows of a micro-batch to the sums of their groups.

Each member goes through the model alone, so that its gradient does not depend on who else is in the micro-batch. A group is closed as soon as
the store says that nobody more will come; rows whose gradients the sums have already are passed over one by one, however micro-batches are
cut this time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from .._arrays import numpy
from ..errors import InputError, StateError
from .advantages import is_flat
from .batch import MicroBatch
from .claims import Record, record_of, refuse_other_versions
from .early import Early
from .groups import Member, OpenGroups
from .objective import Objective, identity_of
from .options import refuse_denominator
from .update import Accumulated

if TYPE_CHECKING:
    from .trainer import Trainer

__all__ = ["EarlyCalls", "EarlyTraining"]


@dataclass(frozen=True)
class _Row:
    """A row that is to be added: its group, its name, its reward and its tokens."""

    group: str
    key: str | None
    name: str
    reward: float
    table: MicroBatch


class EarlyTraining:
    """The part of a ``Trainer`` that trains members of open groups."""

    def __init__(self, trainer: Trainer, early: Early) -> None:
        self.trainer, self.early = trainer, early
        trainer.cache.groups = early.groups(trainer.subject.weights, trainer.objective, trainer.columns)
        self._waited: Callable[[], list[str]] | None = None
        self._is_checked = False

    @property
    def groups(self) -> OpenGroups:
        """The sums, which are part of the trainer's cache."""
        groups = self.trainer.cache.groups
        assert groups is not None
        return groups

    def refuse_unusable(self) -> None:
        self.trainer._refuse_unusable()
        self.trainer.cache.refuse_spoiled()

    def rewards(self, batch: Any) -> list[float]:
        """The rewards of a micro-batch. Raises InputError for what is none."""
        np, values = numpy(), batch[self.early.reward]
        if isinstance(values, list) or np.ndim(values) != 1 or values.dtype.kind not in "fiub":
            raise InputError(f"column {self.early.reward!r} has no number a row, by which members of a group could be compared")
        rewards = np.ma.filled(np.ma.asarray(values).astype(np.float64), np.nan)
        wrong = ~np.isfinite(rewards)
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(f"reward of {batch.sample_ids[row]} is {values[row]}, and no number; let the consumer be ready by that column")
        # As the column has them: 0.1 in float32 is another number than 0.1.
        stored = {float(values.dtype.type(value)): value for value in self.groups.values.two or ()}
        return [stored.get(float(reward), float(reward)) for reward in rewards]

    # Whole groups

    def whole(self, batch: Any) -> Any:
        """The advantages of a micro-batch of whole groups, for who has no room for sums. Raises StateError where a group is not whole."""
        names, rewards, groups = _names(batch), self.rewards(batch), self.groups
        waited = set(batch.open_groups()) & {key for _, key in names}
        if waited:
            raise StateError(
                f"group {min(waited)!r} was handed out in part, and the sums of one take {groups.group_bytes} bytes of "
                f"budget_bytes={groups.budget_bytes}: ask for whole groups (early=trainer.early_groups), or raise the budget"
            )
        found = numpy().zeros(len(names), numpy().float32)
        for group in dict.fromkeys(names):
            places = [place for place, name in enumerate(names) if name == group]
            compared = [rewards[place] for place in places]
            found[places] = [0.0] * len(places) if is_flat(compared) else list(self.early.advantages(compared))
        return found

    # Members

    def accumulate(self, batch: Any) -> Accumulated:
        """Adds the members of a micro-batch to the sums of their groups, and closes the groups of which nobody more will come."""
        self.refuse_unusable()
        trainer, cache, record = self.trainer, self.trainer.cache, record_of(batch)
        came_again = trainer.applied.has(record, cache.is_empty)
        there = {tuple(row) for known in cache.claims if known.get("table") == record["table"] for row in known["rows"]}
        new = [] if came_again else [place for place, row in enumerate(record["rows"]) if tuple(row) not in there]
        if new:
            trainer.applied.refuse_more("rows beside them")
            refuse_other_versions(record, trainer.version, trainer.max_lag)
        rows, waited, self._waited = self._rows(batch, record, new), set(batch.open_groups()), batch.open_groups
        with self._whole_or_spoiled():
            self._add(rows, waited)
            batch.accumulated()
        if new:
            cache.claims.append({**record, "rows": [record["rows"][place] for place in new]})
        trainer.applied.came_again |= came_again
        return Accumulated(len(rows), sum(row.table.tokens for row in rows), bool(new))

    def _rows(self, batch: Any, record: Record, places: list[int]) -> list[_Row]:
        """The rows at these places, group by group, each of which could be added."""
        if not places:
            return []
        names, rewards = _names(batch), self.rewards(batch)
        tables = list(self.trainer.columns.tables(batch, 1, advantages=numpy().ones(len(names), numpy().float32)))
        rows = [_Row(*names[place], record["rows"][place][1], rewards[place], tables[place]) for place in places]
        for row in rows:
            self.groups.refuse(row.group, row.name, row.reward)
        order = {group: place for place, group in enumerate(dict.fromkeys(row.group for row in rows))}
        return sorted(rows, key=lambda row: order[row.group])

    def add(self, table: MicroBatch, group: str, member: str, reward: float) -> None:
        """Adds one member by itself, for who has no store."""
        self.groups.refuse(group, member, reward)
        if len(table.input_ids) != table.rows or not table.rows or not math.isfinite(reward):
            raise InputError(f"member {member!r} of {group!r} has {table.rows} rows and the reward {reward!r}; give all its rows, and a number")
        (table,) = table.passes(None)
        with self._whole_or_spoiled():
            (staged,) = self.trainer._staging.stage([table])
            self._member(_Row(group, None, member, reward, table), staged)

    def _add(self, rows: list[_Row], waited: set[str]) -> None:
        self._close_over(waited, {row.group for row in rows})  # makes room for groups that the store has counted upon it for
        last = {row.group: row for row in rows}
        for row, table in zip(rows, self.trainer._staging.stage(row.table for row in rows)):
            self._member(row, table)
            if row is last[row.group] and row.key not in waited:
                self.close(row.group)
        self._close_over(waited, set())

    def _member(self, row: _Row, table: MicroBatch) -> None:
        trainer, groups = self.trainer, self.groups
        groups.refuse_full(row.group)
        objective, sign = trainer.objective, groups.values.parts(row.reward)[0]
        if objective.needs_reference and table.reference_logprobs is None:
            table = table.with_reference(trainer.reference_logprobs(table))
        logprobs = objective.logprobs(trainer.model, table)
        self._check_linear(objective, logprobs, table, sign)
        found = objective(logprobs, _with(table, sign))
        refuse_denominator(found.denominator)
        rest = objective(logprobs, _with(table, 0.0)).value if groups.rest else None
        losses = [found.value] if rest is None else [found.value - rest, rest]
        counts = (found.denominator, table.rows, table.tokens)
        metrics = {name: float(value) for name, value in found.metrics.items()}
        values = [float(loss.detach()) for loss in losses] + [0.0]
        member = Member(row.name, row.reward, values[0], values[1], *counts, metrics)
        groups.add(row.group, row.key, member, lambda part: self._gradient(losses[part], is_last=part == len(losses) - 1))

    def _gradient(self, loss: torch.Tensor, is_last: bool) -> torch.Tensor:
        cache, scratch = self.trainer.cache, self.groups.scratch.zero_()
        with cache.folding(self.trainer.subject.trained, into=scratch):
            loss.backward(retain_graph=not is_last)  # type: ignore[no-untyped-call]
        return scratch

    def _check_linear(self, objective: Objective, logprobs: torch.Tensor, table: MicroBatch, sign: float) -> None:
        """Looks once, at the first member, whether a loss is as linear in the advantage as it says."""
        if self._is_checked:
            return
        with torch.no_grad():
            at = lambda advantage: float(objective(logprobs.detach(), _with(table, advantage)).value)
            none, once, twice, other = at(0.0), at(sign), at(2 * sign), at(-sign)
        apart = [(twice - none) - 2 * (once - none), 0.0 if self.groups.by_sign else (other - none) + (once - none)]
        if max(map(abs, apart)) > 1e-3 * (abs(once - none) + abs(none)):
            raise InputError(
                f"the loss {identity_of(objective)} is not linear in the advantage: {once} at {sign}, {twice} at twice that, {none} at 0 and {other} "
                "at its opposite; train whole groups"
            )
        self._is_checked = True

    # Closing

    def close(self, name: str) -> None:
        """Closes a group with the members that have come."""
        closed, cache = self.groups.close(name), self.trainer.cache
        cache.numerator = cache.numerator + closed.loss
        for member in closed.members:
            cache.denominator += member.denominator
            cache.rows, cache.tokens = cache.rows + member.rows, cache.tokens + member.tokens
            for metric, value in member.metrics.items():
                cache.metrics[metric] = cache.metrics.get(metric, 0.0) + value

    def _close_over(self, waited: set[str], at_hand: set[str]) -> None:
        """Closes every group of which nobody more is waited for and nobody is in the micro-batch at hand."""
        over = [g.name for g in self.groups.open.values() if g.key is not None and g.key not in waited and g.name not in at_hand]
        for name in over:
            self.close(name)

    def settle(self) -> None:
        """Closes what is open before a commit. Raises StateError where somebody is still waited for."""
        if not self.groups.open or self.trainer.cache.spoiled:
            return
        waited = set(self._waited()) if self._waited is not None else set(g.key for g in self.groups.open.values() if g.key is not None)
        with self._whole_or_spoiled():
            self._close_over(waited, set())
        if self.groups.open:
            names = ", ".join(self.groups.open)
            raise StateError(
                f"{len(self.groups.open)} groups are open, of which others may come ({names:.200}): go on with the micro-batches, or call "
                "close_groups() where nobody will"
            )

    def close_all(self, names: tuple[str, ...]) -> None:
        unknown = [name for name in names if name not in self.groups.open]
        if unknown:
            raise StateError(f"no group {unknown[0]!r} is open; open are {', '.join(self.groups.open) or 'none'}")
        with self._whole_or_spoiled():
            for name in names or tuple(self.groups.open):
                self.close(name)

    @contextmanager
    def _whole_or_spoiled(self) -> Iterator[None]:
        """What is added within is added whole, or the cache is spoiled."""
        groups, cache = self.groups, self.trainer.cache
        before = groups.changes
        with self.trainer.subject.active():
            self.trainer.subject.check()
            try:
                yield
            except BaseException as error:
                if groups.changes != before:
                    cache.spoiled = f"{type(error).__name__}: {error}"
                raise


def _with(table: MicroBatch, advantage: float) -> MicroBatch:
    return replace(table, advantages=torch.full_like(table.advantages, advantage))


def _names(batch: Any) -> list[tuple[str, str]]:
    """The group of each row: its name here, and its key in the store. Raises StateError for rows of peers, whose groups are named apart."""
    keys, versions = batch["group_key"], batch["policy_version"]
    peers = [sample for sample, peer in zip(batch.sample_ids, batch["origin_peer"]) if peer is not None]
    if peers:
        raise StateError(f"row {peers[0]} is of a peer, and groups of peers are not trained by their members; train whole groups")
    return [(f"{batch.table}/{version}/{key}", key) for key, version in zip(keys, versions)]


class EarlyCalls:
    """The part of a ``Trainer`` that is for early training."""

    _early: EarlyTraining | None

    @property
    def early_groups(self) -> int:
        """How many groups a step's ``micro_batches(early=...)`` may hand out in part: one fewer than there is room for, so that one that comes
        whole has room, too."""
        return max(0, self._there().groups.room - 1)

    def add_member(self, batch: MicroBatch, *, group: str, member: str, reward: float) -> None:
        """Adds a member of a group of one's own: all of its rows, whose advantages are not read. ``close_groups`` closes it. Rows of a store
        come by ``accumulate``."""
        early = self._there()
        early.refuse_unusable()
        early.add(batch, group, member, reward)

    def close_groups(self, *names: str) -> None:
        """Says that nobody more will come to these groups, or to any that is open: their gradients are those of the members that came.

        ``commit`` closes by itself what the store waits for no more."""
        early = self._there()
        early.refuse_unusable()
        early.close_all(names)

    def _there(self) -> EarlyTraining:
        if self._early is None:
            raise StateError("the trainer trains whole groups; make it with early=Early(...)")
        return self._early
