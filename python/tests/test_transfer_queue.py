"""TransferQueue's calls over a store: what they give, and that it outlives the process."""

import asyncio
import datetime
import inspect
import json
import pathlib
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import forebay

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")

import transfer_queue_script  # noqa: E402

import forebay.transfer_queue as tq  # noqa: E402
from forebay.transfer_queue import _partitions  # noqa: E402
from transfer_queue_script import batch, ragged  # noqa: E402

SCRIPT = pathlib.Path(transfer_queue_script.__file__)


def settings(path):
    return {"backend": {"Forebay": {"path": str(path)}}}


def rows(given):
    return [row.tolist() for row in given["x"].unbind()]


@pytest.fixture
def queue(path):
    tq.init(settings(path))
    yield tq
    tq.close()


def test_fields_that_are_called_as_an_argument_of_insert_have_no_column_of_their_own():
    arguments = set(inspect.signature(forebay.Table.insert).parameters) - {"self", "batch", "columns"}
    assert _partitions._ARGUMENTS == arguments


def test_the_queue_is_there_again_after_a_restart(path):
    tq.init(settings(path))
    transfer_queue_script.keys_and_tags(tq, transfer_queue_script.Notes())
    client = tq.get_client()
    client.put(batch(x=torch.arange(3).view(3, 1)), partition_id="val")
    client.get_meta(["x"], 1, "val", task_name="t")

    def seen():
        note, client = transfer_queue_script.Notes(), tq.get_client()
        note(tq.kv_list())
        for keys in (["a", "b"], ["c"]):
            note(tq.kv_batch_get(keys, "train"))
        note(client.kv_retrieve_meta(["a", "b", "c"], "train").global_indexes)
        note(client.get_consumption_status("t", "val"))
        note(client.get_partition_list())
        return note.lines

    before = seen()
    tq.close()
    tq.init(settings(path))
    try:
        assert seen() == before
        tq.kv_put("a", "train", tag={"n": 9})
        assert tq.kv_list("train")["train"]["a"] == {"status": "finished", "is_prompt": True, "n": 9}
        assert tq.get_client().get_meta(["x"], 2, "val", task_name="t").size == 2
    finally:
        tq.close()


def test_without_a_path_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    tq.init()
    tq.init()
    tq.kv_put("a", "train", tag={"n": 1})
    assert list(tmp_path.iterdir())
    tq.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(AssertionError, match="tq.init"):
        tq.get_client()


def test_a_queue_that_nobody_else_sees_is_warned_of_unless_it_is_meant(path, caplog, monkeypatch):
    monkeypatch.delenv("FOREBAY_ADDRESS", raising=False)
    monkeypatch.delenv("FOREBAY_PATH", raising=False)
    for configuration, warns in (
        (None, True),
        ({"controller": {"polling_mode": True}}, True),
        ({"backend": {"SimpleStorage": {}}}, True),
        ({"backend": {"Forebay": {}}}, False),
        (settings(path), False),
    ):
        caplog.clear()
        for _ in range(2):
            tq.init(configuration)
        tq.close()
        assert ["FOREBAY_ADDRESS" in record.getMessage() for record in caplog.records] == [True] * warns, configuration


def test_rows_that_say_nothing_any_more_are_deleted(queue):
    for number in range(20):
        queue.kv_put("a", "train", fields={"x": torch.tensor([number])}, tag={"n": number})
        queue.kv_put("a", "train", tag={"m": number})
    store = forebay.transfer_queue._queue.store
    assert store.sql("select count(*) as rows from transfer_queue").to_pylist() == [{"rows": 2}]
    queue.kv_clear("a", "train")
    # The one that says what was cleared stays until the next change.
    assert store.sql("select number from transfer_queue").to_pylist() == [{"number": None}]
    queue.kv_put("b", "train", tag={})
    assert store.sql("select number from transfer_queue").to_pylist() == [{"number": 1}]


def test_fields_are_columns_for_sql_and_for_consumers(queue):
    store = forebay.transfer_queue._queue.store
    queue.kv_batch_put(["a", "b"], "train", fields=batch(responses=ragged(3, 1), reward=torch.tensor([0.5, 1.0])))
    assert store.table("transfer_queue").columns["responses"] == "list<int64>"
    read = store.create_consumer("read", tables=["transfer_queue"], kind="task", ready=["responses"])
    with read.claim(size=2, timeout=0) as claim:
        assert [row.tolist() for row in claim["responses"]] == [[0, 1, 2], [0]] and claim.copied_bytes == 0
        claim.finish()


