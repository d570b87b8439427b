"""Objects: embedded, as a neighbour of a server, and through the socket; each promise on every way."""

import asyncio
import gc
import threading

import numpy as np
import pytest
import serving

import forebay
import forebay.objects


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


def test_what_was_set_is_got_bit_by_bit(store):
    objects = store.objects
    assert objects.set("solver", tensors(1), metadata={"step": "7"}) == 1
    assert objects.set("solver", tensors(2), expected=1) == 2
    with objects.get("solver") as held:
        assert (held.key, held.version, held.metadata) == ("solver", 2, {})
        check(held, 2)
        np.testing.assert_array_equal(held.rows("embed", 10, 20), tensors(2)["embed"][10:20])
        assert not held["embed"].flags.writeable
    with objects.get("solver", 1) as held:
        assert held.metadata == {"step": "7"}
        check(held, 1)
        into = {name: np.empty_like(tensor) for name, tensor in tensors(0).items()}
        held.copy_to(into)
        np.testing.assert_array_equal(into["embed"], tensors(1)["embed"])


def test_arrays_outlive_what_they_came_of(store):
    store.objects.set("solver", tensors(1))
    held = store.objects.get("solver")
    embed = held["embed"]
    held.close()
    with pytest.raises(forebay.StateError, match="let go"):
        held["embed"]
    store.objects.delete("solver", 1)
    for seed in range(2, 5):
        store.objects.set("solver", tensors(seed))
    store.close()
    del held
    gc.collect()
    np.testing.assert_array_equal(embed, tensors(1)["embed"])


def test_what_is_wrong_is_said_and_nothing_is_seen(store):
    objects = store.objects
    objects.set("solver", tensors(1))
    cases = [
        (lambda: objects.set("solver", tensors(2), expected=7), forebay.StateError, "version 7"),
        (lambda: objects.set("solver", tensors(2), expected=0), forebay.StateError, "version 1"),
        (lambda: objects.set("solver", {"a": "text"}), forebay.InputError, "type"),
        (lambda: objects.set("solver", {"a": object()}), forebay.InputError, "'a'"),
        (lambda: objects.set("solver", [1, 2]), forebay.InputError, "list"),
        (lambda: objects.set("solver", {}), forebay.InputError, "0 tensors"),
        (lambda: objects.set("not a key", tensors(1)), forebay.InputError, "not a key"),
        (lambda: objects.set("solver", tensors(1), memory_class={"embed": "weights"}), forebay.InputError, "'head'"),
        (lambda: objects.get("slover"), forebay.InputError, 'did you mean "solver"'),
        (lambda: objects.get("solver", 9), forebay.RetryError, "version 9"),
        (lambda: objects.get("solver", tier="moon"), forebay.InputError, "moon"),
        (lambda: objects.get("solver", timeout=1), forebay.InputError, "at_least"),
        (lambda: objects.get("solver", at_least=2, timeout=0.01), forebay.WaitTimeout, "version 2"),
        (lambda: objects.get("solver")["haed"], forebay.InputError, "'haed'"),
        (lambda: objects.get("solver").done(), forebay.StateError, "received"),
        (lambda: objects.get("solver").copy_to({"head": np.zeros(3, np.int8)}), forebay.InputError, "takes I8"),
    ]
    for call, error, says in cases:
        with pytest.raises(error, match=says):
            call()
    assert [shown.version for shown in objects.list("solver")] == [1]


def test_a_version_is_filled_in_parts_and_given_up_when_left(store):
    objects = store.objects
    specs = {"w": forebay.objects.TensorSpec("F32", (100, 3), "weights")}
    whole = np.arange(300, dtype=np.float32).reshape(100, 3)
    with objects.begin("solver", specs, expected=0) as filling:
        filling.write("w", whole[:40])
        with pytest.raises(forebay.StateError, match='"w"'):
            filling.commit()
        filling.write("w", whole[40:], row=40)
        with pytest.raises(forebay.InputError, match="from row 98"):
            filling.write("w", whole[:3], row=98)
        assert filling.commit() == 1
    np.testing.assert_array_equal(objects.get("solver")["w"], whole)
    with pytest.raises(ZeroDivisionError):
        with objects.begin("solver", specs) as filling:
            filling.write("w", whole)
            1 / 0
    assert objects.get("solver").version == 1


def test_versions_to_come_are_waited_for_by_threads_and_by_tasks(store):
    objects = store.objects
    watch = objects.watch("solver")
    timer = threading.Timer(0.05, lambda: objects.set("solver", tensors(1)))
    timer.start()
    with objects.get("solver", at_least=1, timeout=30) as held:
        check(held, 1)
    timer.join()
    assert watch.next(timeout=30).version == 1
    with pytest.raises(forebay.WaitTimeout):
        watch.next(timeout=0.01)

    async def both():
        waits = asyncio.create_task(objects.get_async("solver", 2, timeout=30))
        await asyncio.sleep(0)
        await asyncio.to_thread(objects.set, "solver", tensors(2))
        assert (await waits).version == 2
        async for held in watch:
            return held.version

    assert asyncio.run(both()) == 2


