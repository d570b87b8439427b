"""What of a trainer outlives it: its state, its weights in files, and its memory while it is suspended."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from .._fingerprint import fingerprint_of_weights
from ..errors import Error, InputError, StateError
from .adamw import FlatAdamW
from .cache import GradientCache
from .claims import Applied
from .counters import decoded, encoded, random_state, refuse_apart, refuse_random_state, restore_random_state
from .errors import LayoutError, TornWeightsError
from .export import found_weights, save_pretrained
from .flat import storage_bytes
from .layout import Layout, dtype_name
from .objective import Objective, identity_of
from .ranks import Ranks
from .reduction import refuse_difference
from .state import Payload, StateStore, as_payloads, fill
from .subject import Subject

__all__ = ["Stateful"]


class Stateful:
    """The part of a ``Trainer`` that stores and restores it."""

    subject: Subject
    model: Any
    cache: GradientCache
    optimizer: FlatAdamW
    objective: Objective
    applied: Applied
    version: int
    updates: int
    max_gradient_norm: float | None
    ranks: Ranks | None
    _is_suspended: bool
    _torn: str | None
    _hook: Callable[[], None]

    @property
    def layout(self) -> Layout:
        """Where the trained parameters lie."""
        return self.subject.weights.layout

    @property
    def device(self) -> torch.device:
        return self.subject.weights.device

    @property
    def is_suspended(self) -> bool:
        return self._is_suspended

    @property
    def bytes(self) -> dict[str, int]:
        """How much memory each buffer takes; nothing while suspended."""
        tensors = {**self._buffers(), "packed_gradients": self.cache.packed}
        return {name: storage_bytes(tensor) for name, tensor in tensors.items()}

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name: views of the buffer, for who reads them before the next commit."""
        self._refuse_unusable()
        return {entry.name: self.subject.weights.view(entry) for entry in self.layout.entries()}

    def weight_fingerprint(self) -> str:
        """A hash of all trained weights. It does not change between commits, and is the same for the same bits anywhere."""
        self._refuse_unusable()
        buffers = sorted(self.subject.weights.payloads("weights").items())
        memory = ((name, buffer.view(torch.uint8).cpu().numpy().data) for name, buffer in buffers)
        return fingerprint_of_weights(self.layout.fingerprint, memory)

    # Publishing

    def publish(self, store: StateStore, key: str, *, expected: int | None = None) -> int:
        """Stores the trained weights (of an adapter: its own alone) as the next version of a key, for who generates with them: one
        payload a type, and a ``manifest`` in JSON with version, fingerprint, and where each tensor lies. Gives the number.

        Frozen weights and buffers of the module (statistics of batch norm, say) are not published: who generates has them from where it
        was started, so a module whose buffers change while it is trained is to be saved with ``save_pretrained``."""
        self._refuse_unusable()
        tensors = {**self.subject.weights.payloads("weights"), "manifest": self._manifest()}
        return store.set(key, as_payloads(tensors), expected)

    def _manifest(self) -> torch.Tensor:
        told = {
            "version": self.version,
            "fingerprint": self.weight_fingerprint(),
            "layout": self.layout.fingerprint,
            "subject": self.subject.identity(),
            "tensors": [
                {"name": e.name, "dtype": dtype_name(e.dtype), "shape": list(e.shape), "offset": e.offset}
                for e in self.layout.entries()
            ],
        }
        return torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Writes files that ``from_pretrained`` reads: of ``transformers`` for a whole model, of ``peft`` for an adapter. The directory is
        there whole or not at all; it must not exist."""
        self._refuse_unusable()
        save = getattr(self.subject, "save_pretrained", None)
        if save is None:
            save_pretrained(self.model, directory)
        else:
            save(directory)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Takes weights over from files of safetensors: a file, a directory of ``transformers``, or of ``peft`` for an adapter. Moments
        stay. Raises LayoutError, and changes nothing, where a tensor is missing or has another shape; CorruptError, and changes nothing,
        where files are damaged or missing; StateError while the cache has gradients."""
        self._refuse_unusable()
        self._refuse_gradients()
        self.subject.check()
        with found_weights(self.subject.named_views(), path) as copy:
            with self._tearing(f"weights were taken over from {os.fspath(path)}"):
                copy()
                self.optimizer.take_weights()
                self._moved_on()

    def adopt(self) -> None:
        """Goes on from the parameters as they are now: takes their values, and makes them views of the buffers again. Moments stay.

        Raises StateError while gradients are in the cache, which are of other weights; LayoutError for other parameters than before.
        """
        self._refuse_unusable()
        self._refuse_gradients()
        with self._tearing("parameters were taken in as they are", harmless=(Error,)):
            self.subject.adopt()
            self.optimizer.take_weights()
            self._moved_on()
            self._hook()

    def _moved_on(self) -> None:
        """The weights are no longer what the last commit made of them."""
        self.applied = Applied()
        self.subject.written()

    # Ranks

    def join(self, ranks: Ranks, *, source: int = 0) -> None:
        """Trains together with other processes from now on. All ranks call, and have the weights, moments and version of one of them
        then, bit by bit. The cache is kept where the weights were those already; else it is dropped, since its gradients are of
        others.

        source: the rank to take them from: after the loss of a rank, one of the highest version. Raises RanksDifferError where layout
        or settings differ; RankLostError, after which a rank may have parts of both: such a rank refuses to be used until it has joined
        again, or a state was restored (TornWeightsError).
        """
        self._refuse_suspended()
        self._check_subject()
        settings = {
            "layout": self.layout.fingerprint,
            "settings": repr((self.optimizer.settings, self.max_gradient_norm)),
            "objective": identity_of(self.objective),
            "subject": self.subject.identity(),
        }
        own = {"version": self.version, "updates": self.updates, "weights": None if self._torn else self.weight_fingerprint()}
        told = ranks.exchange({**settings, "own": own, **self.applied.tell()})
        for rank, other in enumerate(told):
            refuse_difference(rank, other, settings)
        if not 0 <= source < ranks.world:
            raise InputError(f"source={source} is no rank of {ranks.world}")
        if told[source]["own"]["weights"] is None:
            raise StateError(f"the weights of source={source} are torn: parts of them are of others; take a rank whose weights are whole")
        with nullcontext() if ranks.rank == source else self._tearing("weights were taken over from another rank"):
            for name, buffer in sorted(self._buffers().items()):
                if name != "gradient":
                    ranks.broadcast(buffer, source)
            if told[source]["own"] != own:
                self.cache.drop()
                self.applied = Applied.told(told[source])
                self.subject.written()
            self.version, self.updates = told[source]["own"]["version"], told[source]["own"]["updates"]
            self.ranks = ranks

    # State

    def state(self) -> dict[str, Payload]:
        """Everything that the next micro-batch and the next commit depend on, as it is between two of them; ``state.py`` has the list.
        The payloads are views: nothing is copied but counters and random state."""
        self._refuse_unusable()
        self.cache.refuse_spoiled()
        identity = {"subject": self.subject.identity(), "objective": identity_of(self.objective)}
        counters = encoded(self.cache, self.applied, version=self.version, updates=self.updates, **identity)
        return as_payloads({**self._buffers(), "counters": counters, **random_state(self.device)})

    def restore(self, payloads: Mapping[str, Payload], *, policy_version: int | None = None) -> None:
        """Takes a state over, bit by bit, torch's random state included. What is a setting stays the trainer's own: learning rate and
        moments' decay, clipping, passes.

        policy_version: where the store stands, to be compared with the state, as in ``resume``.

        Raises LayoutError where it is of another model, other types, another base or scale of an adapter, another choice of what is
        trained, or has gradients of another loss; CorruptError where it is damaged; OtherVersionError. Nothing is changed then.
        """
        told = decoded(payloads, self.layout.fingerprint, self.subject.identity(), identity_of(self.objective))
        refuse_random_state(payloads, self.device)
        refuse_apart(told, policy_version)
        if self._is_suspended:
            self._regain()
        else:
            self._check_subject()
        try:
            with self._tearing("a state was restored", harmless=(LayoutError,)):
                fill(self._buffers(), payloads)
                self.version, self.updates = told["version"], told["updates"]
                self.cache.restored(told)
                self.applied = Applied.told(told)
                self.subject.written()
                restore_random_state(payloads, self.device)
                if self._is_suspended:
                    self._hook()
                    self._is_suspended = False
        except BaseException:
            if self._is_suspended:
                self._release()
            raise

    def save(self, store: StateStore, key: str, *, expected: int | None = None) -> int:
        """Stores the state, and goes on. Gives the version under which it is stored. Between ``commit`` and ``Step.commit`` it makes that
        no death of the process loses an update or applies it twice."""
        self._refuse_unusable()
        self.subject.check()
        return store.set(key, self.state(), expected)

    def suspend(self, store: StateStore, key: str, *, expected: int | None = None) -> int:
        """Stores the state and gives the memory back. The model's own parameters are without values until ``resume``; so end the process,
        or resume. Gives the version under which the state is stored (a number of the state's key, not of the policy)."""
        version = self.save(store, key, expected=expected)
        self._release()
        self._is_suspended = True
        return version

    def resume(self, store: StateStore, key: str, version: int | None = None, *, policy_version: int | None = None) -> int:
        """Goes on from a stored state: of this trainer, or in another process of one that was made alike. Gives its number.

        policy_version: ``store.policy_version(policy)``, where the trainer learns from the rows of a store. Raises OtherVersionError, and
            changes nothing, where the state is not of that version: the update of a step would be in no weights, or in them twice. A
            state of one version more is taken where it knows the rows that made it, which the store will hand out again.
        """
        number, payloads = store.get(key, version)
        self.restore(payloads, policy_version=policy_version)
        return number

    def _buffers(self) -> dict[str, torch.Tensor]:
        weights = self.subject.weights.payloads("weights")
        return {**weights, **self.optimizer.payloads(), "gradient": self.cache.flat, **self.subject.owned()}

    def _release(self) -> None:
        for part in (self.subject, self.optimizer, self.cache):
            part.release()

    def _regain(self) -> None:
        try:
            for part in (self.subject, self.optimizer, self.cache):
                part.regain()
        except BaseException:
            self._release()
            raise

    @contextmanager
    def _tearing(self, what: str, *, harmless: tuple[type[Error], ...] = ()) -> Iterator[None]:
        """Weights or moments change within. Whatever interrupts it leaves them torn, but errors that are raised before the first change."""
        before, self._torn = self._torn, what
        try:
            yield
        except harmless:
            self._torn = before
            raise
        self._torn = None

    def _check_subject(self) -> None:
        """Before all weights are written anew."""
        if self._torn:
            self.subject.written()  # what was interrupted may have written to some parameters without saying so
        self.subject.check()

    def _refuse_unusable(self) -> None:
        self._refuse_suspended()
        if self._torn:
            raise TornWeightsError(
                f"the weights are torn: {self._torn}, and that was interrupted, so that parts of them are of others; restore a stored "
                "state (resume), or join() with the weights of another rank"
            )

    def _refuse_suspended(self) -> None:
        if self._is_suspended:
            raise StateError("the trainer is suspended and holds no memory; call resume(store, key) first")

    def _refuse_gradients(self) -> None:
        if not self.cache.is_empty:
            raise StateError(f"the cache has gradients of {len(self.cache.claims)} micro-batches of these weights; drop() them first")
