"""Advantages of the members of a group, relative to each other.

    advantage = (reward - mean) / (deviation + epsilon)         (Shao et al., "DeepSeekMath", 2024)

Numbers are those of ``forebay_pipeline::advantage::Grpo``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..errors import InputError

__all__ = ["Estimator", "GroupRelative", "is_flat"]

Estimator: TypeAlias = Callable[[Sequence[float]], Sequence[float]]
"""The advantages of a group, in the order of its rewards."""


@dataclass(frozen=True)
class GroupRelative:
    """Rewards beside their group's mean.

    ddof: degrees of freedom that are taken off the standard deviation (0: population, 1: sample); ``None``: nothing is divided (Dr. GRPO).
    epsilon: keeps a small spread from blowing up.
    single: what the member of a group of one gets: nothing, or its reward.

    A group whose rewards are all equal has advantages of exactly 0.
    """

    ddof: Literal[0, 1] | None = 0
    epsilon: float = 1e-6
    single: Literal["zero", "reward"] = "zero"

    def __post_init__(self) -> None:
        if self.ddof not in (0, 1, None) or not self.epsilon >= 0 or self.single not in ("zero", "reward"):
            raise InputError(f"{self!r}: ddof is 0, 1 or None, epsilon 0 or more, and single 'zero' or 'reward'")

    def __call__(self, rewards: Sequence[float]) -> list[float]:
        if len(rewards) == 1:
            return [rewards[0] if self.single == "reward" else 0.0]
        if is_flat(rewards):
            return [0.0] * len(rewards)
        mean = sum(rewards) / len(rewards)
        scale = 1.0
        if self.ddof is not None:
            squares = sum((reward - mean) * (reward - mean) for reward in rewards)
            scale = math.sqrt(squares / (len(rewards) - self.ddof)) + self.epsilon
        return [(reward - mean) / scale for reward in rewards]


def is_flat(rewards: Sequence[float]) -> bool:
    """Whether several rewards are all equal, compared exactly: the rounding of a mean would give them a spread."""
    return len(rewards) > 1 and all(reward == rewards[0] for reward in rewards)