def test_what_is_published_is_received_once(store):
    objects = store.objects
    objects.publish("weights", tensors(1))
    with pytest.raises(forebay.Error):
        objects.get("weights")
    with objects.receive("weights") as held:  # left without done(): it goes back
        check(held, 1)
    held = objects.receive("weights")
    with pytest.raises(forebay.WaitTimeout):
        objects.receive("weights", timeout=0.01)
    held.done()
    with pytest.raises(forebay.WaitTimeout):
        objects.receive("weights", timeout=0.01)


def test_versions_move_between_memory_and_disk(store):
    objects = store.objects
    for key in ("a", "b"):
        objects.set(key, tensors(1))
    objects.demote("a")
    assert objects.list("a")[0].tiers == ("disk",)
    assert objects.exchange("b", "a") == (1, 1)
    assert (objects.list("a")[0].tiers, objects.list("b")[0].tiers) == (("host", "disk"), ("disk",))
    with objects.get("b", tier="disk") as held:
        check(held, 1)
    assert objects.delete("b", 1) and not objects.delete("b", 1)


def test_shards_are_committed_and_got_together(store):
    objects = store.objects
    specs = {"w": forebay.objects.TensorSpec("F32", (4,), "weights")}
    fillings = [objects.begin(key, specs) for key in ("s.0", "s.1")]
    for rank, filling in enumerate(fillings):
        filling.write("w", np.full(4, rank, np.float32))
    version = objects.commit_together(fillings)
    objects.set("s.0", {"w": np.zeros(4, np.float32)})
    held = objects.get_together(["s.0", "s.1"])
    assert [one.version for one in held] == [version, version]
    assert [one["w"][0] for one in held] == [0.0, 1.0]


def test_modules_of_torch_go_in_and_out(store):
    torch = pytest.importorskip("torch")

    def model():
        return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 2)).to(torch.bfloat16)

    one, other = model(), model()
    store.objects.set("solver", one)
    with store.objects.get("solver") as held:
        assert held.specs["0.weight"] == ("BF16", (7, 5), "weights")
        held.copy_to(other)
        for name, tensor in held.state_dict().items():
            assert torch.equal(tensor, one.state_dict()[name])
        assert torch.equal(torch.from_dlpack(held.dlpack("0.weight")).view(torch.bfloat16), one[0].weight)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))


class OnlyDLPack:
    """A tensor of some library, which has nothing but the protocol."""

    def __init__(self, array, knows_versions=True):
        self.array, self.knows_versions = array, knows_versions
        self.asked = 0

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **wishes):
        if wishes and not self.knows_versions:
            raise TypeError("this library is of before DLPack 1.0")
        self.asked += 1
        return self.array.__dlpack__(**wishes)


@pytest.mark.parametrize("knows_versions", [True, False])
def test_what_has_nothing_but_dlpack_is_set(store, knows_versions):
    given = {name: OnlyDLPack(np.array(tensor), knows_versions) for name, tensor in tensors(3).items()}
    store.objects.set("solver", given)
    assert all(one.asked for one in given.values())
    with store.objects.get("solver") as held:
        check(held, 3)
        into = {"head": np.zeros((3, 5), np.int8)}
        held.copy_to(into)
        np.testing.assert_array_equal(into["head"], tensors(3)["head"])
    with pytest.raises(forebay.InputError, match="'a'"):
        store.objects.set("solver", {"a": object()})


def test_what_is_held_goes_to_other_libraries_by_dlpack(store):
    objects = store.objects
    objects.set("solver", tensors(4))
    held = objects.get("solver")
    taken = {name: np.from_dlpack(held.dlpack(name)) for name in held}
    for name, meant in tensors(4).items():
        np.testing.assert_array_equal(taken[name], meant)
    lies_in_the_store = np.shares_memory(held["embed"], held["embed"])  # else each look reads it anew
    if lies_in_the_store and tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):
        assert np.shares_memory(taken["embed"], held["embed"])  # what speaks DLPack 1.0 has the store's memory itself
        assert not taken["embed"].flags.writeable

    class Before:
        """A library of before DLPack 1.0 asks without wishes, and may write what it gets."""

        def __init__(self, exported):
            self.__dlpack_device__, self.exported = exported.__dlpack_device__, exported

        def __dlpack__(self, **wishes):
            if wishes:
                raise TypeError("before DLPack 1.0")
            return self.exported.__dlpack__()

    own = np.from_dlpack(Before(held.dlpack("embed")))
    if own.flags.writeable:
        own[:] = 0
    np.testing.assert_array_equal(held["embed"], tensors(4)["embed"])
    assert not np.shares_memory(own, held["embed"])
    with pytest.raises(BufferError, match="host memory"):
        held.dlpack("embed").__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy"):
        held.dlpack("embed").__dlpack__(copy=False)
    held.close()
    store.close()
    del held
    gc.collect()
    np.testing.assert_array_equal(taken["embed"], tensors(4)["embed"])


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