def test_fields_of_changing_types_and_of_any_name_are_kept(queue):
    tensors = {"x": torch.tensor([1, 2]), "sample_id": torch.tensor([3]), "timeout": torch.tensor([4.0])}
    queue.kv_put("a", "train", fields={**tensors, "a b/c": "text", "none": None})
    queue.kv_put("b", "train", fields={"x": torch.tensor([0.5])})
    got = queue.kv_batch_get("a", "train")
    assert {name: got[name].unbind()[0].tolist() for name in tensors} == {
        name: value.tolist() for name, value in tensors.items()
    }
    assert got.get("a b/c").tolist() == ["text"] and got.get("none").tolist() == [None]
    assert [queue.kv_batch_get(key, "train", "x")["x"].dtype for key in "ab"] == [torch.int64, torch.float32]
    many = {f"field_{number}": torch.tensor([number]) for number in range(80)}
    queue.kv_put("d", "train", fields=many)
    got = queue.kv_batch_get("d", "train")
    assert {name: got[name].unbind()[0] for name in many} == many


def test_a_fetch_waits_for_its_batch(queue):
    client = queue.get_client()
    fetched = []
    waiting = threading.Thread(target=lambda: fetched.append(client.get_meta(["x"], 2, "train", task_name="t")))
    waiting.start()
    for key in "abc":
        queue.kv_put(key, "train", fields={"x": torch.tensor([1])})
    waiting.join()
    assert client.kv_retrieve_keys(fetched[0].global_indexes, "train") == ["a", "b"]


@pytest.mark.parametrize("expected", [RuntimeError, TimeoutError, forebay.WaitTimeout])
def test_a_fetch_that_takes_too_long_raises_what_the_original_does_and_a_timeout(queue, expected):
    """TransferQueue's controller times out; its client raises a RuntimeError of that."""
    client = queue.get_client()
    client._timeout = 0.01
    queue.kv_put("a", "train", fields={"x": torch.tensor([1])})
    with pytest.raises(expected, match="1 of 2"):
        client.get_meta(["x"], 2, "train", task_name="t")
    with pytest.raises(expected, match="1 of 2"):
        asyncio.run(client.async_get_meta(["x"], 2, "train", task_name="t"))


def test_every_call_has_a_coroutine(queue):
    async def main():
        await queue.async_kv_batch_put(keys=["a"], partition_id="train", fields=batch(x=torch.ones(1, 2)))
        await queue.async_kv_put("b", "train", tag={"n": 1})
        client = queue.get_client()
        meta = await client.async_kv_retrieve_meta(keys=["a"], partition_id="train")
        assert (await client.async_get_data(meta))["x"].unbind()[0].tolist() == [1.0, 1.0]
        meta = await client.async_put(batch(y=torch.zeros(1, 1)), meta)
        assert meta.field_names == ["x", "y"]
        assert await queue.async_kv_list("train") == {"train": {"a": {}, "b": {"n": 1}}}
        await queue.async_kv_clear(["a", "b"], "train")
        assert await queue.async_kv_list() == {}

    asyncio.run(main())


def test_a_parser_sees_plain_values_before_they_are_stored(queue):
    def parser(data):
        data["x"] = data["x"] + 1
        data["urls"][:] = [url.upper() for url in data["urls"]]

    fields = tensordict.TensorDict(
        {"x": torch.tensor([[1], [2]]), "urls": tensordict.NonTensorStack("a", "b")}, batch_size=2
    )
    queue.kv_batch_put(["a", "b"], "train", fields=fields, data_parser=parser)
    got = queue.kv_batch_get(["a", "b"], "train")
    assert [row.tolist() for row in got["x"].unbind()] == [[2], [3]] and got.get("urls").tolist() == ["A", "B"]


def test_a_checkpoint_brings_the_queue_back(queue, tmp_path):
    where = tmp_path / "checkpoints" / "step_3"
    with pytest.raises(FileNotFoundError):
        queue.load_checkpoint(where)
    queue.kv_batch_put(["a", "b"], "train", fields=batch(x=ragged(2, 1)), tags=[{"n": 1}, {"n": 2}])
    queue.get_client().get_meta(["x"], 1, "train", task_name="t")
    queue.save_checkpoint(where, metadata={"step": 3})
    queue.save_checkpoint(where, metadata={"step": 3})
    assert json.loads((where / "metadata.json").read_text()) == {"storage_saved": True, "user_metadata": {"step": 3}}
    queue.kv_clear("a", "train")
    queue.kv_put("later", "train", tag={})
    queue.load_checkpoint(where)
    assert queue.kv_list() == {"train": {"a": {"n": 1}, "b": {"n": 2}}}
    assert [row.tolist() for row in queue.kv_batch_get(["a", "b"], "train")["x"].unbind()] == [[0, 1], [0]]
    assert queue.get_client().get_consumption_status("t", "train")[1].tolist() == [1, 0]


