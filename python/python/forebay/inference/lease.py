"""The right to ask an instance for one answer, and what that answer says of the instance."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import InstanceError
from .instance import Held, Instance
from .version import Version

__all__ = ["Lease", "Member"]

_DOUBTS_MOST = 3
_TIMEOUTS_MOST = 3


@dataclass
class Member:
    """An instance as its rotation knows it."""

    instance: Instance
    held: Held | None = None
    is_open: bool = False
    is_changing: bool = False
    error: InstanceError | None = None
    leases: dict[int, int] = field(default_factory=dict)
    """How many requests use what it held, by identity."""
    had: list[Version] = field(default_factory=list)
    """Versions that it was brought to, the last ones."""
    doubted: list[Lease] = field(default_factory=list)
    """Under which it was put out for failures that may be the requests', each until its request is settled."""
    doubts: int = 0
    """How many requests it failed at since its last answer, that other instances failed at, too."""
    retiring: int = 0
    timeouts: int = 0
    """How many requests in a row ran out of their time at it."""

    @property
    def load(self) -> int:
        """What it has to do, by which the next to be asked is chosen. Each request that it did not answer in time counts as one that it
        still has."""
        return sum(self.leases.values()) + self.timeouts

    def may_retire(self, held: Held) -> bool:
        """Whether nobody uses, or may come back to, something that the instance had."""
        is_doubted = any(lease.held is held for lease in self.doubted)
        return self.held is not held and not is_doubted and not self.leases.get(id(held))


@dataclass(frozen=True)
class Lease:
    """The right to ask an instance for one answer."""

    instance: Instance
    held: Held
    _member: Member
    _changed: threading.Condition
    """The rotation's lock, and the bell that goes with it."""
    _retire: Callable[[Member, Held], None]
    serving: Callable[[], set[str]]
    """The instances that may be asked now, by name."""

    @property
    def is_current(self) -> bool:
        """Whether the instance still has, and serves, what it had when the lease began."""
        with self._changed:
            return self._member.held is self.held and self._member.is_open

    def knows(self, version: Version) -> bool:
        """Whether the instance was brought to this version."""
        with self._changed:
            return version in self._member.had

    def answered(self) -> None:
        """The instance does what it should."""
        with self._changed:
            self._member.doubts = self._member.timeouts = 0

    def timed_out(self, error: InstanceError) -> None:
        """A request ran out of its time. That may be the request's own doing; after several in a row the instance is asked, aside, what it
        has, and is out if it does not say that either."""
        with self._changed:
            self._member.timeouts += 1
            is_suspicious = self._member.timeouts % _TIMEOUTS_MOST == 0
        if is_suspicious:
            threading.Thread(target=self._probe, args=(error,), name=f"forebay-probe-{self.instance.name}", daemon=True).start()

    def _probe(self, error: InstanceError) -> None:
        if not self._is_well():
            self.fail(error)

    def fail(self, error: InstanceError, *, is_doubtful: bool = False) -> None:
        """Takes the instance out of rotation, unless it is being changed or was since.

        is_doubtful: whether the request may be the cause. Then what the instance has is kept until ``settle``.
        """
        with self._changed:
            if self._member.held is self.held and self._member.is_open:
                self._member.held, self._member.is_open, self._member.error = None, False, error
                if is_doubtful:
                    self._member.doubted.append(self)
                self._changed.notify_all()

    def doubt(self) -> None:
        """The instance failed at a request that another one failed at, too."""
        with self._changed:
            self._member.doubts += 1

    @property
    def is_suspicious(self) -> bool:
        """Whether the instance has failed at so many requests since its last answer that they may not all be the cause."""
        with self._changed:
            return self._member.doubts >= _DOUBTS_MOST

    def acquit(self, error: InstanceError) -> None:
        """It was the request: puts the instance back if it is out for this alone, and still says that it has what it had."""
        if not self._is_out_for(error) or not self._is_well():
            return
        with self._changed:
            if self._is_out_for(error):
                self._member.held, self._member.is_open, self._member.error = self.held, True, None
                self._changed.notify_all()

    def settle(self) -> None:
        """There is no doubt any more: what the instance had is let go of where it is out."""
        with self._changed:
            left = [lease for lease in self._member.doubted if lease is not self]
            if len(left) == len(self._member.doubted):
                return
            self._member.doubted = left
            is_done = self._member.may_retire(self.held)
            self._changed.notify_all()
        if is_done:
            self._retire(self._member, self.held)

    def _is_out_for(self, error: InstanceError) -> bool:
        with self._changed:
            return self._member.held is None and not self._member.is_changing and self._member.error is error

    def _is_well(self) -> bool:
        """Whether the instance answers, and says that it has the same weights."""
        try:
            label = self.instance.label()
        except Exception:  # of an instance of somebody's own, too
            return False
        return self.held.adapter is not None or label == self.held.version.label
