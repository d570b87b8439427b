"""The instances of a policy, and which of them may be asked.

A *rotation* aims at one version. An instance is *in rotation* when it holds that version (or one at most ``max_lag`` behind), is not being
changed, and did not fail since. A request takes a *lease* of the one with the least to do; where there is none, it waits. So nobody gets an
answer of a version that an instance does not have, and a slow instance keeps nobody waiting that another could serve.

One lock guards everything here, and no call to an instance is made under it. The condition that goes with it is rung whenever an instance
comes in, goes out, or gets a lease back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import InputError, StateError
from .agreement import Agreement
from .errors import InstanceError, InstanceTimeoutError, NoInstanceError
from .instance import Held, Instance
from .lease import Lease, Member
from .publication import Publication
from .version import Version

__all__ = ["InstanceState", "Rotation"]


@dataclass(frozen=True)
class InstanceState:
    """How an instance stands."""

    name: str
    held: Held | None
    is_in_rotation: bool
    requests: int
    error: InstanceError | None
    """Why it is out, or why it still has an older version."""
    is_retiring: bool = False
    """Whether it is letting go of something that no request uses any more."""


class Rotation:
    """The instances of one policy.

    max_lag: how many versions an instance may be behind what is aimed at, and be asked. Default: none. Only versions of the same
        branch count: what was aimed at before a number came again, or a lower one, is not behind but beside it.
    drain_timeout_s: how long requests may take to end before new weights are loaded.
    """

    def __init__(self, instances: Sequence[Instance], *, max_lag: int = 0, drain_timeout_s: float = 600.0) -> None:
        names = [instance.name for instance in instances]
        if not names or len(set(names)) < len(names):
            raise InputError(f"the instances are called {names}; give at least one, each with a name of its own")
        self.max_lag, self.drain_timeout_s, self.agreement = max_lag, drain_timeout_s, Agreement()
        self.aim: Version | None = None
        self._line: list[Version] = []
        self._members = {instance.name: Member(instance) for instance in instances}
        self._changed = threading.Condition()

    def states(self) -> list[InstanceState]:
        with self._changed:
            return [
                InstanceState(name, m.held, self._may_serve(m), sum(m.leases.values()), m.error, m.retiring > 0)
                for name, m in self._members.items()
            ]

    def held(self, name: str) -> Held | None:
        """What an instance has."""
        with self._changed:
            return self._members[name].held

    def is_on_trial(self, name: str) -> bool:
        """Whether an instance is out for a failure that may be the request's, while others serve and one of them is asked the same."""
        with self._changed:
            member = self._members[name]
            return member.held is None and bool(member.doubted) and bool(self._serving())

    def wait_for(self, holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until something holds, which is asked under the rotation's lock each time that something changes."""
        with self._changed:
            return self._changed.wait_for(holds, timeout_s)

    def ring(self) -> None:
        """Lets whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    # Requests

    @contextmanager
    def lease(self, timeout_s: float) -> Iterator[Lease]:
        """An instance that may be asked. Raises NoInstanceError where none comes in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (able := [member for member in self._members.values() if self._may_serve(member)]):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise NoInstanceError(self._told(timeout_s))
                self._changed.wait(left)
            member = min(able, key=lambda member: member.load)
            held = member.held
            assert held is not None
            member.leases[id(held)] = member.leases.get(id(held), 0) + 1
        try:
            yield Lease(member.instance, held, member, self._changed, self._retire_aside, self._serving)
        finally:
            self._give_back(member, held)

    def _give_back(self, member: Member, held: Held) -> None:
        with self._changed:
            member.leases[id(held)] -= 1
            is_last = not member.leases[id(held)]
            if is_last:
                del member.leases[id(held)]
            self._changed.notify_all()
            is_done = is_last and member.may_retire(held)
        if is_done:
            self._retire_aside(member, held)

    def _serving(self) -> set[str]:
        with self._changed:
            return {name for name, member in self._members.items() if self._may_serve(member)}

    def _may_serve(self, member: Member) -> bool:
        if member.held is None or not member.is_open or self.aim is None:
            return False
        version = member.held.version
        return version in self._line and self.aim.number - version.number <= self.max_lag

    def _told(self, timeout_s: float) -> str:
        aim = self.aim.label if self.aim else "no version yet: nothing was published"
        stands = "; ".join(
            f"{name!r} {'has ' + m.held.version.label if m.held else 'is out'}{f' ({m.error})' if m.error else ''}"
            for name, m in self._members.items()
        )
        return f"no instance to be asked within {timeout_s:g} s, aiming at {aim}: {stands}"

    # Versions

    def aim_at(self, version: Version) -> None:
        """From now on requests wait for this version, or for one that ``max_lag`` allows: of those that were aimed at before, and below. A
        number that is not above the last begins another branch, of which what was above it is no part."""
        with self._changed:
            self.aim = version
            lowest = version.number - self.max_lag
            self._line = [*(before for before in self._line if lowest <= before.number < version.number), version]
            self._changed.notify_all()

    def bring(self, name: str, publication: Publication) -> Held:
        """Brings one instance to a publication. Raises InstanceError; then the instance goes on with what it had, or is out. StateError
        where it is being brought to one already; InputError where it could not take this one at all."""
        member = self._members[name]
        with self._changed:
            if member.is_changing:
                raise StateError(f"instance {name!r} is being changed already")
            member.is_changing, before = True, member.held
        held: Held | None = None
        failure: InstanceError | None = None
        try:
            close = lambda wait: self._close(member, wait, publication.version)
            held = member.instance.bring(publication, before, close, self.agreement)
            return held
        except InstanceError as error:
            failure, held = error, before if error.is_untouched else None
            raise
        except InputError:
            held = before  # the call is wrong, and nothing was done
            raise
        except Exception as error:  # of an instance of somebody's own, or of the library under it
            told = f"{type(error).__name__}: {error}"
            failure = InstanceError(told, instance=name, version=publication.version.label)
            raise failure from error
        finally:
            self._changed_to(member, before, held, failure)

    def update(self, publication: Publication, *, concurrency: int = 4) -> dict[str, InstanceError | None]:
        """Aims at a publication and brings every instance to it once, so many at a time: by name, ``None`` or what went wrong."""
        self.aim_at(publication.version)

        def brought(name: str) -> InstanceError | None:
            try:
                self.bring(name, publication)
            except InstanceError as error:
                return error
            return None

        with ThreadPoolExecutor(max(1, concurrency), "forebay-bring") as pool:
            return dict(zip(self._members, pool.map(brought, self._members)))

    def _close(self, member: Member, wait: bool, version: Version) -> None:
        deadline = time.monotonic() + self.drain_timeout_s
        with self._changed:
            member.is_open = False
            while wait and member.leases:
                left = deadline - time.monotonic()
                if left <= 0:
                    what = f"{sum(member.leases.values())} requests did not end within {self.drain_timeout_s:g} s"
                    raise InstanceTimeoutError(what, instance=member.instance.name, version=version.label)
                self._changed.wait(left)

    def _changed_to(self, member: Member, before: Held | None, held: Held | None, failure: InstanceError | None) -> None:
        with self._changed:
            member.held, member.is_open, member.error, member.is_changing = held, held is not None, failure, False
            if held is not None and held.version not in member.had:
                member.had = [*member.had[-15:], held.version]
            self._changed.notify_all()
            is_done = before is not None and member.may_retire(before)
        if is_done and before is not None:
            self._retire(member, before)

    def _retire_aside(self, member: Member, held: Held) -> None:
        """The same on a thread of its own: whoever has an answer does not wait for what is behind it."""
        with self._changed:
            member.retiring += 1

        def retire() -> None:
            try:
                self._retire(member, held)
            finally:
                with self._changed:
                    member.retiring -= 1
                    self._changed.notify_all()

        threading.Thread(target=retire, name=f"forebay-retire-{member.instance.name}", daemon=True).start()

    def _retire(self, member: Member, held: Held) -> None:
        """Lets the instance drop what nobody uses. One that cannot is found out by the next request or load."""
        with self._changed:
            is_same = member.held is not None and member.held.adapter == held.adapter
        if is_same:
            return
        try:
            member.instance.retire(held)
        except InstanceError as error:
            with self._changed:
                member.error = member.error or error
