"""Directories that are there whole or not at all."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import InputError

__all__ = ["directory_made_whole", "remove_abandoned", "sync_directory"]

_UNFINISHED = ".writing-"


@contextmanager
def directory_made_whole(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A directory to be filled, which gets its name when it is: files synced, then one rename."""
    path = pathlib.Path(path).absolute()
    if path.exists():
        raise InputError(f"{path} exists; weights are written to a directory that does not, such as one a version")
    path.parent.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=path.parent))
    try:
        yield made
        for file in made.rglob("*"):
            if file.is_file():
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        sync_directory(made)
        made.chmod(0o755)
        os.rename(made, path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    sync_directory(path.parent)


def remove_abandoned(directory: pathlib.Path) -> None:
    """Removes what processes that were killed had begun to write. For whoever knows that nobody else writes there."""
    for path in directory.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Brings the names in a directory to stable storage."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
