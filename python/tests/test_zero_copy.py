"""Arrays and record batches lie in the mapped extents, and stay as they are for as long as they are held."""

import gc

import numpy as np
import pyarrow as pa
import pytest

import forebay
from conftest import lies_in_an_extent


def ready(solver, count: int = 3):
    tokens = [np.arange(100, dtype=np.int32) + row for row in range(count)]
    texts = [f"an answer that does not fit into twelve bytes, number {row}" for row in range(count)]
    solver.insert(
        policy_version=0, sample_ids=[f"q{row}_0_0" for row in range(count)], response=tokens, answer=texts
    )
    return tokens, texts


def test_arrays_of_a_claim_lie_in_the_mapping(solver, read):
    tokens, _ = ready(solver)
    with read.claim(size=3, timeout=0) as claim:
        rows = claim["response"]
        assert claim.copied_bytes == 0
    for row, expected in zip(rows, tokens):
        assert lies_in_an_extent(row.ctypes.data, row.nbytes) and row.ctypes.data % 64 == 0
        assert row.flags.aligned and row.flags.c_contiguous and not row.flags.owndata
        assert (row == expected).all()
        with pytest.raises(ValueError, match="read-only"):
            row[0] = 1
        with pytest.raises(ValueError):
            row.flags.writeable = True


def test_the_schema_of_a_claim_is_known_without_its_values(solver, read):
    ready(solver)
    with read.claim(size=3, timeout=0) as claim:
        schema = pa.schema(claim)
        assert claim.copied_bytes == 0
        assert schema.equals(claim.arrow().schema, check_metadata=True)


def test_memory_views_of_bytes_lie_in_the_mapping(store):
    table = store.create_table("t", {"image": "binary"})
    reader = store.create_consumer("r", tables=["t"], kind="task")
    table.insert(policy_version=0, sample_ids=["q_0_0"], image=[bytes(range(200))])
    with reader.claim(size=1, timeout=0) as claim:
        (view,) = claim["image"]
    assert view.readonly and bytes(view) == bytes(range(200))
    assert lies_in_an_extent(np.frombuffer(view, np.uint8).ctypes.data, len(view))


def test_texts_of_a_record_batch_lie_in_the_mapping_and_lists_are_counted_as_copied(solver, read):
    tokens, texts = ready(solver)
    with read.claim(size=3, timeout=0) as claim:
        batch = claim.arrow(["answer"])
        assert claim.copied_bytes == 0
        lists = claim.arrow(["response"])
        assert claim.copied_bytes >= sum(row.nbytes for row in tokens)
    windows = batch["answer"].buffers()[2:]
    assert windows and all(lies_in_an_extent(window.address, window.size) for window in windows)
    assert batch["answer"].to_pylist() == texts
    assert lists["response"].to_pylist() == [row.tolist() for row in tokens]
    assert pa.record_batch(claim_of(solver, read)).num_rows == 1


def claim_of(solver, read):
    """Another claim, taken as it is by whoever knows Arrow's C interface."""
    solver.insert(policy_version=0, sample_ids=["q9_0_0"], response=[[1]])
    return read.claim(size=1, timeout=0)


def test_what_was_read_outlives_claim_store_and_rows(path):
    store = forebay.open(path, versions_kept=1)
    solver = store.create_table("solver", {"response": "list<int32>", "answer": "utf8"})
    read = store.create_consumer("read", tables=["solver"], kind="task", ready=["response"])
    tokens, texts = ready(solver)
    claim = read.claim(size=3, timeout=0)
    rows, batch = claim["response"], claim.arrow(["answer"])
    claim.release()
    store.close()
    del claim, read, solver, store
    gc.collect()
    for row, expected in zip(rows, tokens):
        assert lies_in_an_extent(row.ctypes.data, row.nbytes) and (row == expected).all()
    assert batch["answer"].to_pylist() == texts


def test_a_store_is_not_opened_again_while_arrays_show_its_bytes(path):
    with forebay.open(path) as store:
        solver = store.create_table("solver", {"response": "list<int32>", "answer": "utf8"})
        read = store.create_consumer("read", tables=["solver"], kind="task", ready=["response"])
        ready(solver)
        with read.claim(size=3, timeout=0) as claim:
            rows, batch = claim["response"], claim.arrow(["answer"])
    for held in (rows, batch):
        with pytest.raises(forebay.StateError, match="record batches that it gave out"):
            forebay.open(path)
        del held
    del rows
    with pytest.raises(forebay.StateError):
        forebay.open(path)
    del batch
    gc.collect()
    with forebay.open(path) as again:
        assert again.table("solver").counts()["written"] == 3


def test_space_is_not_used_again_while_an_array_shows_it(path):
    with forebay.open(path, versions_kept=1, extent_bytes=(4096, 4096), sync_interval=0) as store:
        solver = store.create_table("solver", {"response": "list<int32>", "reward": "float32"})
        train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["response"])
        held = []
        for version in range(20):
            values = [np.full(500, version, np.int32)]
            solver.insert(policy_version=version, sample_ids=["q_0_0"], response=values)
            with store.step(rows={train: 1}) as step:
                for batch in step.micro_batches(train, size=1, timeout=30):
                    held.append((version, batch["response"][0]))
                    batch.accumulated()
                step.commit({"solver": version + 1})
        assert [int(array.min()) for _, array in held] == [int(array.max()) for _, array in held] == list(range(20))


def lists_in_place(store):
    """A reader of four rows of lists and tensors, and the lists of the rows."""
    columns = {"response": "list<int32>", "matrix": "tensor<float32, [2, 2]>", "half": "list<bfloat16>"}
    table = store.create_table("t", columns)
    reader = store.create_consumer("r", tables=["t"], kind="task")
    tokens = [np.arange(100 * row, dtype=np.int32) for row in range(4)]
    table.insert(
        policy_version=0, sample_ids=[f"q{row}_0_0" for row in range(4)], response=tokens,
        matrix=[np.full((2, 2), row, np.float32) for row in range(4)], half=[[0.5] * row for row in range(4)],
    )
    return reader, tokens


def test_lists_in_place_are_what_they_are_otherwise(store):
    reader, tokens = lists_in_place(store)
    with reader.claim(size=4, timeout=0) as claim:
        batch = claim.arrow(["response", "matrix", "half"], in_place=True)
    assert all(pa.types.is_list_view(column.type) for column in batch)
    assert batch["response"].to_pylist() == [row.tolist() for row in tokens]
    assert batch["matrix"].to_pylist() == [[float(row)] * 4 for row in range(4)]
    assert batch["half"].to_pylist() == [[0.5] * row for row in range(4)]


def test_lists_in_place_lie_in_the_mapping_of_a_store_of_this_process(path):
    with forebay.open(path) as store:
        reader, tokens = lists_in_place(store)
        with reader.claim(size=4, timeout=0) as claim:
            lists = claim.arrow(["response", "matrix"], in_place=True)
            assert claim.copied_bytes == 0
            claim.arrow(["half"], in_place=True)
            assert claim.copied_bytes == 4 * 6
        for row in range(1, 4):
            values = np.asarray(lists["response"][row].values)
            assert lies_in_an_extent(values.ctypes.data, values.nbytes) and (values == tokens[row]).all()
        del lists, values
