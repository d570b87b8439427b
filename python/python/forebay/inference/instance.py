"""What a rotation asks of an instance, and the words in which both speak.

An *instance* is something that generates with a policy's weights: a server of vLLM or SGLang, or a model in this process. It is
*brought* to a publication; then it *holds* a version, with *evidence* that it really does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .agreement import Agreement
from .publication import Publication
from .version import Version

__all__ = ["Answer", "Evidence", "Held", "InFlight", "Instance", "ReportedSpan", "Request", "Sampling"]

Evidence = Literal["memory", "checksum", "listing", "label"]
"""How an instance's version is known. ``memory``: it is in this process, made of bytes that were hashed. ``checksum``: its checksum of the
weights that it computes with is one that two loads of this version gave. ``listing``: it lists an adapter of this name, loaded from this
directory. ``label``: it only says so."""

InFlight = Literal["finish", "abort", "continue"]
"""What becomes of requests that are under way when new weights come: they end with the old ones first; they end at once, with the tokens
that they have; or they are frozen and go on with the new ones."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. ``extra`` goes to the server as it is, under the server's own names."""

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One response that is wanted: to tokens, or to messages that the server's template makes tokens of."""

    sampling: Sampling
    timeout_s: float
    tokens: tuple[int, ...] = ()
    messages: Sequence[Mapping[str, Any]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """More members of the request's body, for a chat: ``tools``, ``chat_template_kwargs``."""


@dataclass(frozen=True)
class ReportedSpan:
    """What a server says of some tokens: the label of the weights that made them."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Answer:
    """What an instance made of a request."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token, by the sampler."""
    finish: str
    """``stop``, ``length``, ``abort``, ``tool_calls``."""
    spans: tuple[ReportedSpan, ...] | None
    """``None``: the instance does not say with which weights."""
    message: Mapping[str, Any] | None = None
    """Of a chat, as the server gives it."""


@dataclass(frozen=True)
class Held:
    """What an instance has."""

    version: Version
    evidence: Evidence
    adapter: str | None = None
    """The name by which a request asks for it, where it is an adapter."""
    model: Any = field(default=None, repr=False)
    """The model itself, of an instance in this process."""


class Instance(Protocol):
    """Something that generates. Calls come from several threads; ``bring`` from one at a time."""

    @property
    def name(self) -> str:
        """By which errors and answers tell it from others."""

    def bring(
        self, publication: Publication, before: Held | None, close: Callable[[bool], None], agreement: Agreement
    ) -> Held:
        """Loads a publication, and says what the instance has then.

        before: what it has. close: to be called, with whether requests under way are to end first, before weights that requests
        compute with are changed; from then on it gets no new ones. agreement: what the checksums of versions are. Raises
        InstanceError; ``is_untouched`` says that ``before`` is still there, whole, and served.
        """

    def answer(self, request: Request, held: Held) -> Answer:
        """Makes a response with what it holds. Raises InstanceError."""

    def label(self) -> str | None:
        """The label of the weights that it would answer with now."""

    def retire(self, held: Held) -> None:
        """Lets go of what no request uses any more."""