def test_keys_without_a_common_field_give_an_error_and_no_empty_batch(queue):
    queue.kv_put("a", "train", fields={"x": torch.tensor([1])})
    queue.kv_put("b", "train", fields={"y": torch.tensor([1])}, tag={"n": 1})
    queue.kv_put("c", "train", tag={"n": 2})
    for keys in (["a", "b"], ["a", "c"], "c"):
        with pytest.raises(ValueError, match="Some fields are not ready"):
            queue.kv_batch_get(keys, "train")
        meta = queue.get_client().kv_retrieve_meta(keys, "train")
        assert not meta.is_ready and meta.field_names == [] and meta.size == len(keys)
    with pytest.raises(ValueError, match="Some fields are not ready"):
        queue.kv_batch_get(["a", "b"], "train", "x")


def test_a_forced_fetch_gives_the_whole_partition_and_says_what_is_ready(queue):
    client = queue.get_client()
    for key, name in ("ax", "by", "cx"):
        queue.kv_put(key, "train", fields={name: torch.tensor([1])})
    assert client.get_meta(["x"], 1, "train", task_name="t").size == 1
    for size in (1, 2, 10):
        meta = client.get_meta(["x", "nowhere"], size, "train", mode="force_fetch")
        assert client.kv_retrieve_keys(meta.global_indexes, "train") == ["a", "b", "c"]
        assert meta.production_status.tolist() == [1, 0, 1] and not meta.is_ready and meta.field_names == ["x"]
    assert client.get_meta(["x", "y"], 3, "train", mode="force_fetch").production_status.tolist() == [0, 0, 0]
    assert client.get_meta(["nowhere"], 3, "train", mode="force_fetch").production_status.tolist() == [0, 0, 0]
    queue.kv_put("b", "train", fields={"x": torch.tensor([2])})
    meta = client.get_meta(["x"], 3, "train", mode="force_fetch")
    assert meta.is_ready and rows(client.get_data(meta)) == [[1], [2], [1]]
    assert client.get_meta(["x"], 3, "elsewhere", mode="force_fetch").size == 0


def test_in_polling_mode_a_fetch_gives_an_empty_batch_instead_of_waiting(path):
    tq.init({**settings(path), "controller": {"polling_mode": True, "timeout": 2}})
    try:
        client = tq.get_client()
        assert client.get_meta(["x"], 1, "train", task_name="t").size == 0
        tq.kv_put("a", "train", fields={"x": torch.tensor([1])})
        empty = client.get_meta(["x"], 2, "train", task_name="t")
        assert empty.size == 0 and not empty.is_ready and empty.field_names == []
        assert client.get_consumption_status("t", "train")[1].tolist() == [0]
        assert client.get_meta(["x"], 1, "train", task_name="t").size == 1
    finally:
        tq.close()


def test_a_key_that_is_given_twice_is_refused_before_anything_is_written(queue):
    with pytest.raises(ValueError, match="duplicated keys"):
        queue.kv_batch_put(["c", "c"], "train", fields=batch(x=ragged(2, 1)))
    for key, partition in ((None, "train"), ("c", None)):
        with pytest.raises(ValueError, match="None is neither"):
            queue.kv_put(key, partition, fields={"x": torch.tensor([1])})
    assert queue.kv_list() == {} and queue.get_client().get_partition_list() == []
    assert queue.get_client().kv_retrieve_meta(["d", "d"], "train", create=True).size == 2
    assert list(queue.kv_list()["train"]) == ["d"]


