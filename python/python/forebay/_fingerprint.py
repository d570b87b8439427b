"""What two sets of weights have in common when they are the same: computed here by who publishes and by who loads, with torch or without.

The *layout's* fingerprint stands for names, types, shapes and offsets, the *weights'* for it and for all bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["fingerprint_of_layout", "fingerprint_of_weights"]


def fingerprint_of_layout(entries: Iterable[tuple[str, str, Sequence[int], int]]) -> str:
    """entries: name, type, shape and offset (in elements of its buffer) of each tensor, in the order of the layout."""
    told = [[name, dtype, list(shape), offset] for name, dtype, shape, offset in entries]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def fingerprint_of_weights(layout: str, buffers: Iterable[tuple[str, Any]]) -> str:
    """layout: the layout's fingerprint. buffers: payloads in the order of their names (``weights.DTYPE``), as what has the buffer
    protocol."""
    digest = hashlib.blake2b(layout.encode(), digest_size=16)
    for name, buffer in buffers:
        digest.update(name.encode())
        digest.update(buffer)
    return digest.hexdigest()
