"""Waiting for the next version of a key in a directory: woken by whoever stores it, in this process or another."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from forebay.trainer import DirectoryStateStore, Payload  # noqa: E402
from forebay.trainer import directory as module  # noqa: E402

SOMETHING = {"weights.float32": Payload.of(torch.zeros(4))}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_S", 3600.0)  # nobody looks: it is the file system that wakes
    return DirectoryStateStore(tmp_path)


def test_what_is_there_already_is_given_at_once(store):
    for _ in range(3):
        store.set("a/b", SOMETHING)
    assert store.wait("a/b", 0, 0.0) == store.wait("a/b", 2, 0.0) == 3


def test_nothing_in_time_is_none(store):
    began = time.monotonic()
    assert store.wait("a", 0, 0.05) is None and time.monotonic() - began < 5
    store.set("a", SOMETHING)
    assert store.wait("a", 1, 0.0) is None


def test_who_stores_wakes_who_waits(store):
    found = []
    thread = threading.Thread(target=lambda: found.append(store.wait("a", 1, 60.0)))
    store.set("a", SOMETHING)
    thread.start()
    store.set("b", SOMETHING)  # another key wakes nobody for long
    store.set("a", SOMETHING)
    thread.join(30)
    assert found == [2]


def test_another_process_wakes_who_waits(store, tmp_path):
    program = f"""
        import torch
        from forebay.trainer import DirectoryStateStore, Payload
        DirectoryStateStore({str(tmp_path)!r}).set("a", {{"x": Payload.of(torch.zeros(4))}})
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], env=environment)
    assert store.wait("a", 0, 120.0) == 1
    assert other.wait() == 0