def test_keys_of_samples_are_given_for_each_or_not_at_all(queue):
    client = queue.get_client()
    queue.kv_batch_put(["a", "b"], "train", fields=batch(x=torch.ones(2, 1)))
    first, second = client.kv_retrieve_meta(["a", "b"], "train").global_indexes
    assert client.kv_retrieve_keys(first, "train") == ["a"]
    assert client.kv_retrieve_keys([second, first, second], "train") == ["b", "a", "b"]
    [without] = client.put(batch(x=torch.ones(1, 1)), partition_id="train").global_indexes
    for numbers, partition in (([first, without], "train"), (without, "train"), ([999], "train"), ([first], "val")):
        with pytest.raises(RuntimeError, match="have no key"):
            client.kv_retrieve_keys(numbers, partition)
    for wrong, error in ((["a"], TypeError), ((first, second), TypeError), ([], ValueError)):
        with pytest.raises(error, match="global_indexes"):
            client.kv_retrieve_keys(wrong, "train")


def test_a_batch_says_of_each_sample_what_it_is(queue):
    fields = batch(dense=torch.zeros(2, 2), ragged=ragged(3, 1), score=torch.ones(2), text=tensordict.NonTensorStack("u", "v"))
    queue.kv_batch_put(["a", "b"], "train", fields=fields, tags=[{"n": 1}, {"n": 2}])
    client = queue.get_client()
    meta = client.kv_retrieve_meta(["b", "a"], "train")
    assert len(meta.samples) == 2 and [sample.global_index for sample in meta.samples] == meta.global_indexes == [1, 0]
    first = meta.samples[0]
    assert (first.partition_id, first.production_status, first.custom_meta) == ("train", 1, {"n": 2})
    assert meta.samples[-1].global_index == 0
    shapes = [{name: said["shape"] for name, said in sample.fields.items()} for sample in meta.samples]
    assert shapes == [{"dense": (2,), "ragged": (length,), "score": (1,), "text": None} for length in (1, 3)]
    types = {name: (said["dtype"], said["is_non_tensor"]) for name, said in first.fields.items()}
    assert types["ragged"] == (torch.int64, False) and types["text"] == (None, True)
    with pytest.raises(TypeError):
        first.custom_meta["n"] = 3
    with pytest.raises(TypeError):
        first.fields["ragged"]["shape"] = ()
    with pytest.raises(IndexError):
        meta.samples[2]
    assert meta.select_samples([1]).samples[0].fields["ragged"]["shape"] == (3,)
    assert meta.get_shapes("ragged") == tq.BatchMeta.concat(meta.chunk(2)).get_shapes("ragged") == [(1,), (3,)]
    later = client.put(batch(added=torch.zeros(2, 5)), meta)
    assert later is meta and meta.samples[0].fields["added"]["shape"] == (5,)


TAGS = {
    "plain": {"a": None, "b": True, "c": 1.5, "d": "x", "e": [1, [2]], "f": {"g": {"h": 1}}},
    "numbers of numpy": {"score": np.float32(0.9), "n": np.int64(3), "is": np.bool_(True), "double": np.float64(0.1)},
    "tuples": {"shape": (1, (2, "x")), "in": [{"t": (3,)}]},
    "keys that are no names": {1: "a", "by": {2: 3, (1, 2): 4, None: 5}},
    "bytes": {"b": b"\x00\xff"},
    "sets": {"s": {1, 2}, "f": frozenset({(1, 2)})},
    "what a tag is marked by": {"forebay:kind": ["tuple", [1]]},
    "no number": {"low": float("-inf")},
}


@pytest.mark.parametrize("kind", TAGS)
def test_a_tag_comes_back_as_it_was(path, tmp_path, kind):
    tag = TAGS[kind]
    seen = lambda: tq.kv_list("train")["train"]["a"]
    tq.init(settings(path))
    try:
        tq.kv_put("a", "train", tag=tag)
        as_put = repr(seen())
        assert seen() == tag
        tq.save_checkpoint(tmp_path / "copy")
        tq.close()
        tq.init(settings(path))
        assert seen() == tag and repr(seen()) == as_put
        tq.kv_put("a", "train", tag={"more": 1})
        assert seen() == {**tag, "more": 1}
        tq.load_checkpoint(tmp_path / "copy")
        assert seen() == tag
    finally:
        tq.close()


def test_arrays_and_tensors_of_a_tag_come_back_with_their_types(path):
    given = {
        "array": np.arange(6, dtype="float16").reshape(2, 3),
        "texts": np.array(["a", "bc"]),
        "none": np.zeros((0, 3)),
        "tensor": torch.tensor([[1.5], [2.5]], dtype=torch.bfloat16),
        "truth": torch.tensor(True),
    }
    tq.init(settings(path))
    tq.kv_put("a", "train", tag=given)
    tq.close()
    tq.init(settings(path))
    try:
        got = tq.kv_list("train")["train"]["a"]
        for name, value in given.items():
            assert type(got[name]) is type(value) and (got[name].dtype, got[name].shape) == (value.dtype, value.shape)
            assert got[name].tolist() == value.tolist()
    finally:
        tq.close()


