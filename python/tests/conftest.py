"""What tests share: a store in a folder of its own, and where its values lie in memory."""

import pathlib

import pytest

import forebay

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


@pytest.fixture
def store(path):
    with forebay.open(path) as store:
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
