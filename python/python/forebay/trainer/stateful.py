"""What of a trainer outlives it: its state, and its memory while it is suspended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from ..errors import Error, InputError, StateError
from .adamw import FlatAdamW
from .cache import GradientCache
from .claims import Applied
from .counters import (
    decoded,
    encoded,
    random_state,
    refuse_apart,
    refuse_other_optimizer,
    refuse_other_sums,
    refuse_random_state,
    restore_random_state,
)
from .errors import LayoutError, TornWeightsError
from .flat import storage_bytes
from .objective import Objective, identity_of
from .ranks import Ranks
from .reduction import refuse_difference
from .state import Payload, StateStore, as_payloads, fill
from .subject import Subject
from .weights import Weights

__all__ = ["Stateful"]


class Stateful(Weights):
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
    def device(self) -> torch.device:
        return self.subject.weights.device

    @property
    def is_suspended(self) -> bool:
        return self._is_suspended

    @property
    def bytes(self) -> dict[str, int]:
        """How much memory each buffer takes; nothing while suspended."""
        tensors = {**self._buffers(), "packed_gradients": self.cache.packed}
        if self.cache.groups:
            tensors |= {"early": self.cache.groups.closed.values, "member": self.cache.groups.scratch, **self.cache.groups.buffers()}
        return {name: storage_bytes(tensor) for name, tensor in tensors.items()}

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
        if self.cache.groups is not None:
            raise InputError("members of groups are trained early in one process: make the trainer without early=, and ranks take whole groups")
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
        identity = {"subject": self.subject.identity(), "objective": identity_of(self.objective), "optimizer": self.optimizer.settings.identity}
        counters = encoded(self.cache, self.applied, version=self.version, updates=self.updates, **identity)
        sums = self.cache.groups.buffers() if self.cache.groups else {}
        return as_payloads({**self._buffers(), **sums, "counters": counters, **random_state(self.device)})

    def restore(
        self, payloads: Mapping[str, Payload], *, policy_version: int | None = None, other_optimizer: bool = False
    ) -> None:
        """Takes a state over, bit by bit, torch's random state included. What is a setting stays the trainer's own: learning rate, clipping,
        passes.

        policy_version: where the store stands, to be compared with the state, as in ``resume``.
        other_optimizer: takes moments that were made with other betas, eps or weight decay than the trainer's.

        Raises LayoutError where it is of another model, other types, another base or scale of an adapter, another choice of what is
        trained, or has gradients of another loss; OtherSettingsError; CorruptError where it is damaged; OtherVersionError. Nothing is
        changed then.
        """
        told = decoded(payloads, self.layout.fingerprint, self.subject.identity(), identity_of(self.objective))
        refuse_random_state(payloads, self.device)
        refuse_other_sums(told, self.cache.groups)
        if not other_optimizer:
            refuse_other_optimizer(told, self.optimizer.settings.identity)
        refuse_apart(told, policy_version)
        if self._is_suspended:
            self._regain()
        else:
            self._check_subject()
        try:
            groups = self.cache.groups and self.cache.groups.told(told.get("early"))
            with self._tearing("a state was restored", harmless=(LayoutError,)):
                fill({**self._buffers(), **(groups.buffers() if groups else {})}, payloads)
                self.version, self.updates = told["version"], told["updates"]
                self.cache.groups = groups
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

    def resume(
        self,
        store: StateStore,
        key: str,
        version: int | None = None,
        *,
        policy_version: int | None = None,
        other_optimizer: bool = False,
    ) -> int:
        """Goes on from a stored state: of this trainer, or in another process of one that was made alike. Gives its number.

        policy_version: ``store.policy_version(policy)``, where the trainer learns from the rows of a store. Raises OtherVersionError, and
            changes nothing, where the state is not of that version: the update of a step would be in no weights, or in them twice. A
            state of one version more is taken where it knows the rows that made it, which the store will hand out again.
        other_optimizer: as in ``restore``.
        """
        number, payloads = store.get(key, version)
        self.restore(payloads, policy_version=policy_version, other_optimizer=other_optimizer)
        return number

    def unfinished(self, policy_version: int) -> dict[str, list[str]] | None:
        """The groups of the last commit, by consumer, where the store has not committed it: for ``store.step(groups=...)``, so that they
        come again by themselves, whatever was written since. None, which takes all that there is, where nothing is left.

        policy_version: where the store stands: ``store.policy_version(policy)``.
        """
        update = self.applied.update
        is_ahead = update is not None and update.version == self.version == policy_version + 1
        return {consumer: list(keys) for consumer, keys in self.applied.groups.items()} or None if is_ahead else None

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
