"""Instances that are servers: the order of calls that brings one to a version, whichever engine it is.

Weights are exchanged in these steps; ``vllm`` and ``sglang`` say which route is which.

1. The rotation gives the instance nothing new, and waits for what it was given, unless requests are to be aborted or to go on.
2. Pause.
3. The label becomes one that no version has. Whoever asks from now on, or after a crash, hears that the weights are of none.
4. Load from the directory, and drop what was cached of the weights before.
5. Checksum, compared as ``agreement`` says; once more from 4 where nothing confirms it.
6. The label becomes the version's, and is read back.
7. Resume.

Where a step up to 3 fails, the instance is resumed and goes on with what it has, if it still says so. Where a later one fails it stays
paused, out of the rotation, until the whole of it succeeds. So each may be done again at any time.

An adapter is loaded beside the one before, under a name that is its version's. Nothing is paused: what is under way ends with the adapter
that it began with, which is unloaded after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from ..errors import InputError
from .agreement import Agreement
from .errors import InstanceError, WrongWeightsError
from .instance import Answer, Held, InFlight, Request
from .publication import Publication
from .version import Version, loading_label

__all__ = ["Engine", "ServerInstance"]

_LOADS = 3


class Engine(Protocol):
    """The routes of a server, by what they do. Each raises InstanceError."""

    @property
    def name(self) -> str:
        """What the server is called."""

    @property
    def kind(self) -> str:
        """``vllm`` or ``sglang``."""

    def pause(self, in_flight: InFlight) -> None: ...

    def resume(self) -> None: ...

    def label(self) -> str | None:
        """The label of the weights; ``None`` where the server knows no labels."""

    def set_label(self, label: str) -> None: ...

    def load(self, directory: str) -> None:
        """Loads weights from a directory that the server sees under the same path."""

    def drop_caches(self, in_flight: InFlight) -> None:
        """Drops what was computed with other weights. Requests that go on are computed again."""

    def checksum(self) -> str | None:
        """Of the weights that it computes with; ``None`` where it does not say."""

    def load_adapter(self, name: str, directory: str) -> None: ...

    def unload_adapter(self, name: str) -> None: ...

    def has_adapter(self, name: str, directory: str) -> bool | None:
        """Whether it lists an adapter of this name from this directory; ``None`` where it does not say."""

    def answer(self, request: Request, adapter: str | None) -> Answer: ...


class ServerInstance:
    """A server of vLLM or SGLang.

    engine: its routes: ``VllmServer`` or ``SglangServer``.
    in_flight: what becomes of requests that are under way when new weights come.
    evidence: ``"checksum"``, or ``"label"`` for servers that have no checksum of their weights: then the version is what they say.
    alike: instances that have the same checksum for the same weights have the same word here. Default: the engine's.
    adapter: what an adapter's name begins with.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        in_flight: InFlight = "finish",
        evidence: Literal["checksum", "label"] = "checksum",
        alike: str | None = None,
        adapter: str = "forebay",
    ) -> None:
        if in_flight not in ("finish", "abort", "continue"):
            raise InputError(f"in_flight={in_flight!r}; it is 'finish', 'abort' or 'continue'")
        if evidence not in ("checksum", "label"):
            raise InputError(f"evidence={evidence!r}; it is 'checksum' or 'label'")
        self.engine, self.in_flight, self.evidence, self.adapter = engine, in_flight, evidence, adapter
        self.alike = alike or engine.kind

    @property
    def name(self) -> str:
        return self.engine.name

    def label(self) -> str | None:
        return self.engine.label()

    def answer(self, request: Request, held: Held) -> Answer:
        return self.engine.answer(request, held.adapter)

    def retire(self, held: Held) -> None:
        if held.adapter is not None:
            self.engine.unload_adapter(held.adapter)

    def bring(
        self, publication: Publication, before: Held | None, close: Callable[[bool], None], agreement: Agreement
    ) -> Held:
        if publication.directory is None:
            raise InputError(f"{publication.version.label} is in no directory that a server could load; write_checkpoint() makes one")
        try:
            if publication.is_adapter:
                return self._bring_adapter(publication)
            return self._bring_weights(publication, before, close, agreement)
        except InstanceError as error:
            error.version = error.version or publication.version.label
            raise

    # Weights

    def _bring_weights(
        self, publication: Publication, before: Held | None, close: Callable[[bool], None], agreement: Agreement
    ) -> Held:
        version = publication.version
        try:
            if self._has_it(version, agreement):
                self.engine.resume()
                return Held(version, "checksum")
            close(self.in_flight == "finish")
            self.engine.pause(self.in_flight)
            self.engine.set_label(loading_label(version.label))
        except InstanceError as error:
            error.is_untouched = before is not None and self._goes_on(before)
            raise
        evidence = self._load(publication, agreement)
        self.engine.set_label(version.label)
        said = self.engine.label()
        if said != version.label:
            raise self._wrong(f"it was loaded, and says that it has {said!r}")
        self.engine.resume()
        return Held(version, evidence)

    def _has_it(self, version: Version, agreement: Agreement) -> bool:
        """Whether it has the version already, as after a call whose answer was lost."""
        confirmed = agreement.confirmed(self.alike, version)
        return confirmed is not None and self.engine.label() == version.label and self.engine.checksum() == confirmed

    def _goes_on(self, before: Held) -> bool:
        """Resumes it with what it has. Whether that is what it had."""
        try:
            self.engine.resume()
            return self.engine.label() == before.version.label
        except InstanceError:
            return False

    def _load(self, publication: Publication, agreement: Agreement) -> Literal["checksum", "label"]:
        version = publication.version
        for _ in range(_LOADS):
            self.engine.load(str(publication.directory))
            self.engine.drop_caches(self.in_flight)
            checksum = self.engine.checksum() if self.evidence == "checksum" else None
            if checksum is None:
                self._refuse_without_checksum()
                return "label"
            other = agreement.other_version(self.alike, version, checksum)
            if other is not None:
                raise self._wrong(f"after the load its weights still have the checksum of {other.label}")
            if agreement.loaded(self.alike, version, checksum):
                return "checksum"
        confirmed = agreement.confirmed(self.alike, version)
        than = "than on other instances" if confirmed else "each time"
        raise self._wrong(f"{_LOADS} loads of the same files gave other checksums {than}")

    def _refuse_without_checksum(self) -> None:
        if self.evidence == "checksum":
            raise self._wrong(
                "it has no checksum of its weights, so that only its word would say what it has; start it with that route (vLLM: "
                "VLLM_SERVER_DEV_MODE=1), or take its word with evidence='label'"
            )

    def _wrong(self, what: str) -> WrongWeightsError:
        return WrongWeightsError(what, instance=self.name)

    # Adapters

    def _bring_adapter(self, publication: Publication) -> Held:
        name, directory = f"{self.adapter}-{publication.version.label}", str(publication.directory)
        try:
            if not self.engine.has_adapter(name, directory):
                self._load_adapter(name, directory)
            listed = self.engine.has_adapter(name, directory)
            if listed is False:
                raise self._wrong(f"it took the adapter {name!r}, and does not list it from {directory}")
        except InstanceError as error:
            error.is_untouched = True  # the adapter before is still there, under its own name
            raise
        return Held(publication.version, "listing" if listed else "label", adapter=name)

    def _load_adapter(self, name: str, directory: str) -> None:
        """Loads it; where its name is taken, by a call whose answer was lost or by other files, anew."""
        try:
            self.engine.load_adapter(name, directory)
        except InstanceError as error:
            if error.status is None or error.status >= 500:
                raise
            self.engine.unload_adapter(name)
            self.engine.load_adapter(name, directory)
