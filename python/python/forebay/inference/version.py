"""Versions of a policy as instances are told of them.

A *version* is a number and the fingerprint of the weights. Its *label* is what a server is told that it has (``weight_version``), and,
for an adapter, a part of the adapter's name: so whatever a server says of itself names the weights and not only their number. While a
server loads, its label is one that no version has: a server that is left half loaded, by anybody's death, says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Span", "Version", "loading_label"]

_LABEL = re.compile(r"v(\d{1,18})-([0-9a-f]{8,128})")


@dataclass(frozen=True)
class Version:
    """A version of a policy's weights.

    number: of the policy, as rows have it. fingerprint: of the weights, as ``Trainer.weight_fingerprint`` gives it.
    """

    number: int
    fingerprint: str

    @property
    def label(self) -> str:
        """``v7-FINGERPRINT``."""
        return f"v{self.number}-{self.fingerprint}"

    @classmethod
    def of_label(cls, label: object) -> Version | None:
        """The version that a label names; ``None`` for what is the label of none."""
        found = _LABEL.fullmatch(label) if isinstance(label, str) else None
        return cls(int(found[1]), found[2]) if found else None


@dataclass(frozen=True)
class Span:
    """Which tokens of a response were made by which weights: from ``start`` to before ``end``."""

    start: int
    end: int
    version: Version


def loading_label(label: str) -> str:
    """What a server is called while it may have parts of several versions."""
    return f"loading-{label}"
