"""Exact early training: rows are trained on as they come, before the other members of their group have.

The mean of a group is not known before its last member has come, and half a group has another one. But the gradient of a policy loss is
linear in the advantage, and group-relative advantages are linear in the rewards. So each member's gradient is added to sums of its group
(``groups.py``), and closing the group weighs them: the gradient that the whole group would have had.

    trainer = Trainer(model, early=Early(reward="reward"))
    for batch in step.micro_batches(train, size=16, early=trainer.early_groups):
        trainer.accumulate(batch)

Who has no room for the sums of one group trains whole groups, with advantages of the same estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..errors import InputError
from .advantages import Estimator, GroupRelative
from .columns import Columns
from .flat import FlatWeights
from .groups import OpenGroups
from .line import Values
from .objective import Objective, identity_of

__all__ = ["Early"]


@dataclass(frozen=True)
class Early:
    """How members of groups are trained before their group is complete.

    reward: the column of a number a row that members of a group are compared by. The advantage's column is not read.
    advantages: makes advantages of a group's rewards. Any will do whose advantages lie on a line over the rewards.
    values: the two values that rewards have, the lower first. With them a loss with a clipped ratio can be trained early, too.
    reference: a number near the rewards, where there are more than two values: differences from it are summed.
    budget_bytes: what the sums of open groups may take: 16 bytes a trained weight and group, 24 with a KL penalty.
    fraction_bits: sums are integers in units of 2 to the minus so many.
    """

    reward: str = "reward"
    advantages: Estimator = field(default_factory=GroupRelative)
    values: tuple[float, float] | None = None
    reference: float = 0.0
    budget_bytes: int = 1 << 30
    fraction_bits: int = 40

    def __post_init__(self) -> None:
        if not 16 <= self.fraction_bits <= 56:
            raise InputError(f"fraction_bits={self.fraction_bits!r} is not 16 to 56")
        if not math.isfinite(self.reference) or self.budget_bytes < 0:
            raise InputError(f"reference={self.reference!r} is to be a number, and budget_bytes={self.budget_bytes!r} 0 or more")
        if self.values is not None and not (len(self.values) == 2 and -math.inf < self.values[0] < self.values[1] < math.inf):
            raise InputError(f"values={self.values!r} are not two numbers, the lower first")

    def groups(self, weights: FlatWeights, objective: Objective, columns: Columns) -> OpenGroups:
        """The sums of a trainer. Raises InputError for a loss that cannot be trained early."""
        told = getattr(objective, "advantage_term", None)
        if told is None:
            raise InputError(
                f"the loss {identity_of(objective)} does not say how it depends on the advantage (advantage_term), so it cannot be "
                "trained early; train whole groups"
            )
        term = told(columns.old_logprobs is not None)
        if term.by_sign and self.values is None:
            raise InputError(
                f"columns name old_logprobs={columns.old_logprobs!r}, and a clipped ratio is linear only where the sign of the advantage "
                "is known: give Early(values=(low, high)) where rewards have two values, leave the column out, or train whole groups"
            )
        return OpenGroups(
            weights.layout, weights.device, estimator=self.advantages, values=Values(self.values, self.reference),
            by_sign=term.by_sign, rest=term.rest, fraction_bits=self.fraction_bits, budget_bytes=self.budget_bytes,
        )  # fmt: skip
