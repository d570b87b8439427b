"""States in a directory: a file of safetensors a version, ``ROOT/KEY/00000001.safetensors``.

A version is written to a file of another name, synced, and then linked under its own, which fails where that is taken: so a version is
whole or absent, it never changes, and of two who store the same number one is told. What a writer leaves that is killed the next one
removes. Any reader of safetensors opens it. The header says
what each payload's crc32 is; one that differs is an error that names file and payload.

Who holds or reads a version has a shared lock on its file, which the kernel takes back with the process; who removes one wants the lock for
himself, and leaves it where he cannot have it. Who lists versions shares a lock on their directory, so that none goes meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .._files import sync_directory
from ..errors import CapacityError, CorruptError, InputError, StateError
from .errors import VersionConflictError
from .state import Payload, parts_of
from .watch import watched

__all__ = ["DirectoryStateStore"]

_SUFFIX, _WRITING = ".safetensors", ".writing-"
_LOOK_S = 1.0
"""How often a waiter looks where the file system tells nothing."""


class DirectoryStateStore:
    """A ``StateStore`` that is a directory. Any number of processes may use it.

    root: the directory; it is made where it does not exist. A key is a path below it, of letters, digits and ``. _ - /``.
    keep: how many versions of a key are kept, the latest ones. Older ones go with the next ``set``, but for those that somebody holds
        (``hold``). Default: all are kept.
    """

    def __init__(self, root: str | os.PathLike[str], *, keep: int | None = None) -> None:
        if keep is not None and keep < 1:
            raise InputError(f"keep={keep!r} is no number of versions; at least the latest is kept, and None keeps all")
        self.root, self.keep = pathlib.Path(root), keep

    def set(self, key: str, payloads: Mapping[str, Payload], expected: int | None = None) -> int:
        directory = self._directory(key)
        directory.mkdir(parents=True, exist_ok=True)
        self._refuse_conflict(key, expected)
        with _written(directory, payloads) as file:
            version = self.versions(key)[-1:] if expected is None else [expected]
            while True:
                number = (version[0] if version else 0) + 1
                try:
                    os.link(file, directory / f"{number:08}{_SUFFIX}")
                    break
                except FileExistsError:
                    self._refuse_conflict(key, expected)
                    version = self.versions(key)[-1:]
        sync_directory(directory)
        if self.keep:
            old = self.versions(key)[: -self.keep]
            _remove_unheld(directory, [f"{version:08}{_SUFFIX}" for version in old])
        return number

    def get(self, key: str, version: int | None = None) -> tuple[int, dict[str, Payload]]:
        with self.hold(key, version) as number:
            return number, _read(self._directory(key) / f"{number:08}{_SUFFIX}")

    @contextmanager
    def hold(self, key: str, version: int | None = None) -> Iterator[int]:
        """Keeps a version within, whatever ``keep`` says, and gives its number. What a process holds is free when it ends. Default: the
        latest."""
        while True:
            versions = self.versions(key)
            number = (versions[-1] if versions else 0) if version is None else version
            if number not in versions:
                there = f"there are {versions[0]} to {versions[-1]}" if versions else "nothing was stored under it yet"
                raise StateError(f"{key!r} has no version {number or 'at all'} in {self.root}; {there}")
            held = _held(self._directory(key) / f"{number:08}{_SUFFIX}")
            if held is not None:  # else it went in between
                break
        try:
            yield number
        finally:
            os.close(held)

    def versions(self, key: str) -> list[int]:
        """The versions of a key, ascending."""
        directory = self._directory(key)
        names: list[str] = []
        if directory.is_dir():
            with _locked(directory, fcntl.LOCK_SH):  # a list that is made while versions come and go may have neither old nor new
                names = os.listdir(directory)
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names if re.fullmatch(rf"\d{{8}}{_SUFFIX}", name))

    def wait(self, key: str, after: int, timeout_s: float) -> int | None:
        """The number of the latest version of a key once it is above ``after``; ``None`` where there is none in so many seconds."""
        directory = self._directory(key)
        directory.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + timeout_s
        with watched(directory) as wait:
            while not (newer := [version for version in self.versions(key) if version > after]):
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                wait(min(left, _LOOK_S))
        return newer[-1]

    def _refuse_conflict(self, key: str, expected: int | None) -> None:
        latest = (self.versions(key) or [0])[-1]
        if expected is not None and latest != expected:
            raise VersionConflictError(f"{key!r} stands at version {latest}, and {expected} was expected; get that one first")

    def _directory(self, key: str) -> pathlib.Path:
        return self.root.joinpath(*parts_of(key))


def _held(file: pathlib.Path) -> int | None:
    """A lock on a file that is there, which its remover respects."""
    with suppress(FileNotFoundError):
        lock = os.open(file, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if file.exists():
            return lock
        os.close(lock)
    return None


def _remove_unheld(directory: pathlib.Path, names: Sequence[str]) -> None:
    """Removes versions that nobody holds. What cannot be removed now is there for the next ``set`` to try."""
    with suppress(OSError), _locked(directory, fcntl.LOCK_EX):
        for name in names:
            with suppress(OSError), _locked(directory / name, fcntl.LOCK_EX | fcntl.LOCK_NB):
                os.unlink(directory / name)


@contextmanager
def _locked(path: pathlib.Path, how: int) -> Iterator[None]:
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


@contextmanager
def _written(directory: pathlib.Path, payloads: Mapping[str, Payload]) -> Iterator[str]:
    """A file of the payloads on stable storage, where nobody reads. It is gone afterwards."""
    _remove_abandoned(directory)
    lock, own = _claimed_directory(directory)
    file = os.path.join(own, "payloads")
    try:
        tensors = {name: payload.tensor().cpu() for name, payload in payloads.items()}
        sums = {name: _checksum(tensor) for name, tensor in tensors.items()}
        _save(tensors, file, {"crc32": json.dumps(sums)})
        yield file
    finally:
        shutil.rmtree(own)
        os.close(lock)


def _claimed_directory(directory: pathlib.Path) -> tuple[int, str]:
    """A new directory that is locked for as long as its writer lives, and the lock."""
    while True:
        own = tempfile.mkdtemp(prefix=_WRITING, dir=directory)
        with suppress(FileNotFoundError):  # somebody took it for abandoned before it was locked
            lock = os.open(own, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(own):
                return lock, own
            os.close(lock)


def _remove_abandoned(directory: pathlib.Path) -> None:
    """Removes what writers have left that were killed: directories that nobody has locked."""
    for own in directory.glob(f"{_WRITING}*"):
        with suppress(OSError):
            lock = os.open(own, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(own)
            finally:
                os.close(lock)


def _save(tensors: dict[str, torch.Tensor], file: str, metadata: dict[str, str]) -> None:
    try:
        save_file(tensors, file, metadata)
        with open(file, "rb") as written:
            os.fsync(written.fileno())
    except (OSError, SafetensorError) as error:
        where = os.path.dirname(os.path.dirname(file))
        raise CapacityError(f"the state could not be written to {where}: {error}; free some room there") from error


def _read(file: pathlib.Path) -> dict[str, Payload]:
    try:
        with safe_open(file, "pt") as opened:
            sums = json.loads((opened.metadata() or {}).get("crc32", "{}"))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise CorruptError(f"{file} is no file of safetensors: {error}; take an earlier version") from error
    if not isinstance(sums, dict):
        raise CorruptError(f"{file}: its checksums are {str(sums)[:40]!r} and no mapping; take an earlier version")
    for name, tensor in tensors.items():
        if sums.get(name) != _checksum(tensor):
            raise CorruptError(f"{file}: payload {name!r} is not what was written; take an earlier version")
    return {name: Payload.of(tensor) for name, tensor in tensors.items()}


def _checksum(tensor: torch.Tensor) -> int:
    memory = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(memory.numpy().data)
