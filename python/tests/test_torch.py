"""Tensors of micro-batches, and the dataset that PyTorch's loader takes them from."""

import numpy as np
import pytest

import forebay
from conftest import begin, ids

torch = pytest.importorskip("torch")
data = torch.utils.data


@pytest.fixture
def dataset(store, solver, train):
    """A function from a step to its micro-batches."""
    from forebay.torch import IterableDataset

    def of(step, **options):
        return IterableDataset(
            step, train, **{"columns": ["response", "reward"], "size": 2, "timeout": 60, **options}
        )

    return of


def test_a_loop_over_the_loader_accumulates_every_micro_batch(store, solver, dataset):
    begin(solver, "q1", "q2")
    with store.step() as step:
        seen = []
        for tensors in data.DataLoader(dataset(step, pad=-1), batch_size=None):
            assert tensors["response"].tolist() == [[1, 2, 3], [4, -1, -1]]
            assert tensors["reward"].tolist() == [1.0, 0.0] and tensors["rows_in_gang"] == 2
            seen += tensors["sample_ids"]
        assert seen == ids("q1") + ids("q2")
        assert step.commit({"solver": 1}) == 4


def test_columns_may_have_a_layout_each(store, solver, dataset):
    begin(solver, "q1")
    with store.step() as step:
        layouts = {"response": "packed", "reward": "padded"}
        (tensors,) = data.DataLoader(dataset(step, columns=layouts), batch_size=None)
        packed = tensors["response"]
        assert packed.values.tolist() == [1, 2, 3, 4] and packed.cu_seqlens.tolist() == [0, 3, 4]
        assert packed.position_ids.tolist() == [0, 1, 2, 0] and packed.max_seqlen == 3


def test_a_loop_that_is_left_gives_its_micro_batch_back(store, solver, dataset):
    begin(solver, "q1", "q2")
    with store.step() as step:
        for tensors in dataset(step):
            assert tensors["sample_ids"] == ids("q1")
            break
        seen = [tensors["sample_ids"] for tensors in dataset(step)]
        assert sorted(seen) == [ids("q1"), ids("q2")]
        assert step.commit({"solver": 1}) == 4


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_worker_processes_are_refused_with_the_way_out(store, solver, dataset, context):
    begin(solver, "q1")
    with store.step() as step:
        loader = data.DataLoader(
            dataset(step), batch_size=None, num_workers=1, multiprocessing_context=context, timeout=60
        )
        with pytest.raises(forebay.StateError, match="num_workers=0"):
            next(iter(loader))
        assert [tensors["sample_ids"] for tensors in dataset(step)] == [ids("q1")]


@pytest.mark.parametrize(
    "type_, values, dtype",
    [
        ("list<int64>", [[1, 2], [3]], "int64"),
        ("list<float16>", [[0.5], [1.5, 2.5]], "float16"),
        ("list<bfloat16>", [[0.5], [1.5]], "float32"),
        ("list<uint8>", [[], [255]], "uint8"),
        ("tensor<float32, [2, 2]>", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "float32"),
        ("bool", [True, False], "bool"),
        ("int32", [7, -7], "int32"),
    ],
)
def test_every_type_of_numbers_becomes_a_tensor(store, type_, values, dtype):
    table = store.create_table("t", {"x": type_})
    read = store.create_consumer("read", tables=["t"], kind="task", ready=["x"])
    if type_.startswith("tensor"):
        values = np.array(values, np.float32)
    table.insert(policy_version=0, sample_ids=ids("q"), x=values)
    with read.claim(size=2, timeout=0) as claim:
        tensor = claim.torch("x")
        assert str(tensor.dtype) == f"torch.{dtype}" and tensor.shape[0] == 2
        rows = [list(np.ravel(row)) for row in values]
        for found, row in zip(tensor, rows):
            assert found.flatten()[: len(row)].tolist() == row


def test_tensors_are_the_caller_s_own(store, solver, train):
    """A tensor may be written to; the store's pages may not."""
    begin(solver, "q1")
    with store.step() as step:
        batch = next(step.micro_batches(train, size=2, timeout=60))
        for layout in ("padded", "packed", "nested"):
            tensor = batch.torch("response", layout=layout)
            (tensor.values if layout == "packed" else tensor.values() if layout == "nested" else tensor).zero_()
        batch.torch("reward").zero_()
        assert batch["response"][0].tolist() == [1, 2, 3] and batch["reward"].tolist() == [1.0, 0.0]


