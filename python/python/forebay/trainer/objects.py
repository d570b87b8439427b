"""States as objects of a store: in shared memory, where another process gets them without a copy, and on its disk.

A payload is a tensor of its object, in the memory class that it is of: so weights, master, moments and gradients lie in four contiguous
pieces, and an instance that wants the weights reads nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from safetensors.torch import load

from ..errors import InputError, StateError, WaitTimeout
from .errors import VersionConflictError
from .state import Payload, parts_of

if TYPE_CHECKING:
    from .._forebay import Store

__all__ = ["ObjectStateStore"]

_RESERVED = ("state.", "part.")

_CLASSES = {"weights": "weights", "master": "master", "exp_avg": "moments", "exp_avg_sq": "moments", "gradient": "gradient"}


class ObjectStateStore:
    """A ``StateStore`` that is the objects of a store, in this process or behind a server.

    store: what ``forebay.open`` or ``forebay.connect`` gives.
    policy: whose commits name its states (``named``).
    spill: brings each version to the disk before ``set`` returns, so that it outlives a power failure. Default: the memory of the
        machine is enough, which outlives every process.

    A key is one of ``DirectoryStateStore``. Its object's name has ``.`` for ``/`` and ``..`` for ``.``, so that no two keys share one.
    Names that begin with ``state.`` or ``part.`` are those of process groups, and refused. What ``get`` gives lies in the store's memory: it is to be copied, and not written.
    """

    def __init__(self, store: Store, *, policy: str | None = None, spill: bool = False) -> None:
        self.store, self.objects, self.policy = store, store.objects, policy
        self.spill = spill

    def set(self, key: str, payloads: Mapping[str, Payload], expected: int | None = None) -> int:
        name = _name(key)
        tensors = {payload: given.tensor() for payload, given in payloads.items()}
        classes = {payload: _CLASSES.get(payload.partition(".")[0], "other") for payload in payloads}
        try:
            version = self.objects.set(name, tensors, expected=expected, memory_class=classes)
        except StateError as error:
            if expected is not None and self._latest(name) != expected:
                raise VersionConflictError(str(error)) from error
            raise
        if self.spill:
            self.objects.spill(name, version)
        return version

    def get(self, key: str, version: int | None = None) -> tuple[int, dict[str, Payload]]:
        try:
            with self.objects.get(_name(key), version) as held:
                held.verify()
                return held.version, {name: Payload.of(held.torch(name)) for name in held}
        except StateError:
            if version is None or self.policy is None or version != self.committed(key):
                raise
        # Too old for the objects' own retention, and kept as a file, since the policy stands on it.
        tensors = load(self.store.policy_state(self.policy)[_name(key)])
        return version, {name: Payload.of(tensor) for name, tensor in tensors.items()}

    def named(self, key: str, version: int) -> dict[str, int]:
        """What a step's commit is told so that the policy stands on a state from then on, which is brought to the disk for it and kept:
        ``step.commit({"solver": (update.version, states.named(key, version))})``."""
        return {_name(key): version}

    def committed(self, key: str) -> int | None:
        """The version of a key that the policy stands on: the one that its last commit named. ``None`` where it named none."""
        if self.policy is None:
            raise StateError("whose commits name states was not said; make it with policy=")
        return self.store.policy_objects(self.policy).get(_name(key))

    def wait(self, key: str, after: int, timeout_s: float) -> int | None:
        """The number of the latest version of a key once it is above ``after``; ``None`` where there is none in so many seconds."""
        try:
            with self.objects.get(_name(key), at_least=after + 1, timeout=timeout_s) as held:
                return held.version
        except WaitTimeout:
            return None

    def versions(self, key: str) -> list[int]:
        """The versions of a key, ascending."""
        return sorted(shown.version for shown in self.objects.list(_name(key)) if not shown.published)

    def _latest(self, name: str) -> int:
        return max((shown.version for shown in self.objects.list(name) if not shown.published), default=0)


def _name(key: str) -> str:
    name = "/".join(part.replace(".", "..") for part in parts_of(key)).replace("/", ".")
    if name.startswith(_RESERVED):
        raise InputError(f"key {key!r} would be the object {name!r}, and such names are of process groups; let it begin otherwise")
    return name
