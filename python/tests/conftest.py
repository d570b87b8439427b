"""What tests share: a store in a folder of its own, opened here or served by another process, and where values lie in memory.

A test that takes the fixture `store` runs on both ways, and what differs between them is a fault; one that is marked `embedded`
is about what only a store in this process has, and one that is marked `tcp` runs over TCP, too.
"""

import os
import pathlib

import pytest

import forebay
from serving import Server

SOLVER = {
    "prompt": "list<int32>",
    "response": "list<int32>",
    "logprobs": "list<float32>",
    "answer": "utf8",
    "reward": "float32",
}


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "store"


def pytest_configure(config):
    config.addinivalue_line("markers", "embedded: about what only a store in this process has")
    config.addinivalue_line("markers", "tcp: to be tried over TCP, too")


NEEDED = os.environ.get("FOREBAY_TESTS_NEED", "").split()
"""Packages that are said to be here (`.ci/torch`): a test that is skipped for want of one fails."""


def fail_if_needed(report) -> None:
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if report.skipped and any(package in reason for package in NEEDED):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped where FOREBAY_TESTS_NEED says that it is not to be: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    fail_if_needed(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    fail_if_needed(report)
    return report


def pytest_generate_tests(metafunc):
    if "way" in metafunc.fixturenames:
        is_marked = metafunc.definition.get_closest_marker
        ways = ["embedded"] if is_marked("embedded") else ["embedded", "connected"]
        metafunc.parametrize("way", ways + ["tcp"] if is_marked("tcp") else ways)


@pytest.fixture
def server(path, tmp_path):
    with Server(path, tmp_path / "fb.sock") as server:
        yield server


@pytest.fixture
def server_over_tcp(path, tmp_path):
    with Server(path, tmp_path / "fb.sock", "--grpc", "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def store(way, path, request):
    openings = {
        "embedded": lambda: forebay.open(path),
        "connected": lambda: forebay.connect(request.getfixturevalue("server").address),
        "tcp": lambda: forebay.connect(request.getfixturevalue("server_over_tcp").address_over_tcp),
    }
    with openings[way]() as store:
        yield store


@pytest.fixture
def solver(store):
    return store.create_table("solver", SOLVER)


@pytest.fixture
def train(store, solver):
    return store.create_consumer(
        "train", tables=["solver"], kind="trainer", ready=["response", "reward"], group=("input_id", 2)
    )


@pytest.fixture
def read(store, solver):
    return store.create_consumer("read", tables=["solver"], kind="task", ready=["response"])


def ids(input_id: str, count: int = 2) -> list[str]:
    return [f"{input_id}_0_{trajectory}" for trajectory in range(count)]


def begin(solver, *input_ids: str, version: int = 0):
    """Groups of two rows that are ready to be trained on."""
    return [
        solver.insert(
            policy_version=version, sample_ids=ids(input_id), response=[[1, 2, 3], [4]], reward=[1.0, 0.0]
        )
        for input_id in input_ids
    ]


def mapped_extents() -> list[tuple[int, int]]:
    """The address ranges at which extents of stores are mapped into this process."""
    ranges = []
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        if ".extent" in line:
            start, end = line.split()[0].split("-")
            ranges.append((int(start, 16), int(end, 16)))
    return ranges


def lies_in_an_extent(address: int, length: int) -> bool:
    return any(start <= address and address + length <= end for start, end in mapped_extents())
