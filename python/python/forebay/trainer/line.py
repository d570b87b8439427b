"""The line on which the advantages of a group lie over its rewards, and what the sums of an open group are multiplied by.

Every group-relative estimator is ``advantage = slope (reward - reference) + base``, so with ``s_i`` the gradient of a member for an
advantage of 1 the gradient of the group is ``slope D + base S``, with ``S = sum of s_i`` and ``D = sum of (r_i - reference) s_i``.
With two reward values each has a sum of its own, made for the sign that its advantage will have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from .advantages import is_flat

__all__ = ["Factors", "Values", "factors_of"]


@dataclass(frozen=True)
class Values:
    """Which rewards members may have.

    two: the lower and the higher of two. reference: for any others, a number near them.
    """

    two: tuple[float, float] | None = None
    reference: float = 0.0

    def parts(self, reward: float) -> tuple[float, tuple[float, float]]:
        """The advantage that a member is computed for, and the factors of its gradient in the two sums."""
        if self.two is None:
            return 1.0, (1.0, reward - self.reference)
        return (1.0, (1.0, 0.0)) if reward == self.two[1] else (-1.0, (0.0, 1.0))


@dataclass(frozen=True)
class Factors:
    """What the two sums are multiplied by, and what that makes the advantage of each member."""

    first: float
    second: float
    advantages: list[float]


def factors_of(group: str, values: Values, rewards: Sequence[float], advantages: Sequence[float], by_sign: bool) -> Factors:
    """Raises InputError for advantages that do not lie on a line over the rewards; with ``by_sign`` also for those that have another sign
    than members were computed for."""
    given = [float(advantage) for advantage in advantages]
    if len(given) != len(rewards) or not all(map(math.isfinite, given)):
        raise InputError(f"the estimator gave {given!r:.80} for the {len(rewards)} members of {group}; it gives a finite number for each")
    if is_flat(rewards):
        return Factors(0.0, 0.0, [0.0] * len(rewards))
    slope, base = _line(values, rewards, given)
    _refuse_others(group, rewards, given, [slope * (reward - _origin(values)) + base for reward in rewards])
    if values.two is None:
        return Factors(base, slope, given)
    of = dict(zip(rewards, given))
    first, second = of.get(values.two[1], 0.0), -of.get(values.two[0], 0.0)
    if by_sign and (first < 0 or second < 0):
        raise InputError(
            f"the estimator gives the members of {group} {of}: a clipped loss needs 0 or more at the higher reward and 0 or less at the "
            "lower; train whole groups"
        )
    return Factors(first, second, given)


def _origin(values: Values) -> float:
    return values.reference if values.two is None else values.two[0]


def _line(values: Values, rewards: Sequence[float], advantages: Sequence[float]) -> tuple[float, float]:
    """The line through the members with the least and the greatest reward."""
    least, most = rewards.index(min(rewards)), rewards.index(max(rewards))
    spread = rewards[most] - rewards[least]
    slope = (advantages[most] - advantages[least]) / spread if spread > 0 else 0.0
    return slope, advantages[least] - slope * (rewards[least] - _origin(values))


def _refuse_others(group: str, rewards: Sequence[float], advantages: Sequence[float], expected: Sequence[float]) -> None:
    greatest = max(map(abs, advantages))
    for reward, advantage, line in zip(rewards, advantages, expected):
        if abs(line - advantage) > 1e-6 * greatest:
            raise InputError(
                f"the estimator gives reward {reward} of {group} the advantage {advantage}, and on a line through the others it would have "
                f"{line}: members can be trained early only for advantages on a line over the rewards; train whole groups"
            )