def test_what_would_not_come_back_in_a_tag_is_refused_with_its_place(queue):
    queue.kv_put("a", "train", tag={"n": 1})
    for wrong, place in (
        ({"o": object()}, r"tag\['o'\] is a builtins.object"),
        ({"a": [{"when": datetime.date(2020, 1, 1)}]}, r"tag\['a'\]\[0\]\['when'\] is a datetime.date"),
        ({"z": np.complex64(1)}, "complex64"),
        ({"o": np.array([object()])}, "ndarray of object"),
        ({"m": np.ma.array([1, 2], mask=[0, 1])}, "MaskedArray"),
        ({object(): 1}, "a key of tag"),
    ):
        with pytest.raises(TypeError, match=place):
            queue.kv_put("a", "train", fields={"x": torch.tensor([1])}, tag=wrong)
    assert queue.kv_list() == {"train": {"a": {"n": 1}}}
    assert queue.get_client().kv_retrieve_meta("a", "train").field_names == []


def test_a_tag_that_was_given_is_not_changed_from_outside(queue):
    steps = [1]
    queue.kv_put("a", "train", tag={"steps": steps})
    steps.append(2)
    queue.kv_list()["train"]["a"]["steps"].append(3)
    queue.get_client().kv_retrieve_meta("a", "train").custom_meta[0]["steps"].append(4)
    assert queue.kv_list() == {"train": {"a": {"steps": [1]}}}


def test_custom_meta_takes_the_place_of_the_tags(queue):
    queue.kv_put("a", "train", tag={"n": 1, "m": 2})
    client = queue.get_client()
    meta = client.kv_retrieve_meta("a", "train")
    meta.update_custom_meta([{"n": 3}])
    client.set_custom_meta(meta)
    assert queue.kv_list() == {"train": {"a": {"n": 3, "m": 2}}}
    meta.clear_custom_meta()
    client.set_custom_meta(meta)
    assert queue.kv_list() == {"train": {"a": {}}}


@pytest.mark.parametrize("sampler", ["GRPOGroupNSampler", type("RankAwareSampler", (), {})])
def test_samplers_are_refused_with_their_name(sampler):
    with pytest.raises(forebay.InputError, match="Sampler"):
        tq.init({"controller": {"sampler": sampler}})


def test_meta_objects_are_cut_joined_and_pickled():
    meta = tq.KVBatchMeta(keys=list("abc"), tags=[{"n": n} for n in range(3)], partition_id="p", fields=["x"])
    chunks = meta.chunk(2)
    assert [chunk.keys for chunk in chunks] == [["a", "b"], ["c"]]
    assert tq.KVBatchMeta.concat(chunks) == tq.KVBatchMeta(
        keys=meta.keys, tags=meta.tags, partition_id="p", fields=["x"], extra_info=None
    )
    assert meta.select_keys(["c", "a"]).tags == [{"n": 2}, {"n": 0}]
    meta.reorder([2, 0, 1])
    assert pickle.loads(pickle.dumps(meta)).keys == ["c", "a", "b"]
    for wrong in ({"keys": ["a"], "tags": []}, {"keys": ["a", "a"], "tags": [{}, {}]}):
        with pytest.raises(ValueError):
            tq.KVBatchMeta(**wrong)
    conflicting = [tq.KVBatchMeta(["a"], [{}], "p", None, {"t": 1}), tq.KVBatchMeta(["b"], [{}], "p", None, {"t": 2})]
    with pytest.raises(ValueError, match="'t'"):
        tq.KVBatchMeta.concat(conflicting)
    batches = tq.BatchMeta([4, 5, 6], ["p", "q", "p"], {"x": {}, "y": {}}, [1, 1, 1], {"e": 1}, [{}, {"n": 5}, {}])
    assert [part.global_indexes for part in batches.chunk_by_partition()] == [[4, 6], [5]]
    assert batches[1].custom_meta == [{"n": 5}] and batches.select_fields(["y", "z"]).field_names == ["y"]
    assert tq.BatchMeta.concat(batches.chunk(3)).global_indexes == [4, 5, 6]
    later = tq.BatchMeta([4, 5, 6], ["p", "q", "p"], {"y": {}, "z": {}}, [1, 0, 1], None, [{"n": 6}, {}, {}])
    united = batches.union(later)
    assert united.field_names == ["x", "y", "z"] and united.production_status.tolist() == [1, 0, 1]
    assert united.custom_meta == [{"n": 6}, {"n": 5}, {}]
    with pytest.raises(ValueError, match="global_indexes do not match"):
        batches[:2].union(batches[1:])
    batches.reorder([2, 1, 0])
    assert pickle.loads(pickle.dumps(batches)).global_indexes == [6, 5, 4] and batches.is_ready
    assert tq.BatchMeta().size == 0 and not tq.BatchMeta.empty().is_ready


