"""Copies of a queue: a directory with ``metadata.json`` and the store."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import forebay

from .._forebay import Store
from ..errors import StateError
from ._log import Overtaken
from ._partitions import Partitions
from ._tags import encoded


def save(store: Store, directory: pathlib.Path, metadata: dict[str, Any] | None) -> None:
    """Writes beside the directory, then puts it into its place."""
    if store.address is not None:
        raise StateError(
            f"the queue is that of the server at {store.address}, which has the files; copy it there: `forebay backup`, or "
            "`store.admin.backup()` of a connection with the scope admin"
        )
    new, old = directory.with_name(f"{directory.name}.tmp"), directory.with_name(f"{directory.name}.old")
    shutil.rmtree(new, ignore_errors=True)
    if directory.exists():
        shutil.rmtree(old, ignore_errors=True)  # else it is the only copy that there is: a save ended between the two renames
    new.mkdir(parents=True)
    store.backup(new / "store")
    (new / "metadata.json").write_text(json.dumps({"storage_saved": True, "user_metadata": metadata or {}}, indent=2))
    if directory.exists():
        directory.rename(old)
    new.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def load(partitions: Partitions, directory: pathlib.Path) -> None:
    """Puts what the copy has in place of all that is in the queue, at once. The indexes are new."""
    old = directory.with_name(f"{directory.name}.old")
    if not directory.exists() and old.exists():
        old.rename(directory)  # the process ended between the two renames of a save
    for needed in (directory, directory / "metadata.json", directory / "store"):
        if not needed.exists():
            raise FileNotFoundError(f"{needed} not found: {directory} is no checkpoint of a queue")
    with forebay.open(directory / "store", read_only=True) as store, partitions.lock:
        try:
            with partitions.changing():
                _copy(Partitions(store), partitions)
        except Overtaken as error:
            raise StateError(f"others changed the queue while {directory} was loaded, so it is as they left it; load again") from error


def _copy(saved: Partitions, partitions: Partitions) -> None:
    """The copy is written beside what there is. One row makes it the queue; what a copy left that did not come so far goes with the next
    change of the queue."""
    generation = partitions.new_generation()
    for partition, there in saved.samples.items():
        samples = sorted(there.values(), key=lambda sample: sample.number)
        begun = partitions.begin(partition, [sample.key for sample in samples])
        for sample, new in zip(samples, begun):
            fields = {name: saved.values([sample], name) for name in sample.fields}
            partitions.write([new], fields, [encoded(sample.tag)], generation)
        for (name, task), numbers in saved.consumed.items():
            taken = [new for sample, new in zip(samples, begun) if sample.number in numbers]
            if name == partition and taken:
                partitions.consume(partition, task, taken)
    partitions.switch(generation)
