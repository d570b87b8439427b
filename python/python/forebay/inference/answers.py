"""What both engines have in common: chats in OpenAI's form, spans of versions, and answers that are checked before they are believed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .endpoint import Reply
from .errors import AnswerError
from .instance import Answer, ReportedSpan, Request

__all__ = ["UNDOCUMENTED", "chat_answer", "chat_body", "checked", "checksum_of", "spans_of", "unreadable"]

UNDOCUMENTED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What comes of reading an answer that is not as documented."""


def chat_body(request: Request) -> dict[str, Any]:
    """The members of a chat's body that both engines read."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "messages": list(request.messages or ()),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "logprobs": True,
        "return_token_ids": True,
    }
    if sampling.stop_token_ids:
        body["stop_token_ids"] = list(sampling.stop_token_ids)
    return {**body, **sampling.extra, **request.options}


def chat_answer(instance: str, reply: Reply, choice: dict[str, Any], tokens: Any, prompt: Any, spans: Any) -> Answer:
    """A chat's answer. tokens, prompt: the ids, from where the engine puts them."""
    try:
        content = (choice.get("logprobs") or {}).get("content") or []
        return checked(
            instance,
            reply,
            Answer(
                tuple(int(token) for token in prompt),
                tuple(int(token) for token in tokens),
                tuple(float(entry["logprob"]) for entry in content),
                str(choice.get("finish_reason")),
                spans,
                choice.get("message"),
            ),
        )
    except UNDOCUMENTED as error:
        raise unreadable(instance, reply, error) from error


def spans_of(told: Any) -> tuple[ReportedSpan, ...] | None:
    """``[{version, start, end}]`` as both engines tell it; ``None`` where nothing is told. Raises like any conversion."""
    if not told:
        return None
    return tuple(ReportedSpan(int(span["start"]), int(span["end"]), str(span["version"])) for span in told)


def checked(instance: str, reply: Reply, answer: Answer) -> Answer:
    """An answer that has a log-probability for each token, and spans that cover the tokens."""
    tokens, at = len(answer.tokens), 0
    if len(answer.logprobs) != tokens or not all(map(math.isfinite, answer.logprobs)):
        what = f"it gave {tokens} tokens with {len(answer.logprobs)} log-probabilities, or some that are no numbers"
        raise AnswerError(what, instance=instance, endpoint=reply.endpoint)
    if answer.spans is None:
        return answer
    spans = tuple(span for span in answer.spans if span.end > span.start) or answer.spans[-1:]
    for span in spans:
        if span.start != at:
            what = f"its spans {[(span.start, span.end) for span in spans]} do not cover {tokens} tokens"
            raise AnswerError(what, instance=instance, endpoint=reply.endpoint)
        at = span.end
    if at != tokens:
        what = f"its spans end at {at}, and it gave {tokens} tokens"
        raise AnswerError(what, instance=instance, endpoint=reply.endpoint)
    return replace(answer, spans=spans)


def unreadable(instance: str, reply: Reply, error: Exception) -> AnswerError:
    what = f"its answer is not as documented ({type(error).__name__}: {error}): {reply.text[:200]!r}"
    return AnswerError(what, instance=instance, endpoint=reply.endpoint)


def checksum_of(told: Any) -> str:
    """One hash of what a server says of its tensors: a mapping of names to hashes, or such a mapping a process, in whatever order
    processes answered."""
    found = sorted(json.dumps(mapping, sort_keys=True) for mapping in _mappings(told)) or [json.dumps(told, sort_keys=True)]
    return hashlib.blake2b("\n".join(found).encode(), digest_size=16).hexdigest()


def _mappings(told: Any) -> Iterator[dict[str, str]]:
    """The innermost mappings of names to hashes that are called ``checksums``, or are all that there is."""
    if isinstance(told, dict):
        inner = told.get("checksums", told if all(isinstance(value, str) for value in told.values()) else None)
        if isinstance(inner, dict) and inner and all(isinstance(value, str) for value in inner.values()):
            yield inner
            return
    for value in told.values() if isinstance(told, dict) else told if isinstance(told, list) else ():
        yield from _mappings(value)
