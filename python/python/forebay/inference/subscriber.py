"""Keeps the instances of a rotation at the latest version of a key.

One thread watches the key, reads each new version, compares it with its fingerprint, writes it as files where there are servers, and aims
the rotation at it. One thread an instance brings that instance to it, so many at a time; where that fails it tries again after a
while, or at once when there is a newer version. They share the rotation's lock and wait on its condition: an instance that falls out of
rotation wakes its thread.

A version that is damaged, or that does not fit the template, is passed over and told; the one before serves on.
"""

from __future__ import annotations

import logging
import pathlib
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from .._files import remove_abandoned
from ..errors import CapacityError, ClosedError, Error, InputError, RetryError
from .checkpoint import Template, write_checkpoint
from .directory_lock import DirectoryLock
from .errors import InstanceError, NoInstanceError
from .publication import Publication, read_publication
from .rotation import Rotation
from .version import Version

if TYPE_CHECKING:
    from ..trainer.state import Payload

__all__ = ["Subscriber", "WatchedStore"]

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0
_RETRY_S_MOST = 60.0
_PASSING = (OSError, MemoryError, RetryError, CapacityError, ClosedError)
"""What a version that could not be taken is tried again after."""


class WatchedStore(Protocol):
    """A state store that tells when there is a new version, as ``DirectoryStateStore`` and ``ObjectStateStore`` do."""

    def get(self, key: str, version: int | None = None) -> tuple[int, Mapping[str, Payload]]: ...

    def wait(self, key: str, after: int, timeout_s: float) -> int | None:
        """The number of the latest version once it is above ``after``; ``None`` where it is not in time."""