def part_without_rows(store, type_: str):
    """The part of the rank that gets nothing of a micro-batch of one row."""
    table = store.create_table("t", {"x": type_, "note": "utf8"})
    train = store.create_consumer("train", tables=["t"], kind="trainer", ready=["x"])
    value = [[[1, 2, 3], [4, 5, 6]]] if type_.startswith("tensor") else [[1, 2]] if type_.startswith("list") else [1]
    table.insert(policy_version=0, sample_ids=["q_0_0"], x=value, note=["a"])
    step = store.step(rows={train: 1})
    share = {"world": 2, "split": "balanced", "timeout": 60}
    parts = [next(step.micro_batches(train, size=1, rank=rank, **share)) for rank in range(2)]
    (empty,) = [part for part in parts if not len(part)]
    return step, parts, empty


@pytest.mark.parametrize(
    ("type_", "dtype", "shape"),
    [
        ("list<int64>", torch.int64, (0, 0)),
        ("list<uint8>", torch.uint8, (0, 0)),
        ("list<bfloat16>", torch.float32, (0, 0)),
        ("list<float64>", torch.float64, (0, 0)),
        ("tensor<int16, [2, 3]>", torch.int16, (0, 2, 3)),
        ("tensor<bfloat16, [2, 3]>", torch.float32, (0, 2, 3)),
        ("int32", torch.int32, (0,)),
        ("float64", torch.float64, (0,)),
    ],
)
def test_a_part_without_rows_has_the_type_of_its_column(store, type_, dtype, shape):
    step, parts, empty = part_without_rows(store, type_)
    padded = empty.torch("x")
    assert padded.dtype == dtype and tuple(padded.shape) == shape
    full = next(part for part in parts if len(part)).torch("x")
    assert full.dtype == dtype and full.shape[2:] == padded.shape[2:]
    if type_.startswith("list"):
        packed = empty.torch("x", layout="packed")
        assert packed.values.dtype == dtype and packed.values.tolist() == [] and packed.cu_seqlens.tolist() == [0]
        assert packed.cu_seqlens.dtype == torch.int32 and packed.position_ids.tolist() == [] and packed.max_seqlen == 0
        nested = empty.torch("x", layout="nested")
        assert nested.is_nested and nested.layout == torch.jagged and nested.dtype == dtype
        assert nested.size(0) == 0 and not list(nested.unbind()) and nested.float().to_padded_tensor(0.0).shape == (0, 0)
    step.abandon()


def test_a_part_without_rows_is_refused_as_one_with_rows_is(store):
    step, _, empty = part_without_rows(store, "list<int32>")
    for options, named in [({"column": "note"}, "note"), ({"column": "x", "layout": "loose"}, "loose")]:
        with pytest.raises(forebay.InputError, match=named):
            empty.torch(**options)
    step.abandon()


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_a_nested_tensor_is_written_with_one_row_a_part(store, layout, dtype):
    parts = [torch.tensor(part, dtype=dtype) for part in ([1, 2, 3], [], [4])]
    table = store.create_table("t", {"x": f"list<{str(dtype).partition('.')[2]}>"})
    nested = torch.nested.nested_tensor(parts, layout=layout)
    rows = table.insert(policy_version=0, sample_ids=ids("q", 3), x=nested)
    assert [row.tolist() for row in table.cells(rows, "x")] == [[1, 2, 3], [], [4]]


def test_a_nested_column_is_written_as_it_was_read(store):
    table = store.create_table("t", {"x": "list<float32>", "copy": "list<float32>"})
    read = store.create_consumer("read", tables=["t"], kind="task", ready=["x"])
    rows = table.insert(policy_version=0, sample_ids=ids("q"), x=[[0.5], [1.5, 2.5]])
    with read.claim(size=2, timeout=0) as claim:
        claim.finish(copy=claim.torch("x", layout="nested").requires_grad_())
    assert [row.tolist() for row in table.cells(rows, "copy")] == [[0.5], [1.5, 2.5]]
