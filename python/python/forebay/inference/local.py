"""A model in this process as an instance, for tests and small runs.

Each version is a model of its own, made of the published tensors and, for everything else, of the memory of the model that was given. A
request keeps the model that it began with; the next one gets the new. Nothing is written to, so nothing can be mixed, and the memory of
an old version is free when its last request is done.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch

from ..errors import InputError
from ..trainer.parameters import plain_name
from ..trainer.subject import Subject
from .agreement import Agreement
from .errors import InstanceError, InstanceRefusedError, InstanceTimeoutError, WrongWeightsError
from .instance import Answer, Held, ReportedSpan, Request, Sampling
from .publication import Publication

__all__ = ["LocalInstance", "Sampled", "sample"]

Sampled: TypeAlias = tuple[list[int], list[float], str]
"""Tokens, their log-probabilities, and how it ended."""


@torch.no_grad()
def sample(model: Any, prompt: tuple[int, ...], sampling: Sampling, deadline: float | None = None) -> Sampled:
    """Draws tokens one after the other from a causal language model of ``transformers``. The log-probabilities are those of the
    distribution that is drawn from.

    deadline: of ``time.monotonic()``. Raises TimeoutError when it has passed, and InputError for what it does not know: ``extra``.
    """
    _refuse_sampling(sampling)
    device = next(model.parameters()).device
    tokens = torch.tensor([prompt], device=device)
    drawn: list[int] = []
    logprobs: list[float] = []
    for _ in range(sampling.max_tokens):
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{len(drawn)} of {sampling.max_tokens} tokens were drawn in the time that was given")
        every = _distribution(model(input_ids=tokens, use_cache=False).logits[0, -1].float(), sampling)
        chosen = torch.multinomial(every.exp(), 1) if sampling.temperature > 0 else every.argmax().reshape(1)
        drawn.append(int(chosen))
        logprobs.append(float(every[chosen]))
        if drawn[-1] in sampling.stop_token_ids:
            return drawn, logprobs, "stop"
        tokens = torch.cat([tokens, chosen[None]], 1)
    return drawn, logprobs, "length"


def _distribution(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The log-probabilities that are drawn from: at the temperature, of the likeliest tokens that have ``top_p`` together."""
    every = torch.log_softmax(logits / sampling.temperature if sampling.temperature > 0 else logits, -1)
    if sampling.top_p >= 1 or sampling.temperature <= 0:
        return every
    ordered, places = every.sort(descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    left_out = places[before >= sampling.top_p]  # the likeliest has nothing before it, so one stays
    return torch.log_softmax(every.index_fill(0, left_out, -math.inf), -1)


def _refuse_sampling(sampling: Sampling) -> None:
    if not 0 < sampling.top_p <= 1:
        raise InputError(f"top_p={sampling.top_p} is no share; it is above 0 and at most 1")
    if sampling.extra:
        raise InputError(f"a model in this process does not know {sorted(sampling.extra)}; leave extra empty, or give a generate that does")


class LocalInstance:
    """A model in this process.

    subject: the model, or an adapter of one (``Base.adapter``, ``PeftBase.adapter``): what the trainer has that publishes, or one that
        is made alike.
    generate: draws tokens: a function of the model, the prompt and the sampling, all of whose fields are its own to honour. Its time is
        looked at when it returns. Default: ``sample``, which looks before each token.
    """

    def __init__(
        self,
        subject: torch.nn.Module | Subject,
        *,
        name: str = "local",
        generate: Callable[[Any, tuple[int, ...], Sampling], Sampled] | None = None,
    ) -> None:
        self.name, self._generate, self._subject = name, generate, subject
        self._label: str | None = None

    def bring(
        self, publication: Publication, before: Held | None, close: Callable[[bool], None], agreement: Agreement
    ) -> Held:
        try:
            model = self._made(publication)
        except InstanceError as error:
            error.is_untouched, error.version = True, publication.version.label
            raise
        self._label = publication.version.label
        return Held(publication.version, "memory", model=model)

    def answer(self, request: Request, held: Held) -> Answer:
        if request.messages is not None:
            raise InstanceRefusedError("a model has no template of messages; give it tokens", instance=self.name, status=400)
        deadline = time.monotonic() + request.timeout_s
        try:
            if self._generate is None:
                tokens, logprobs, finish = sample(held.model, request.tokens, request.sampling, deadline)
            else:
                tokens, logprobs, finish = self._generate(held.model, request.tokens, request.sampling)
                if time.monotonic() > deadline:
                    raise TimeoutError("the tokens were drawn too late")
        except TimeoutError as error:
            raise InstanceTimeoutError(f"no answer within {request.timeout_s:g} s: {error}", instance=self.name) from error
        spans = (ReportedSpan(0, len(tokens), held.version.label),)
        return Answer(request.tokens, tuple(tokens), tuple(logprobs), finish, spans)

    def label(self) -> str | None:
        return self._label

    def retire(self, held: Held) -> None:
        """Its memory goes when nobody has the model any more."""

    def _made(self, publication: Publication) -> torch.nn.Module:
        """A model of the published tensors, and of everybody's memory for the rest."""
        model, named, active = self._parts()
        own = {} if isinstance(self._subject, torch.nn.Module) else self._subject.identity()
        for name in sorted(own.keys() & publication.subject.keys()):
            if own[name] != publication.subject[name]:
                raise self._other(f"its {name} is {own[name]!r}, and the adapter was trained with {publication.subject[name]!r}")
        places = {id(parameter): torch.nn.Parameter(parameter.data, requires_grad=False) for parameter in model.parameters()}
        left = dict(publication.tensors)
        first: dict[int, str] = {}
        for name, parameter in named:
            tensor = left.pop(name, None)
            if tensor is not None and first.setdefault(id(parameter), name) == name:
                if tuple(parameter.shape) != tensor.shape:
                    raise self._other(f"{name!r} has the shape {list(parameter.shape)}, and {list(tensor.shape)} was published")
                values = publication.payloads[tensor.dtype].tensor()[tensor.offset : tensor.offset + tensor.elements]
                memory = values.view(tensor.shape).to(parameter.device, copy=True)
                places[id(parameter)] = torch.nn.Parameter(memory, requires_grad=False)
        if left:
            raise self._other(f"it has no parameter {next(iter(left))!r}, which was published")
        with active:
            return copy.deepcopy(model, places).eval()

    def _parts(self) -> tuple[torch.nn.Module, Iterator[tuple[str, torch.nn.Parameter]], AbstractContextManager[None]]:
        if isinstance(self._subject, torch.nn.Module):
            model = self._subject
            named = ((plain_name(name), p) for name, p in model.named_parameters(remove_duplicate=False))
            return model, named, nullcontext()
        subject: Any = self._subject
        return subject.model, subject.named(), subject.active()

    def _other(self, what: str) -> WrongWeightsError:
        return WrongWeightsError(what, instance=self.name)
