"""Settings and arguments of a trainer that make no sense, refused with the way out."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import Any

from ..errors import InputError
from .columns import Columns
from .objective import Objective

__all__ = ["refuse_denominator", "refuse_options", "refuse_rate", "refuse_unread", "with_vocabulary"]


def refuse_options(max_gradient_norm: float | None, rows_per_pass: int | None, max_lag: int | None) -> None:
    if max_lag is not None and max_lag < 0:
        raise InputError(f"max_lag={max_lag!r} is no number of versions; 0 takes rows of the weights' own version, None of any")
    if max_gradient_norm is not None and not max_gradient_norm > 0:
        raise InputError(f"max_gradient_norm={max_gradient_norm!r} is not above 0; None does not clip")
    if rows_per_pass is not None and rows_per_pass < 1:
        raise InputError(f"rows_per_pass={rows_per_pass!r} is no number of rows")


def refuse_denominator(denominator: float) -> None:
    if not 0 <= denominator < math.inf:
        raise InputError(f"denominator={denominator!r} is nothing to divide by; give how many rows or tokens the sum is over")


def refuse_unread(columns: Columns, objective: Objective) -> None:
    for name in getattr(objective, "unread", ()):
        if getattr(columns, name, None) is not None:
            raise InputError(
                f"columns name {name}={getattr(columns, name)!r}, and the loss does not read it; give importance_cap= and old_logprobs for "
                "importance weights, name the column old_logprobs for a clipped ratio, or leave it out"
            )


def refuse_rate(lr: object) -> None:
    if lr is not None and not (isinstance(lr, Real) and 0 <= float(lr) < math.inf):
        raise InputError(f"lr={lr!r} is no learning rate; give a number of 0 or more, or None for that of the settings")


def with_vocabulary(columns: Columns, model: Any) -> Columns:
    """The columns, with the number of tokens that the model knows where it says so."""
    embeddings = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    known = getattr(embeddings, "num_embeddings", None)
    return columns if columns.vocabulary is not None or known is None else replace(columns, vocabulary=known)
