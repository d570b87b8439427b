"""What a state holds beside buffers: counters, as JSON, and torch's random state."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch

from ..errors import CorruptError
from .cache import GradientCache
from .claims import Applied
from .errors import LayoutError, OtherSettingsError, OtherVersionError
from .groups import Member, OpenGroups
from .state import Payload

__all__ = [
    "decoded",
    "encoded",
    "random_state",
    "refuse_apart",
    "refuse_other_optimizer",
    "refuse_other_sums",
    "refuse_random_state",
    "restore_random_state",
]

_FORMAT, _FORMAT_EARLY = 2, 3
"""A state with sums of early training has a format of its own, so that a reader that knows nothing of them does not lose them."""


def encoded(cache: GradientCache, applied: Applied, **told: Any) -> torch.Tensor:
    """Version, updates, what the loss and the subject are, and what the cache says of itself."""
    early = None if cache.groups is None else cache.groups.tell()
    told |= {
        "format": _FORMAT if early is None else _FORMAT_EARLY,
        "early": early,
        "layout": cache.layout.fingerprint,
        "claims": cache.claims,
        "numerator": float(cache.numerator),
        "denominator": cache.denominator,
        "rows": cache.rows,
        "tokens": cache.tokens,
        "metrics": {name: float(value) for name, value in cache.metrics.items()},
        **applied.tell(),
    }
    return torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)


def decoded(payloads: Mapping[str, Payload], layout: str, subject: Mapping[str, Any], objective: str) -> dict[str, Any]:
    """The counters of a state. Raises CorruptError where they are none, LayoutError where they are of another layout or base, or have
    gradients of another loss."""
    if "counters" not in payloads:
        raise LayoutError(f"the state has no payload 'counters'; it has {', '.join(sorted(payloads))}")
    try:
        told: dict[str, Any] = json.loads(payloads["counters"].memory.cpu().numpy().tobytes())
        if told.get("format") not in (_FORMAT, _FORMAT_EARLY):
            raise LayoutError(f"the state has the format {told.get('format')!r}, and this is a reader of {_FORMAT} and {_FORMAT_EARLY}")
        wrong = [name for name, holds in _FIELDS.items() if not holds(told.get(name))]
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise CorruptError(f"the state's counters cannot be read: {type(error).__name__}: {error}; take an earlier version") from error
    if wrong:
        raise CorruptError(f"the state's counters have {wrong[0]!r} = {str(told.get(wrong[0]))[:60]}; take an earlier version")
    if told["layout"] != layout:
        raise LayoutError(
            f"the state is of a model of the layout {told['layout'][:12]}, and this one has {layout[:12]}: names, types, shapes or "
            "what is trained differ"
        )
    _refuse_others(told, subject, objective)
    return told


def _refuse_others(told: Mapping[str, Any], subject: Mapping[str, Any], objective: str) -> None:
    for name in sorted(told["subject"].keys() | subject.keys()):
        if told["subject"].get(name) != subject.get(name):
            raise LayoutError(
                f"the state's adapter has {name} {told['subject'].get(name)!r}, and this one {subject.get(name)!r}: its values mean "
                "something else here; make the adapter, and its base, as they were"
            )
    if told["objective"] != objective and (told["claims"] or told["denominator"]):
        raise LayoutError(
            f"the state has gradients of the loss {told['objective']}, and this trainer's is {objective}: they do not add up; resume it "
            "with the loss that it had, or take a state of between two steps"
        )


def refuse_other_sums(told: Mapping[str, Any], groups: OpenGroups | None) -> None:
    """Raises LayoutError where a state has sums of early training that mean something else here."""
    early = told.get("early")
    own = None if groups is None else groups.identity
    if early is not None and early["sums"] != own:
        raise LayoutError(
            f"the state has {len(early['groups'])} open groups, with {early['sums']}, and this trainer "
            f"{'trains whole groups' if own is None else f'has {own}'}; resume it with the Early(...) that it had"
        )


def refuse_other_optimizer(told: Mapping[str, Any], settings: Mapping[str, object]) -> None:
    """Raises OtherSettingsError where a state's moments were made by other settings."""
    made = told.get("optimizer") or {}
    other = [name for name, value in settings.items() if name in made and made[name] != value]
    if other:
        raise OtherSettingsError(
            f"the state's moments were made with {other[0]}={made[other[0]]!r}, and this trainer's AdamW has {other[0]}={settings[other[0]]!r}: "
            "the next updates would be of neither; make the trainer as it was, or say other_optimizer=True"
        )


