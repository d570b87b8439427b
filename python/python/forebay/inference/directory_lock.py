"""One subscriber a directory: two would remove each other's versions.

The lock is a file in the directory, so it is the same one by whatever path the directory is reached. The kernel holds it for the process
that opened it: it goes with a process however that ends.
"""

from __future__ import annotations

import fcntl
import os
import pathlib

from .errors import DirectoryTakenError

__all__ = ["DirectoryLock"]


class DirectoryLock:
    """Takes a directory, which is made where it is missing. Raises DirectoryTakenError where somebody has it."""

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = open(directory / ".lock", "a+")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise DirectoryTakenError(
                f"{directory} is written to by another subscriber (process {holder}), and each removes versions that are none of its own; "
                "give each a directory"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Lets others have it. The file stays: who removed it might remove one that another has locked."""
        self._file.close()