class Subscriber:
    """Brings instances to whatever ``Trainer.publish`` stores under a key.

    template: the directory that servers were started with, or one of peft where an adapter is published. directory: where versions
        are written for servers, which see it under the same path. Neither, where all instances are in this process.
    concurrency: how many instances are brought to a version at once.
    keep: how many versions stay in the directory, beside those that an instance has or loads.
    retry_s: how long to wait after an instance failed; twice as long each time, up to a minute.
    """

    def __init__(
        self,
        store: WatchedStore,
        key: str,
        rotation: Rotation,
        *,
        template: str | pathlib.Path | None = None,
        directory: str | pathlib.Path | None = None,
        concurrency: int = 4,
        keep: int = 2,
        retry_s: float = 1.0,
    ) -> None:
        if (template is None) != (directory is None):
            raise InputError("template and directory go together: versions are written as what one says to where the other says")
        if concurrency < 1 or keep < 1 or not retry_s > 0:
            raise InputError(f"concurrency={concurrency}, keep={keep} and retry_s={retry_s} are to be above 0")
        self.store, self.key, self.rotation = store, key, rotation
        self.template = None if template is None else Template(template)
        self.directory = None if directory is None else pathlib.Path(directory).absolute()
        self.keep, self.retry_s = keep, retry_s
        self.failure: Exception | None = None
        """Why the last version that was seen is not served by anybody, where it is not. What an instance failed at stands in the
        rotation's ``states()``."""
        self.failures = 0
        """How often a version was not taken, or the key could not be looked at."""
        self._taken: DirectoryLock | None = None
        self._latest: Publication | None = None
        self._is_closed = False
        self._loading: Counter[str] = Counter()
        self._turns = threading.Semaphore(concurrency)
        self._threads = [threading.Thread(target=self._watch, name=f"forebay-watch-{key}", daemon=True)]
        names = [state.name for state in rotation.states()]
        bring = lambda name: threading.Thread(target=self._keep_at_latest, args=(name,), name=f"forebay-{name}", daemon=True)
        self._threads.extend(bring(name) for name in names)

    def start(self) -> Subscriber:
        """Begins. Raises DirectoryTakenError where another subscriber writes to the directory."""
        if self.directory is not None:
            self._taken = DirectoryLock(self.directory)
            remove_abandoned(self.directory)
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        """Ends the threads, after what they are doing. Instances serve on."""
        self._is_closed = True
        self.rotation.ring()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._taken is not None:
            self._taken.release()

    def __enter__(self) -> Subscriber:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def wait(self, number: int, *, timeout_s: float, instances: int | None = None) -> None:
        """Waits until instances have a policy's version, or a later one. Default: all of them. Raises NoInstanceError."""
        states = self.rotation.states
        ready = lambda: sum(state.is_in_rotation and state.held.version.number >= number for state in states() if state.held)
        wanted = len(states()) if instances is None else instances
        if not self.rotation.wait_for(lambda: ready() >= wanted, timeout_s):
            told = "; ".join(f"{s.name!r}: {s.held.version.label if s.held else 'out'} {s.error or ''}" for s in states())
            failed = f"; the last version was not taken: {self.failure}" if self.failure else ""
            raise NoInstanceError(f"{ready()} of {wanted} instances have version {number} after {timeout_s:g} s: {told}{failed}")

    # The key

    def _watch(self) -> None:
        number = 0
        while not self._is_closed:
            seen = None
            try:
                seen = self.store.wait(self.key, number, _LOOK_S)
                if seen is not None:
                    self._take(seen)
                    number = seen
            except Exception as error:  # whatever a store, or what it keeps, brings about: the next version is watched for
                self.failure, self.failures = error, self.failures + 1
                self.rotation.ring()
                _LOG.warning("version %s of %r is not served: %s: %s", seen, self.key, type(error).__name__, error)
                if seen is not None and not isinstance(error, _PASSING):
                    number = seen  # tomorrow it will be no better
                else:
                    self.rotation.wait_for(lambda: self._is_closed, self.retry_s)

    def _take(self, number: int) -> None:
        publication = read_publication(self.store.get(self.key, number)[1])
        if self.template is not None and self.directory is not None:
            publication = write_checkpoint(publication, self.template, self.directory / publication.version.label)
        self._latest, self.failure = publication, None
        self.rotation.aim_at(publication.version)
        self._remove_old()
        self.rotation.ring()

    def _remove_old(self) -> None:
        if self.directory is None:
            return
        held = {state.held.version.label for state in self.rotation.states() if state.held}
        held |= {self._latest.version.label} if self._latest else set()  # whatever its number: it is to be loaded
        there = {path.name: version for path in self.directory.iterdir() if (version := Version.of_label(path.name))}
        newest = sorted(there, key=lambda label: there[label].number)[-self.keep :]
        for label in there.keys() - held - set(newest) - set(+self._loading):
            shutil.rmtree(self.directory / label, ignore_errors=True)

    # Instances

    def _keep_at_latest(self, name: str) -> None:
        failures = 0
        while True:
            self.rotation.wait_for(lambda: self._is_closed or self._is_behind(name))
            if self._is_closed:
                return
            publication = self._latest
            assert publication is not None
            if self._bring(name, publication):
                failures = 0
                continue
            failures += 1
            pause_s = min(self.retry_s * 2 ** min(failures - 1, 30), _RETRY_S_MOST)
            self.rotation.wait_for(self._has_newer_than(publication), pause_s)

    def _has_newer_than(self, publication: Publication) -> Callable[[], bool]:
        return lambda: self._is_closed or self._latest is not publication

    def _is_behind(self, name: str) -> bool:
        held, latest = self.rotation.held(name), self._latest
        if latest is None or self.rotation.is_on_trial(name):
            return False
        return held is None or held.version != latest.version

    def _bring(self, name: str, publication: Publication) -> bool:
        label = publication.version.label
        with self._turns:
            if self._is_closed or self._latest is not publication:
                return True  # there is a newer one
            self.rotation.wait_for(lambda: self._counted(label, 1))
            try:
                self.rotation.bring(name, publication)
                return True
            except Error as error:
                self.failure = self.failure if isinstance(error, InstanceError) else error
                _LOG.warning("%s", error)
                return False
            finally:
                self.rotation.wait_for(lambda: self._counted(label, -1))

    def _counted(self, label: str, change: int) -> bool:
        self._loading[label] += change
        return True
