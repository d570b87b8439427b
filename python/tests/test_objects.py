"""Objects: embedded, as a neighbour of a server, and through the socket; each promise on every way."""

import asyncio
import gc
import threading

import numpy as np
import pytest
from objects_ways import check, store, tensors  # noqa: F401

import forebay
import forebay.objects
from forebay.objects import TensorSpec


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
        (lambda: objects.set("solver", {1: np.zeros(2)}), forebay.InputError, "1 is none"),
        (lambda: objects.set("solver", {"a": [[1], [1, 2]]}), forebay.InputError, "'a' is no array"),
        (lambda: objects.set("solver", tensors(1), memory_class=3), forebay.InputError, "not 3"),
        (lambda: objects.set("solver", {"a": np.zeros(2)}, memory_class={"a": 3}), forebay.InputError, "3 for tensor 'a'"),
        (lambda: objects.begin("solver", {"a": ("F32", (3,), "w")}), forebay.InputError, "TensorSpec"),
        (lambda: objects.begin("solver", {"a": TensorSpec("F32", (-3,), "w")}), forebay.InputError, "(-3,)"),
        (lambda: objects.set_many([1]), forebay.InputError, "[1]"),
        (lambda: objects.delete_many(["solver"]), forebay.InputError, "'solver' is none"),
        (lambda: objects.commit_together([]), forebay.InputError, "empty"),
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


SHAPES = {
    "a list": lambda: [4, 3],
    "numbers of numpy": lambda: np.array([4, 3], np.uint8),
    "a generator": lambda: (side for side in (4, 3)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_taken_from_whatever_names_its_sides(store, shape):
    with store.objects.begin("solver", {"w": TensorSpec("F32", SHAPES[shape](), "weights")}) as filling:
        filling.write("w", np.ones((1, 3), np.float32))
        filling.write("w", np.ones((3, 3), np.float32), row=np.uint8(1))
        filling.commit()
    held = store.objects.get("solver")
    assert held.specs["w"].shape == (4, 3) and held["w"].all()
    assert held.rows("w", np.uint8(1), np.uint8(3)).shape == (2, 3)


def test_a_wait_for_infinity_is_one_without_a_limit(store):
    objects, forever = store.objects, float("inf")
    objects.set("solver", tensors(1))
    assert objects.get("solver", at_least=1, timeout=forever).version == 1
    assert asyncio.run(objects.get_async("solver", timeout=forever)).version == 1
    for receive in (
        lambda: objects.receive("news", timeout=forever),
        lambda: asyncio.run(objects.receive_async("news", timeout=forever)),
        lambda: objects.receive_many(["news"], timeout=forever)["news"],
    ):
        objects.publish("news", tensors(2))
        receive().done()


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
    objects.set("s.1", {"w": np.zeros(4, np.float32)})  # both are at the next number, and not of one commit
    assert [one.version for one in objects.get_together(["s.0", "s.1"])] == [version, version]
    with pytest.raises(forebay.StateError, match="together"):
        objects.set("s.2", {"w": np.zeros(4, np.float32)})
        objects.get_together(["s.0", "s.2"])


def test_a_byte_that_changed_in_memory_is_named_by_verify(tmp_path):
    with forebay.open(tmp_path / "store", host_folder=tmp_path / "host") as store:
        store.objects.set("solver", tensors(1))
        with store.objects.get("solver") as held:
            held.verify()
            meant = tensors(1)["embed"].tobytes()[:64]
            segments = [path for path in (tmp_path / "host").rglob("*.segment") if meant in path.read_bytes()]
            with segments[0].open("r+b") as segment:
                at = segments[0].read_bytes().index(meant)
                segment.seek(at)
                segment.write(bytes([meant[0] ^ 1]))
            with pytest.raises(forebay.CorruptError, match="embed"):
                held.verify()


def test_keys_of_process_groups_are_not_set_by_others(store):
    for key in ("state.solver", "part.0123"):
        with pytest.raises(forebay.InputError, match="process groups"):
            store.objects.set(key, tensors(1))


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


NO_NUMBERS = {
    "get": lambda objects: objects.get("a", -1),
    "get of too large a one": lambda objects: objects.get("a", 1 << 64),
    "get at least": lambda objects: objects.get("a", at_least=-1, timeout=0.1),
    "set": lambda objects: objects.set("a", {"w": np.zeros(2)}, version=-1),
    "set on": lambda objects: objects.set("a", {"w": np.zeros(2)}, expected=-1),
    "delete": lambda objects: objects.delete("a", -1),
    "spill": lambda objects: objects.spill("a", -1),
    "demote": lambda objects: objects.demote("a", -1),
    "rows": lambda objects: objects.get("a").rows("w", -1, 1),
    "rows backwards": lambda objects: objects.get("a").rows("w", 2, 1),
    "write": lambda objects: objects.begin("b", objects.get("a").specs).write("w", np.zeros(1), row=-1),
    "masked": lambda objects: objects.set("a", {"w": np.ma.array([0.0, 1.0], mask=[False, True])}),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_what_is_no_number_of_a_version_or_row_and_what_has_a_mask_is_refused(store, case):
    store.objects.set("a", {"w": np.zeros(2)})
    with pytest.raises(forebay.InputError, match="-1|18446744073709551616|rows 2 to 1|masked"):
        NO_NUMBERS[case](store.objects)
    assert [shown.version for shown in store.objects.list("a")] == [1]


def test_a_read_only_target_is_refused_before_another_is_changed(store):
    store.objects.set("a", {"v": np.ones(2), "w": np.ones(2)})
    targets = {"v": np.zeros(2), "w": np.zeros(2)}
    targets["w"].flags.writeable = False
    with pytest.raises(forebay.InputError, match="'w' is read-only"):
        store.objects.get("a").copy_to(targets)
    assert not targets["v"].any()
