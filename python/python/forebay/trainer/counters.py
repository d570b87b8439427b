"""What a state holds beside buffers: counters, as JSON, and torch's random state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from .cache import GradientCache
from .errors import LayoutError
from .state import Payload

__all__ = ["decoded", "encoded", "random_state", "restore_random_state"]

_FORMAT = 1


def encoded(cache: GradientCache, version: int, updates: int) -> torch.Tensor:
    """Version, updates and what the cache says of itself."""
    told = {
        "format": _FORMAT,
        "layout": cache.layout.fingerprint,
        "version": version,
        "updates": updates,
        "claims": cache.claims,
        "numerator": float(cache.numerator),
        "denominator": cache.denominator,
        "rows": cache.rows,
        "tokens": cache.tokens,
        "metrics": {name: float(value) for name, value in cache.metrics.items()},
    }
    return torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)


def decoded(payloads: Mapping[str, Payload], fingerprint: str) -> dict[str, Any]:
    """The counters of a state. Raises LayoutError where it is of another layout."""
    if "counters" not in payloads:
        raise LayoutError(f"the state has no payload 'counters'; it has {', '.join(sorted(payloads))}")
    told: dict[str, Any] = json.loads(payloads["counters"].memory.cpu().numpy().tobytes())
    if told.get("format") != _FORMAT:
        raise LayoutError(f"the state has the format {told.get('format')!r}, and this is a reader of {_FORMAT}")
    if told["layout"] != fingerprint:
        raise LayoutError(
            f"the state is of a model of the layout {told['layout'][:12]}, and this one has {fingerprint[:12]}: names, types, shapes or "
            "what is trained differ"
        )
    return told


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """torch's generators of the CPU and of a CUDA device."""
    states = {"rng.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_state(payloads: Mapping[str, Payload], device: torch.device) -> None:
    if "rng.cpu" in payloads:
        torch.set_rng_state(payloads["rng.cpu"].tensor().cpu())
    if "rng.cuda" in payloads and device.type == "cuda":
        torch.cuda.set_rng_state(payloads["rng.cuda"].tensor().cpu(), device)
