"""The objects of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError, WaitTimeout
from .arguments import listed, seconds
from .filling import Filling
from .many import each
from .tensors import TensorSpec, checked, mapping_of, number, specs_of
from .version import Version
from .watch import Watch

if TYPE_CHECKING:
    from .._forebay import ObjectCalls

__all__ = ["Objects", "Shown"]

OF_KEYS = "keys of objects"
LOOK_S = 1.0
"""How long it may take to fetch what is known to be there."""


class Shown(NamedTuple):
    """One version, as a list shows it."""

    key: str
    version: int
    bytes: int
    tensors: int
    tiers: tuple[str, ...]
    leases: int
    published: bool
    created_at: datetime
    metadata: dict[str, str]


def named_version(name: str, given: Any) -> tuple[str, int | None]:
    """A version, by its key or by its key and number."""
    key, version = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(key, str):
        raise InputError(f"{name} is the key of an object, or (key, version), not {given!r}")
    return key, number("version", version)


class Objects:
    """The objects of a store, in this process or behind a server: ``store.objects``. Any thread may call."""

    def __init__(self, calls: ObjectCalls) -> None:
        self._calls = calls

    def set(
        self,
        key: str,
        tensors: Any,
        *,
        expected: int | None = None,
        version: int | None = None,
        memory_class: str | Mapping[str, str] = "weights",
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Sets the next version of a key, whole or not at all, and gives its number.

        tensors: a mapping of names to arrays or tensors, or a module of torch.
        expected: the version that has to be the newest (0: there is none yet); StateError where it is not. ``None``: whichever is.
        version: a number of the caller's own, above all before. Default: one more than the newest.
        memory_class: which payload tensors lie in: one for all, or one for each name. Tensors of a class lie one after the other.
        metadata: what is said of the version.
        """
        number("version", version)
        tensors = mapping_of(tensors)
        specs = specs_of(tensors, memory_class)
        with self._begin(key, specs, expected, False, metadata) as filling:
            for name, tensor in tensors.items():
                filling.write(name, tensor)
            return filling.commit(version=version)

    def publish(
        self,
        key: str,
        tensors: Any,
        *,
        memory_class: str | Mapping[str, str] = "weights",
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Sets a version for the first who receives it. ``get`` does not find it."""
        tensors = mapping_of(tensors)
        with self._begin(key, specs_of(tensors, memory_class), None, True, metadata) as filling:
            for name, tensor in tensors.items():
                filling.write(name, tensor)
            return filling.commit()

    def begin(
        self,
        key: str,
        specs: Mapping[str, TensorSpec],
        *,
        expected: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Filling:
        """Begins a version that is filled in parts; leaving it without ``commit`` gives it up."""
        return self._begin(key, checked(specs), expected, False, metadata)

    def _begin(
        self,
        key: str,
        specs: Mapping[str, TensorSpec],
        expected: int | None,
        published: bool,
        metadata: Mapping[str, str] | None,
    ) -> Filling:
        self._check_metadata(metadata)
        named = [(spec.memory_class, name, spec.dtype, list(spec.shape)) for name, spec in specs.items()]
        filling = Filling(self._calls.begin(key, named, number("expected", expected), published), dict(specs))
        if metadata:
            filling._filling.metadata(dict(metadata))
        return filling

    @staticmethod
    def _check_metadata(metadata: Any) -> None:
        texts = isinstance(metadata, Mapping) and all(isinstance(text, str) for of in metadata.items() for text in of)
        if metadata is not None and not texts:
            raise InputError(f"metadata is a dict of texts by text, or None, not {metadata!r}")

    def commit_together(self, fillings: list[Filling]) -> int:
        """Commits versions of several keys under one number, all or none: the shards of one state."""
        if not isinstance(fillings, (list, tuple)) or not all(isinstance(filling, Filling) for filling in fillings):
            raise InputError(f"fillings is a list of what begin() gave, not {fillings!r}")
        if not fillings:
            raise InputError("fillings is empty; give one at least")
        return self._calls.commit_together([filling._filling for filling in fillings])

    def get(
        self,
        key: str,
        version: int | None = None,
        *,
        at_least: int | None = None,
        timeout: float | None = None,
        tier: str = "host",
    ) -> Version:
        """Holds a version: the newest, or the one of that number, or the newest once it is ``at_least``.

        timeout: how long to wait for ``at_least``, in seconds; WaitTimeout when it is over. Default: as long as it takes.
        tier: where its bytes are to be, ``"host"`` or ``"disk"``. They are copied there when they are not.
        """
        if at_least is None:
            if timeout is not None:
                raise InputError("timeout is for a version to come; say which with at_least=")
            return Version(self._calls.get(key, number("version", version), tier))
        if version is not None:
            raise InputError(f"version={version} and at_least={at_least}: give one of them")
        return Version(self._calls.wait(key, number("at_least", at_least), tier, timeout))

    async def get_async(self, key: str, at_least: int = 1, *, timeout: float | None = None, tier: str = "host") -> Version:
        """Waits for a version in an event loop: the newest, once it is ``at_least``."""
        return Version(await self._calls.wait_async(key, number("at_least", at_least), tier, timeout))

    def get_together(self, keys: list[str]) -> list[Version]:
        """Holds the newest version that all of these keys have, of each."""
        return [Version(held) for held in self._calls.get_together(keys)]

    def receive(self, key: str, *, timeout: float | None = 20.0) -> Version:
        """Takes the oldest published version of a key that nobody is receiving. ``done()`` removes it; letting go of it without gives
        it back, for the next."""
        return Version(self._calls.wait(key, None, "host", timeout))

    async def receive_async(self, key: str, *, timeout: float | None = 20.0) -> Version:
        """The same in an event loop."""
        return Version(await self._calls.wait_async(key, None, "host", timeout))

    def set_many(self, objects: Mapping[str, Any], **how: Any) -> dict[str, int | Exception]:
        """Sets the next version of each key, as ``set`` does. Gives its number, or the exception that it met, by key; raises the first
        of them where every key failed. Where the server cannot be reached, the keys that are left fail as the first did. At most 10,000
        keys, as in every call of many."""
        if not isinstance(objects, Mapping):
            raise InputError(f"objects is a mapping of keys to what set() takes, not {objects!r}")
        return each(objects, lambda key: self.set(key, objects[key], **how))

    def get_many(self, keys: Iterable[str], *, tier: str = "host") -> dict[str, Version | Exception]:
        """Holds the newest version of each key; results as those of ``set_many``."""
        return each(listed("keys", OF_KEYS, keys), lambda key: self.get(key, tier=tier))

    def receive_many(self, keys: Iterable[str], *, timeout: float | None = 60.0) -> dict[str, Version | Exception]:
        """Takes what was published under each key; results as those of ``set_many``. All share one wait; once it is over, what is there
        is taken all the same."""
        timeout = seconds("timeout", timeout)
        until = None if timeout is None else monotonic() + timeout
        there: set[str] | None = None

        def receive(key: str) -> Version:
            nonlocal there
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                if there is None:
                    there = {shown.key for shown in self.list() if shown.published}
                if key not in there:
                    raise WaitTimeout(f"nothing was published under {key!r} in {timeout} s")
                left = LOOK_S
            return self.receive(key, timeout=left)

        return each(listed("keys", OF_KEYS, keys), receive)

    def delete_many(self, versions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], bool | Exception]:
        """Removes versions; false for those that were not there. Results as those of ``set_many``."""
        versions = listed("versions", "pairs of a key and a number", versions)
        if unpaired := [of for of in versions if not isinstance(of, tuple) or len(of) != 2]:
            raise InputError(f"versions are pairs of a key and a number, and {unpaired[0]!r} is none")
        return each(versions, lambda of: self.delete(*of))

    def watch(self, key: str) -> Watch:
        """New versions of a key from now on."""
        return Watch(self, key, max((shown.version for shown in self.list(key) if not shown.published), default=0))

    def list(self, key: str | None = None) -> list[Shown]:
        """Every version that can be had, by key and number; of one key, if one is named."""
        if key is not None and not isinstance(key, str):
            raise InputError(f"key is a text, the key of an object, or None, not {key!r}")
        start = datetime(1970, 1, 1, tzinfo=timezone.utc)
        return [
            Shown(name, version, size, tensors, tuple(tiers), leases, once, start + timedelta(microseconds=at), metadata)
            for name, version, size, tensors, tiers, leases, once, at, metadata in self._calls.list()
            if key is None or name == key
        ]

    def delete(self, key: str, version: int) -> bool:
        """Removes a version; false when there is none. Whoever holds it keeps it."""
        return self._calls.delete(key, number("version", version))

    def spill(self, key: str, version: int | None = None) -> int:
        """Brings a version to the disk as well, on stable storage."""
        return self._calls.spill(key, number("version", version))

    def demote(self, key: str, version: int | None = None) -> int:
        """Brings a version to the disk, and takes it out of memory."""
        return self._calls.demote(key, number("version", version))

    def exchange(self, out: str | tuple[str, int], into: str | tuple[str, int]) -> tuple[int, int]:
        """One version goes to the disk while another comes from there. Gives the numbers of both."""
        went, came, _ = self._calls.exchange(named_version("out", out), named_version("into", into))
        return went, came

    def __repr__(self) -> str:
        return "<the objects of a store>"
