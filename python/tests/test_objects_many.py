"""Many objects in one call, on every way: a result each, whatever becomes of the others."""

import numpy as np
import pytest
import serving
from objects_ways import store  # noqa: F401

import forebay


def test_many_keys_have_a_result_each_and_a_call_in_which_all_failed_fails(store):
    objects = store.objects
    one = {"w": np.ones(3, np.float32)}
    done = objects.set_many({"a": one, "b": {"w": object()}, "not a key": one, "c": {"w": np.full(3, 3, np.float32)}})
    assert (done["a"], done["c"]) == (1, 1)
    assert isinstance(done["b"], forebay.InputError) and isinstance(done["not a key"], forebay.InputError)
    with pytest.raises(forebay.InputError, match="'w'"):
        objects.set_many({"b": {"w": object()}})
    got = objects.get_many(["a", "b", "c"])
    assert [got[key]["w"][0] for key in ("a", "c")] == [1.0, 3.0]
    assert isinstance(got["b"], forebay.Error) and '"b"' in str(got["b"])
    with pytest.raises(forebay.Error, match='"b"'):
        objects.get_many(["b", "d"])
    objects.publish("a", one)
    received = objects.receive_many(["b", "a"], timeout=0.05)
    assert isinstance(received["b"], forebay.WaitTimeout)
    received["a"].done()
    with pytest.raises(forebay.WaitTimeout):
        objects.receive_many(["a", "b"], timeout=0.05)
    assert objects.delete_many([("a", 1), ("a", 9), ("c", 1)]) == {("a", 1): True, ("a", 9): False, ("c", 1): True}
    assert objects.set_many({}) == {}
    with pytest.raises(forebay.InputError, match="10001"):
        objects.get_many(["a"] * 10_001)


def test_a_key_that_is_named_twice_is_called_once(store):
    objects = store.objects
    objects.set("a", {"w": np.ones(3, np.float32)})
    assert objects.delete_many([("a", 1), ("a", 1)]) == {("a", 1): True}
    for _ in range(2):
        objects.publish("a", {"w": np.ones(3, np.float32)})
    for held in objects.receive_many(["a", "a"]).values():
        held.done()
    objects.receive("a", timeout=30).done()


class Fails:
    """A tensor that cannot be had."""

    def __array__(self, *_how, **_more):
        raise ZeroDivisionError("a tensor of somebody else's")


def test_what_fails_outside_the_store_hides_nothing_that_was_done(store):
    one = {"w": np.ones(3, np.float32)}
    done = store.objects.set_many({"a": one, "b": {"w": Fails()}, "c": one})
    assert (done["a"], done["c"]) == (1, 1) and isinstance(done["b"], ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        store.objects.set_many({"b": {"w": Fails()}})


class Watched:
    """A tensor that notes when it is asked for, and does something then."""

    def __init__(self, then=lambda: None):
        self.asked, self.then = 0, then

    def __array__(self, *_how, **_more):
        self.asked += 1
        self.then()
        return np.ones(3, np.float32)


# FX-B21
@pytest.mark.parametrize("neighbour", [True, False])
def test_keys_behind_a_server_that_is_lost_are_not_tried(tmp_path, neighbour):
    with serving.Server(tmp_path / "store", tmp_path / "fb.sock") as server:
        store = forebay.connect(server.address, neighbour=neighbour, outage_timeout=0)
        left = {f"left.{number}": {"w": Watched()} for number in range(50)}
        given = {"before": {"w": np.ones(3, np.float32)}, "kills": {"w": Watched(server.kill)}, **left}
        done = store.objects.set_many(given)
        assert done["before"] == 1
        lost = done["kills"]
        assert isinstance(lost, forebay.RetryError) and lost.cause == "Connection", lost
        assert all(done[key] is lost for key in left)
        assert not any(tensors["w"].asked for tensors in left.values())
