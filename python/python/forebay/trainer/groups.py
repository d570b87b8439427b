"""The groups of a step that are trained before they are complete: sums of their members' gradients, part of a gradient cache.

A group is *begun* by its first member and *closed* when nobody more will come; closing it adds its gradient, as the whole group would
have it, to the sum of closed groups. All sums are integers (``sums.py``), so neither the order in which members come nor that in which groups
are closed changes a bit of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ..errors import CapacityError, InputError
from .advantages import Estimator
from .flat import allocate
from .layout import Layout
from .line import Values, factors_of
from .sums import Sums

__all__ = ["Closed", "Group", "Member", "OpenGroups"]


@dataclass(frozen=True)
class Member:
    """What one member adds, beside gradients."""

    name: str
    reward: float
    loss: float
    """The numerator of the terms with the advantage, at the advantage that it was computed for."""
    rest: float
    """That of the others."""
    denominator: float
    rows: int
    tokens: int
    metrics: dict[str, float]


@dataclass
class Group:
    """A group that is open."""

    name: str
    key: str | None
    """Its key in the store, for who has one."""
    sums: list[Sums]
    """Two of the terms with the advantage, and one of the others, where there are any."""
    members: dict[str, Member] = field(default_factory=dict)


@dataclass(frozen=True)
class Closed:
    """What a group that was closed adds to a step, beside its gradient."""

    loss: float
    members: list[Member]


class OpenGroups:
    """The open groups of a trainer, and the sum of those that were closed in this step.

    layout: of what is trained. estimator, values, by_sign: see ``Early``. rest: whether the loss has terms without the advantage.
    budget_bytes: what the sums of open groups may take.
    """

    def __init__(
        self,
        layout: Layout,
        device: torch.device,
        *,
        estimator: Estimator,
        values: Values,
        by_sign: bool,
        rest: bool,
        fraction_bits: int,
        budget_bytes: int,
    ) -> None:
        self.layout, self.device, self.budget_bytes = layout, device, budget_bytes
        self.estimator, self.values, self.by_sign, self.rest, self.fraction_bits = estimator, values, by_sign, rest, fraction_bits
        self.open: dict[str, Group] = {}
        self.over: set[str] = set()
        self.changes = 0
        self.regain()

    @property
    def group_bytes(self) -> int:
        """What the sums of one open group take."""
        return (2 + self.rest) * self.layout.elements * torch.int64.itemsize

    @property
    def room(self) -> int:
        """How many groups may be open at a time."""
        return self.budget_bytes // max(1, self.group_bytes)

    @property
    def identity(self) -> str:
        """What sums mean, where those of a state are gone on with."""
        return f"two={self.values.two}, reference={self.values.reference}, fraction_bits={self.fraction_bits}, rest={self.rest}"

    @property
    def is_empty(self) -> bool:
        return not self.open and not self.has_closed

    def refuse_full(self, name: str) -> None:
        """Raises CapacityError where a group is not open and there is no room for it."""
        if name not in self.open and len(self.open) >= self.room:
            raise CapacityError(
                f"{len(self.open)} groups are open, and {name} would take {self.group_bytes} bytes more than budget_bytes={self.budget_bytes}: "
                "ask for micro_batches(..., early=trainer.early_groups), or raise the budget"
            )

    def _sums(self, name: str) -> list[Sums]:
        return [Sums(self.layout.elements, self.fraction_bits, self.device, f"sums of {name}") for _ in range(2 + self.rest)]

    def add(self, name: str, key: str | None, member: Member, gradients: Callable[[int], torch.Tensor]) -> None:
        """Adds a member to a group, which is begun if it was not.

        key: its key in the store. gradients: computes that of the terms with the advantage (0), and of the others (1).
        """
        _, factors = self.values.parts(member.reward)
        for part in range(1 + self.rest):
            gradient = gradients(part)
            group = self.open.get(name) or self.open.setdefault(name, Group(name, key, self._sums(name)))
            self.changes += 1
            for sums, factor in zip(group.sums[2:] if part else group.sums, (1.0,) if part else factors):
                if factor != 0:
                    sums.add(factor, gradient)
        self.open[name].members[member.name] = member

    def refuse(self, group: str, name: str, reward: float) -> None:
        """Raises InputError for a reward that no member may have, and for a member that is there or comes too late."""
        if group in self.over:
            raise InputError(
                f"{name} comes when {group} was closed without it: its gradient would be that of another group; exclude the row, or drop() and "
                "begin the step again"
            )
        if self.values.two is not None and reward not in self.values.two:
            raise InputError(
                f"the reward of {name} is {reward}, and early training was told that rewards are {self.values.two[0]} or {self.values.two[1]}; "
                "name the values that there are, or train whole groups"
            )
        if name in (self.open[group].members if group in self.open else ()):
            raise InputError(f"{name} is in the sums of {group} already; each member comes once")

    def close(self, name: str) -> Closed:
        """Puts the gradient of a group into the sum of closed ones. Raises InputError, and leaves it open, where the estimator's advantages
        do not fit."""
        group = self.open[name]
        members = [group.members[key] for key in sorted(group.members)]
        rewards = [member.reward for member in members]
        factors = factors_of(name, self.values, rewards, self.estimator(rewards), self.by_sign)
        terms = list(zip((factors.first, factors.second, 1.0), group.sums))
        weighted = [(factor, sums) for factor, sums in terms if factor != 0]
        self.has_closed, self.changes = True, self.changes + 1
        if weighted:
            self.closed.add_weighted(weighted)
        del self.open[name]
        self.over.add(name)
        sign = lambda member: self.values.parts(member.reward)[0]
        losses = (a * sign(m) * m.loss + m.rest for a, m in zip(factors.advantages, members))
        return Closed(sum(losses), members)

    def with_closed(self, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient, and what closed groups add to it, in a buffer that is the same each time."""
        if not self.has_closed:
            return gradient
        self.scratch.copy_(gradient)
        self.closed.add_to(self.scratch)
        return self.scratch

    def drop(self) -> None:
        self.open, self.over = {}, set()
        self.has_closed = False
        self.closed.zero()

    def regain(self) -> None:
        """Takes memory, of zeros."""
        self.has_closed = False
        self.closed = Sums(self.layout.elements, self.fraction_bits, self.device, "sums of closed groups")
        self.scratch = allocate(self.layout.elements, torch.float32, self.device, "gradient of a member")

    def release(self) -> None:
        self.open, self.over = {}, set()
        self.closed.values, self.scratch = self.closed.values.new_empty(0), self.scratch.new_empty(0)

    # State

    def buffers(self) -> dict[str, torch.Tensor]:
        """What belongs to a state, by name; nothing where there is nothing."""
        if self.is_empty:
            return {}
        names = {f"early.{place}.{part}": sums.values for place, group in enumerate(self.open.values()) for part, sums in enumerate(group.sums)}
        return {"early.closed": self.closed.values, **names}

    def tell(self) -> dict[str, Any] | None:
        if self.is_empty:
            return None
        groups = [{"name": group.name, "key": group.key, "members": list(map(asdict, group.members.values()))} for group in self.open.values()]
        return {"sums": self.identity, "groups": groups, "closed": sorted(self.over)}

    def told(self, told: Mapping[str, Any] | None) -> OpenGroups:
        """The same with the groups of a state, whose buffers are still to be filled."""
        made = OpenGroups(
            self.layout, self.device, estimator=self.estimator, values=self.values, by_sign=self.by_sign, rest=self.rest,
            fraction_bits=self.fraction_bits, budget_bytes=self.budget_bytes,
        )  # fmt: skip
        if told is None:
            return made
        made.has_closed, made.over = True, set(told["closed"])
        for group in told["groups"]:
            members = {member["name"]: Member(**member) for member in group["members"]}
            made.open[group["name"]] = Group(group["name"], group["key"], made._sums(group["name"]), members)
        return made