def refuse_apart(told: Mapping[str, Any], policy_version: int | None) -> None:
    """Raises OtherVersionError where trainer and store would be apart."""
    state = told["version"]
    if policy_version is None or state == policy_version or (state == policy_version + 1 and told["applied"]):
        return
    way = (
        "what the store committed since is in no weights of it; resume a later state, or go back to that version in the store"
        if state < policy_version
        else "the store does not have the steps that made it; resume an earlier state"
    )
    raise OtherVersionError(f"the state is version {state} of the policy, and the store stands at {policy_version}: {way}")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, list) and len(row) == 2 and _is_count(row[0]) for row in value)


def _are_keys(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(key, str) for key in value)


def _is_claim(claim: Any) -> bool:
    return isinstance(claim, dict) and ("name" in claim or (isinstance(claim.get("table"), str) and _are_rows(claim.get("rows"))))


def _is_member(member: Any) -> bool:
    numbers = ("reward", "loss", "rest", "denominator")
    counts = all(_is_count(member[name]) for name in ("rows", "tokens"))
    texts = isinstance(member["name"], str) and isinstance(member["metrics"], dict) and member.keys() == _MEMBER
    return counts and texts and all(type(member[name]) in (int, float) for name in numbers)


def _are_sums(told: Any) -> bool:
    groups = told["groups"]
    names = all(isinstance(group["name"], str) and isinstance(group["key"], (str, type(None))) for group in groups)
    texts = isinstance(told["sums"], str) and all(isinstance(name, str) for name in told["closed"])
    return texts and names and all(_is_member(member) for group in groups for member in group["members"])


_MEMBER = {each.name for each in fields(Member)}
_UPDATE = {"version", "loss", "gradient_norm", "is_clipped", "rows", "tokens", "denominator", "metrics"}
_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("version", "updates", "rows", "tokens"), _is_count),
    "layout": lambda value: isinstance(value, str),
    "objective": lambda value: isinstance(value, str),
    "subject": lambda value: isinstance(value, dict),
    "numerator": lambda value: type(value) in (int, float),
    "denominator": lambda value: _is_number(value) and value >= 0,
    "claims": lambda value: isinstance(value, list) and all(map(_is_claim, value)),
    "metrics": lambda value: isinstance(value, dict) and all(type(number) in (int, float) for number in value.values()),
    "applied": lambda value: isinstance(value, dict) and all(map(_are_rows, value.values())),
    "applied_groups": lambda value: value is None or (isinstance(value, dict) and all(map(_are_keys, value.values()))),
    "early": lambda value: value is None or _are_sums(value),
    "optimizer": lambda value: value is None or isinstance(value, dict),
    "update": lambda value: value is None or (isinstance(value, dict) and value.keys() == _UPDATE and _is_count(value["version"])),
}


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """torch's generators of the CPU and of a CUDA device."""
    states = {"rng.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(device)
    return states


def refuse_random_state(payloads: Mapping[str, Payload], device: torch.device) -> None:
    """Raises CorruptError for what no generator takes."""
    devices = {"rng.cpu": torch.device("cpu"), **({"rng.cuda": device} if device.type == "cuda" else {})}
    for name, of in devices.items():
        try:
            if name in payloads:
                torch.Generator(of).set_state(payloads[name].tensor().cpu())
        except (RuntimeError, TypeError) as error:
            raise CorruptError(f"payload {name!r} is no state of a generator: {error}; take an earlier version") from error


def restore_random_state(payloads: Mapping[str, Payload], device: torch.device) -> None:
    if "rng.cpu" in payloads:
        torch.set_rng_state(payloads["rng.cpu"].tensor().cpu())
    if "rng.cuda" in payloads and device.type == "cuda":
        torch.cuda.set_rng_state(payloads["rng.cuda"].tensor().cpu(), device)
