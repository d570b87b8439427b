"""What the checksum of a version is.

Servers hash what they compute with: tensors that were fused, cut for their processes and perhaps quantised, by a function of their own.
So nobody can say beforehand what the checksum of a publication will be. But a load that went wrong half way gives another one than a load
that did not. The rule is: **a checksum is a version's when two loads have given it**, of one instance or of two that are alike, and no
other version has it. The first instance of a version loads twice; the others find the checksum confirmed.

What it cannot see is a load that goes wrong the same way each time on the instance that loads a version first, and is unlike each version
before: others that are alike and well are refused then, and named.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from .version import Version

__all__ = ["Agreement"]

_VERSIONS_KEPT = 16


class _Loads:
    def __init__(self) -> None:
        self.confirmed: str | None = None
        self.given: set[str] = set()


class Agreement:
    """The checksums of the last versions. Any thread may call.

    Instances are compared that are *alike*: of one engine and one layout over devices.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads: OrderedDict[tuple[str, Version], _Loads] = OrderedDict()

    def confirmed(self, alike: str, version: Version) -> str | None:
        """The version's checksum, once two loads have given it."""
        with self._lock:
            loads = self._loads.get((alike, version))
            return loads.confirmed if loads else None

    def other_version(self, alike: str, version: Version, checksum: str) -> Version | None:
        """Another version that has this checksum."""
        with self._lock:
            for (other, had), loads in self._loads.items():
                if other == alike and had.fingerprint != version.fingerprint and loads.confirmed == checksum:
                    return had
        return None

    def loaded(self, alike: str, version: Version, checksum: str) -> bool:
        """Counts a load. Whether its checksum is the version's."""
        with self._lock:
            loads = self._loads.setdefault((alike, version), _Loads())
            self._loads.move_to_end((alike, version))
            while len(self._loads) > _VERSIONS_KEPT:
                self._loads.popitem(last=False)
            if loads.confirmed is None and checksum in loads.given:
                loads.confirmed = checksum
            loads.given.add(checksum)
            return loads.confirmed == checksum