WORKER = """
import sys, torch
import forebay.transfer_queue as tq
from transfer_queue_script import batch
tq.init()
client = tq.get_client()
who, count = sys.argv[1], int(sys.argv[2])
for at in range(count):
    tq.kv_batch_put([f"{who}_{at}"], "train", batch(x=torch.tensor([[at]])), [{"who": who}])
taken = []
print("READY", flush=True)
sys.stdin.readline()
while True:
    try:
        taken += client.get_meta(["x"], 1, "train", task_name="t").global_indexes
    except TimeoutError:
        break
print("TAKEN", *taken, flush=True)
tq.close()
"""


def workers(server, *names, count=5, timeout=2):
    """Processes that call init bare, as ray's workers do."""
    import os

    code = WORKER.replace("tq.init()", f"tq.init({{'controller': {{'timeout': {timeout}}}}})")
    paths = [str(SCRIPT.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "FOREBAY_ADDRESS": server.address, "PYTHONPATH": os.pathsep.join(paths)}
    arguments = dict(env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return [subprocess.Popen([sys.executable, "-c", code, name, str(count)], **arguments) for name in names]


def test_processes_have_one_queue_through_a_server(server):
    running = workers(server, "a", "b", "c")
    for process in running:
        assert process.stdout.readline() == "READY\n"
    tq.init({"backend": {"Forebay": {"address": server.address}}})
    try:
        listed = tq.kv_list("train")["train"]
        assert sorted(listed) == sorted(f"{who}_{at}" for who in "abc" for at in range(5))
        assert all(tag == {"who": key[0]} for key, tag in listed.items())
        there = tq.kv_batch_get(["a_1", "c_4"], "train", "x")
        assert [int(row[0]) for row in there["x"].unbind()] == [1, 4]
        # Of all of them each sample is taken once.
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        taken = [process.communicate(timeout=120)[0].split() for process in running]
        assert all(process.returncode == 0 and words[0] == "TAKEN" for process, words in zip(running, taken))
        assert sorted(int(number) for words in taken for number in words[1:]) == list(range(15))
        assert tq.get_client().check_consumption_status("t", "train")
        tq.kv_clear(list(listed), "train")
        assert tq.kv_list() == {}
    finally:
        tq.close()


def test_a_process_that_is_killed_keeps_no_turn(server):
    with forebay.connect(server.address) as store:
        from forebay.transfer_queue._turn import Turn

        mine, other = Turn(store, 30.0), Turn(store, 0.1)
        with mine:
            with pytest.raises(forebay.WaitTimeout):
                other.__enter__()
        with other, other:
            assert other.wait(0.01), "others may have it meanwhile"
    [process] = workers(server, "a", count=1_000_000)
    tq.init({"backend": {"Forebay": {"address": server.address}}})
    try:
        client = tq.get_client()
        while not client.kv_list():
            assert process.poll() is None
        process.kill()
        process.wait()
        there = len(client.kv_list()["train"])
        tq.kv_batch_put(["mine"], "train", batch(x=torch.tensor([[1]])), [{}])
        assert len(client.kv_list()["train"]) == there + 1
    finally:
        tq.close()


def test_a_path_and_an_address_are_refused_together(path):
    with pytest.raises(forebay.InputError, match="path or an address"):
        tq.init({"backend": {"Forebay": {"path": str(path), "address": "unix:///tmp/x.sock"}}})
    with pytest.raises(forebay.RetryError, match="forebay serve"):
        tq.init({"backend": {"Forebay": {"address": "unix:///nowhere/x.sock"}}})


def test_the_queue_of_a_server_is_copied_where_it_lies(server, tmp_path):
    tq.init({"backend": {"Forebay": {"address": server.address}}})
    try:
        with pytest.raises(forebay.StateError, match="forebay backup"):
            tq.save_checkpoint(tmp_path / "copy")
        assert not list(tmp_path.glob("copy*"))
    finally:
        tq.close()
