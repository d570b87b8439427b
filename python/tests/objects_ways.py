"""A store of objects on every way to have one, and what is set there."""

import numpy as np
import pytest
import serving

import forebay


@pytest.fixture(params=["embedded", "neighbour", "sent"])
def store(request, tmp_path):
    if request.param == "embedded":
        with forebay.open(tmp_path / "store", host_folder=tmp_path / "host") as opened:
            yield opened
        return
    with serving.Server(tmp_path / "store", tmp_path / "fb.sock") as server:
        with forebay.connect(server.address, neighbour=request.param == "neighbour") as connected:
            yield connected


def tensors(seed: int) -> dict:
    random = np.random.default_rng(seed)
    return {
        "embed": random.normal(size=(1000, 700)).astype(np.float32),
        "head": random.integers(-128, 127, size=(3, 5)).astype(np.int8),
        "scalar": np.float64(seed),
        "empty": np.zeros((0, 4), np.uint16),
    }


def check(held, seed: int) -> None:
    assert set(held) == set(tensors(seed))
    for name, meant in tensors(seed).items():
        assert held[name].dtype == np.asarray(meant).dtype
        np.testing.assert_array_equal(held[name], meant)
