"""Responses of the instances of a rotation, each with the version that made it.

The version is never taken from what somebody meant to be there. In this order it is: the name of the adapter that was asked for; the
labels that the server put on the tokens; or, where it puts none, its label after the answer, if it was not changed meanwhile. A label
that the instance was not brought to (a server that was started anew, somebody else's update) takes it out of rotation, and the request
is made again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import InputError
from .errors import InstanceError, StampError, WrongWeightsError
from .instance import Answer, Evidence, Request, Sampling
from .lease import Lease
from .rotation import Rotation
from .trial import Trial, may_another
from .version import Span, Version

__all__ = ["Generation", "OnAbort", "Rollouts"]

OnAbort = Literal["retry", "continue", "return"]
"""What to do about a response that an update has cut off: make it anew; have its rest made by the new weights; or give what there is."""


@dataclass(frozen=True)
class Generation:
    """A response, and who made it."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token, by the weights that drew it."""
    finish: str
    spans: tuple[Span, ...]
    """Which tokens are of which version: one span, unless an update came in between."""
    instance: str
    evidence: Evidence
    message: Mapping[str, Any] | None = None
    """Of a chat."""

    @property
    def version(self) -> Version:
        """The version that it began with, which is that of its row."""
        return self.spans[0].version

    @property
    def is_of_one_version(self) -> bool:
        return len({span.version for span in self.spans}) == 1

    @property
    def stamp(self) -> dict[str, Any]:
        """What ``Table.insert`` takes of it: ``policy_version``, and ``weights``, their fingerprint."""
        return {"policy_version": self.version.number, "weights": self.version.fingerprint}


class Rollouts:
    """Asks the instances of a rotation. Any number of threads may call.

    attempts: how many instances are tried for one response before the last one's error is raised.
    """

    def __init__(self, rotation: Rotation, *, attempts: int = 8) -> None:
        if attempts < 1:
            raise InputError(f"attempts={attempts} is no number of attempts")
        self.rotation, self.attempts = rotation, attempts

    def generate(
        self,
        prompt: Sequence[int],
        *,
        sampling: Sampling | None = None,
        timeout_s: float = 600.0,
        on_abort: OnAbort = "retry",
    ) -> Generation:
        """The response to a prompt of tokens.

        Raises NoInstanceError where no instance has the version in time, InstanceError for what an instance answers to the request
        itself, or where all that serve are broken; RequestError where two instances fail at it in the same way, and StampError where no
        answer's version could be known.
        """
        if not prompt:
            raise InputError("the prompt has no tokens; give at least one")
        _refuse_abort(on_abort)
        request = Request(sampling or Sampling(), timeout_s, tokens=tuple(int(token) for token in prompt))
        return self._whole(request, time.monotonic() + timeout_s, on_abort)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        sampling: Sampling | None = None,
        timeout_s: float = 600.0,
        on_abort: OnAbort = "retry",
        **options: Any,
    ) -> Generation:
        """The response to messages, with the tokens that the server's template made of them. options: more members of the request's
        body, ``tools`` for instance."""
        if on_abort == "continue":
            raise InputError("a chat that was cut off cannot be continued, since its template ends the message; take 'retry' or 'return'")
        _refuse_abort(on_abort)
        request = Request(sampling or Sampling(), timeout_s, messages=messages, options=options)
        return self._whole(request, time.monotonic() + timeout_s, on_abort)

    def _whole(self, request: Request, deadline: float, on_abort: OnAbort) -> Generation:
        made: Generation | None = None
        while True:
            part = self._ask(request, deadline)
            if on_abort == "continue":
                made = part if made is None else _joined(made, part)
                left = request.sampling.max_tokens - len(part.tokens)
                if part.finish != "abort" or left <= 0:
                    return made
                request = replace(request, tokens=made.prompt + made.tokens, sampling=replace(request.sampling, max_tokens=left))
            elif part.finish != "abort" or on_abort == "return":
                return part

    def _ask(self, request: Request, deadline: float) -> Generation:
        trial = Trial()
        try:
            for attempt in range(1, self.attempts + 1):
                with self.rotation.lease(max(0.0, deadline - time.monotonic())) as lease:
                    try:
                        return _asked(lease, request, deadline)
                    except (InstanceError, StampError) as error:
                        if not may_another(lease, error, trial) or attempt == self.attempts:
                            raise
            raise AssertionError("the last attempt returns or raises")
        finally:
            trial.end()


def _asked(lease: Lease, request: Request, deadline: float) -> Generation:
    """What the instance answers, and which versions made it."""
    left = max(0.001, deadline - time.monotonic())
    answer = lease.instance.answer(replace(request, timeout_s=left), lease.held)
    spans = _spans(lease, answer)
    lease.answered()
    return Generation(
        answer.prompt, answer.tokens, answer.logprobs, answer.finish, spans, lease.instance.name, lease.held.evidence, answer.message
    )


def _spans(lease: Lease, answer: Answer) -> tuple[Span, ...]:
    """Which versions made the answer. Raises WrongWeightsError, or StampError where it cannot be known."""
    held, length = lease.held, len(answer.tokens)
    if held.adapter is not None:
        return (Span(0, length, held.version),)
    if answer.spans is None:
        return (Span(0, length, _version_afterwards(lease)),)
    spans = []
    for reported in answer.spans:
        version = Version.of_label(reported.label)
        if version is None or not lease.knows(version):
            raise _wrong(lease, reported.label)
        spans.append(Span(reported.start, reported.end, version))
    if lease.is_current and any(span.version != held.version for span in spans):
        raise _wrong(lease, answer.spans[0].label)
    return tuple(spans)


def _version_afterwards(lease: Lease) -> Version:
    """The version of an answer without labels: what the instance had before and has after it."""
    label, version = lease.instance.label(), lease.held.version
    if not lease.is_current:
        raise StampError(
            f"instance {lease.instance.name!r} was changed while it answered, and puts no versions on its tokens; with "
            "in_flight='finish' no update comes in between"
        )
    if label != version.label:
        raise _wrong(lease, label)
    return version


def _wrong(lease: Lease, label: str | None) -> WrongWeightsError:
    what = f"it answered with {label!r}, and was brought to {lease.held.version.label}"
    return WrongWeightsError(what, instance=lease.instance.name, version=lease.held.version.label)


def _joined(made: Generation, part: Generation) -> Generation:
    """A response and its rest, which was made of all before it."""
    at = len(made.tokens)
    moved = [Span(span.start + at, span.end + at, span.version) for span in part.spans if span.end > span.start]
    spans = [span for span in made.spans if span.end > span.start]
    for span in moved:
        if spans and spans[-1].version == span.version:
            spans[-1] = replace(spans[-1], end=span.end)
        else:
            spans.append(span)
    return replace(
        part, prompt=made.prompt, tokens=made.tokens + part.tokens, logprobs=made.logprobs + part.logprobs,
        spans=tuple(spans) or part.spans,
    )  # fmt: skip


def _refuse_abort(on_abort: str) -> None:
    if on_abort not in ("retry", "continue", "return"):
        raise InputError(f"on_abort={on_abort!r}; it is 'retry', 'continue' or 'return'")
