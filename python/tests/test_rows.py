"""What writers call: rows, their cells, and the forms that values may have."""

import array
import asyncio
import collections.abc
import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest

import forebay
from conftest import ids


def written(store, column: str, values, type_name: str):
    """What is read of values that were written to a column of a type."""
    table = store.create_table("t", {column: type_name})
    reader = store.create_consumer("r", tables=["t"], kind="task")
    table.insert(policy_version=0, sample_ids=ids("q", len(values)), **{column: values})
    with reader.claim(size=len(values), timeout=0) as claim:
        return claim[column]


def itself(levels: int = 1) -> list:
    """A list of one list that contains itself so many levels further down."""
    first: list = []
    last = first
    for _ in range(levels - 1):
        last.append([])
        last = last[0]
    last.append(first)
    return first


def test_a_row_is_staged_and_read_when_it_is_ready(solver, read):
    rows = solver.insert(policy_version=0, sample_ids=["q1_0_0", "q1_0_1"], prompt=[[1, 2], [3]])
    with pytest.raises(forebay.WaitTimeout):
        read.claim(size=2, timeout=0)
    solver.write(rows, response=[np.array([4, 5], np.int32), [6]], reward=np.array([1.0, 0.0]), answer=["yes", "no"])
    with read.claim(size=2, timeout=0) as claim:
        assert claim.sample_ids == ["q1_0_0", "q1_0_1"] and len(claim) == 2 and claim.table == "solver"
        assert [list(row) for row in claim["response"]] == [[4, 5], [6]]
        assert claim["reward"].tolist() == [1.0, 0.0] and claim["answer"] == ["yes", "no"]
        assert claim["policy_version"].tolist() == [0, 0] and claim["reward_status"].tolist() == [True, True]


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3, 4]],
        [(1, 2), (3, 4)],
        ((1, 2), (3, 4)),
        np.array([[1, 2], [3, 4]], np.int32),
        np.array([[1, 2], [3, 4]]),  # int64, as numpy has it on its own
        np.array([[1, 3], [2, 4]], np.int32).T,  # not contiguous
        np.array([[1, 2], [3, 4]], ">i4"),  # of another order of bytes
        np.array([[1, 2], [3, 4]], np.uint8),
        np.frombuffer(b"???" + np.array([1, 2, 3, 4], np.int32).tobytes(), np.int32, offset=3).reshape(2, 2),  # not aligned
        np.array([(b"?", [1, 2]), (b"?", [3, 4])], [("a", "S1"), ("b", "<i4", 2)])["b"],  # nor these, within others
        [np.array([1, 2]), array.array("h", [3, 4])],
        [memoryview(array.array("i", [1, 2])), np.array([3, 4], object)],
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int32())),
        pa.array([[9], [1, 2], [3, 4]])[1:],
        pa.array([None, [9], [1, 2], [3, 4], [9, None]])[2:4],
        pa.array([[9], [1, 2], [3, 4], [9]], pa.large_list(pa.int64()))[1:3],
        pa.chunked_array([pa.array([[1, 2]]), pa.array([[3, 4]])]),
        pa.chunked_array([pa.array([[9], [1, 2], [3, 4]])[1:]]),
        lambda: iter([[1, 2], [3, 4]]),  # read once
    ],
    ids=lambda values: type(values).__name__,
)
def test_lists_may_be_given_in_many_forms(store, values):
    table = store.create_table("t", {"x": "list<int32>"})
    reader = store.create_consumer("r", tables=["t"], kind="task")
    table.insert(policy_version=0, sample_ids=ids("q"), x=values() if callable(values) else values)
    with reader.claim(size=2, timeout=0) as claim:
        assert [row.tolist() for row in claim["x"]] == [[1, 2], [3, 4]]
        assert {row.dtype for row in claim["x"]} == {np.dtype(np.int32)}


ELEMENTS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_number_type_comes_back_as_itself(store, element):
    values = np.array([[0, 1, 100], [7, 8, 9]], element)
    rows = written(store, "x", values, f"list<{element}>")
    assert all((row == value).all() and row.dtype == element for row, value in zip(rows, values))
    table = store.create_table("scalars", {"x": element})
    reader = store.create_consumer("s", tables=["scalars"], kind="task")
    table.insert(policy_version=0, sample_ids=ids("q"), x=values[:, 0])
    with reader.claim(size=2, timeout=0) as claim:
        assert claim["x"].dtype == element and claim["x"].tolist() == [0, 7]


def test_values_of_every_other_type_come_back_as_themselves(store):
    cases = [
        ("bool", [True, False], lambda got: got.tolist() == [True, False]),
        ("bool", np.array([True, False]), lambda got: got.tolist() == [True, False]),
        ("utf8", ["", "a text that is longer than twelve bytes"], lambda got: got[1].startswith("a text")),
        ("utf8", pa.array(["x", "y"]), lambda got: got == ["x", "y"]),
        ("binary", [b"", bytearray(range(20))], lambda got: [bytes(b) for b in got] == [b"", bytes(range(20))]),
        ("list<bfloat16>", [[0.5, 1.0], []], lambda got: got[0].tolist() == [0.5, 1.0] and got[1].size == 0),
        ("bfloat16", [0.5, -2.0], lambda got: got.tolist() == [0.5, -2.0]),
        ("list<uint8>", [[True, False], np.array([True])], lambda got: [r.tolist() for r in got] == [[1, 0], [1]]),
        ("tensor<int16, [2, 2]>", [[[1, 2], [3, 4]], [5, 6, 7, 8]], lambda got: got[1].tolist() == [[5, 6], [7, 8]]),
        ("tensor<int16, [2, 2]>", [((1, 2), [3, 4]), np.array([[5, 6], [7, 8]])], lambda got: got[0].tolist() == [[1, 2], [3, 4]]),
        ("tensor<bfloat16, [2, 2]>", [[[1, 2], [3, 4]], [5, 6, 7, 8]], lambda got: got[1].tolist() == [[5, 6], [7, 8]]),
        ("tensor<float32, [2, 3]>", np.ones((2, 2, 3)), lambda got: got[0].shape == (2, 3) and got[0].sum() == 6),
        ("float32", [1, None], lambda got: got.mask.tolist() == [False, True] and got[0] == 1.0),
        ("list<int32>", [None, [1]], lambda got: got[0] is None and got[1].tolist() == [1]),
        ("float64", np.array([1, 2]), lambda got: got.tolist() == [1.0, 2.0]),
        ("int64", [np.int8(3), np.uint64(2**63 - 1)], lambda got: got.tolist() == [3, 2**63 - 1]),
    ]
    for number, (type_name, values, holds) in enumerate(cases):
        table = store.create_table(f"t{number}", {"x": type_name})
        reader = store.create_consumer(f"r{number}", tables=[f"t{number}"], kind="task")
        table.insert(policy_version=0, sample_ids=ids("q"), x=values)
        with reader.claim(size=2, timeout=0) as claim:
            assert holds(claim["x"]), (type_name, values, claim["x"])


def test_types_may_be_named_as_pyarrow_has_them(store):
    table = store.create_table(
        "t",
        {
            "a": pa.list_(pa.int32()),
            "b": pa.float32(),
            "c": pa.string(),
            "d": pa.binary(),
            "e": pa.bool_(),
            "f": pa.list_(pa.float16(), 4),
            "g": pa.fixed_shape_tensor(pa.int8(), [2, 3]),
            "h": pa.large_list(pa.float64()),
            "i": pa.uint64(),
        },
    )
    assert table.columns == {
        "a": "list<int32>",
        "b": "float32",
        "c": "utf8",
        "d": "binary",
        "e": "bool",
        "f": "tensor<float16, [4]>",
        "g": "tensor<int8, [2, 3]>",
        "h": "list<float64>",
        "i": "uint64",
    }


@pytest.mark.parametrize(
    ("type_name", "values", "named"),
    [
        ("int8", [1, 300], "300"),
        ("int8", np.array([1, 300]), "300"),
        ("int32", [1, 0.5], "0.5"),
        ("int32", [1, "x"], "'x'"),
        ("float32", [1, True], "bool"),
        ("list<int8>", [[1], [300]], "300"),
        ("list<int8>", np.array([[1], [300]]), "300"),
        ("list<int32>", [[1], [0.5]], "0.5"),
        ("list<int32>", np.array([1, 2]), "give a list of arrays"),
        ("list<int32>", np.ones((2, 2, 2), np.int32), "[2, 2]"),
        ("list<int32>", [[1], [[2]]], "[[2]]"),
        ("list<int32>", [[1], 7], "7"),
        ("tensor<int32, [2, 3]>", np.ones((2, 3, 2), np.int32), "[3, 2]"),
        ("tensor<int32, [2]>", [[1, 2], [1, 2, 3]], "3 x int32"),
        ("tensor<int32, [2, 3]>", [[[1, 2], [3, 4], [5, 6]]] * 2, "[3, 2]"),
        ("tensor<int32, [2, 3]>", [[[1, 2, 3], [4, 5]]] * 2, "[2, 2]"),
        ("tensor<int32, [2, 3]>", [[[1, 2, 3, 4, 5, 6]]] * 2, "[1, 6]"),
        ("tensor<int32, [2, 3]>", [[[[1], [2], [3]], [[4], [5], [6]]]] * 2, "[2, 3, 1]"),
        ("tensor<int32, [2, 3]>", [[[1, 2, 3], 4]] * 2, "[2]"),
        ("tensor<int32, [2, 3, 1]>", [[[1, 2, 3], [4, 5, 6]]] * 2, "[2, 3]"),
        ("tensor<int32, [2, 3]>", [[[1, 2, 3], [4, 5, "x"]]] * 2, "'x'"),
        ("tensor<int32, [2, 3]>", [itself()] * 2, "contains itself"),
        ("tensor<int32, [1, 1]>", [itself(levels=3)] * 2, "contains itself"),
        ("tensor<int32, [1, 3]>", [[itself()]] * 2, "contains itself"),
        (f"tensor<int32, {[1] * 65}>", [itself()] * 2, "64 levels"),
        ("list<int32>", [itself()] * 2, "[[...]]"),
        ("list<float32>", np.ma.array([[1, 2], [3, 4]], mask=[[0, 0], [0, 1]], dtype=np.float32), "masked"),
        ("list<float64>", [np.ma.array([1.0, 2.0], mask=[1, 0]), [1.0]], "masked"),
        ("list<float32>", [np.ma.array([1.0, 2.0], ">f4", mask=[1, 0]), [1.0]], "None"),
        ("list<float32>", [[1.0, np.ma.masked], [1.0]], "masked"),
        ("tensor<float32, [2]>", np.ma.array([[1, 2], [3, 4]], mask=[[0, 0], [0, 1]]), "masked"),
        ("binary", [np.ma.array([1, 2], np.uint8, mask=[0, 1]), b""], "masked"),
        ("float32", np.ones((2, 2)), "[2, 2]"),
        ("utf8", ["a", 5], "5"),
        ("binary", [b"a", "text"], "'text'"),
        ("utf8", "ab", "one str"),
        ("binary", b"ab", "one bytes"),
        ("float32", 1.0, "one float"),
        ("float32", np.float32(1.0), "one float32"),
        ("float32", np.array(1.0), "one ndarray"),
        ("utf8", np.array("a"), "one ndarray"),
        ("float32", [1.0], "1 values for 2 rows"),
        ("float32", np.ones(3), "3 values for 2 rows"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_name(store, type_name, values, named):
    table = store.create_table("t", {"x": type_name})
    with pytest.raises(forebay.InputError) as refused:
        table.insert(policy_version=0, sample_ids=ids("q"), x=values)
    assert named in str(refused.value) and "x" in str(refused.value)
    assert table.counts()["written"] == 0


def test_an_array_that_is_changed_afterwards_changes_nothing(store):
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    table = store.create_table("t", {"x": "list<int32>"})
    reader = store.create_consumer("r", tables=["t"], kind="task")
    table.insert(policy_version=0, sample_ids=ids("q"), x=values)
    values[:] = -1
    with reader.claim(size=2, timeout=0) as claim:
        assert [row.tolist() for row in claim["x"]] == [[0, 1, 2], [3, 4, 5]]


def test_cells_grow_and_are_closed(solver, read):
    row = solver.insert(policy_version=0, sample_ids=["q1_0_0"])
    solver.append(row, "response", [1, 2])
    solver.append(row, "response", np.array([3], np.int32))
    with pytest.raises(forebay.StateError, match="partial"):
        solver.write(row, response=[[9]])
    solver.finalize(row, "response")
    with read.claim(size=1, timeout=0) as claim:
        assert claim["response"][0].tolist() == [1, 2, 3]


@pytest.mark.tcp
def test_a_cell_that_grows_is_shown_as_far_as_it_has_come_to_who_asks(store):
    table = store.create_table("t", {"tokens": "list<int32>", "text": "utf8", "bytes": "binary", "reward": "float32"})
    rows = table.insert(policy_version=0, sample_ids=ids("q"), reward=[1.0, None])

    async def grow():
        for tokens, text, chunk in [([1, 2], "al", b"x"), ([3], "so", b"yz")]:
            await asyncio.gather(
                table.append_async(rows[0], "tokens", tokens),
                table.append_async(rows[0], "text", text),
                table.append_async(rows[0], "bytes", chunk),
            )
        return await table.cells_async(rows, "tokens", partial=True)

    tokens, empty = asyncio.run(grow())
    assert (tokens.tolist(), empty) == ([1, 2, 3], None)
    assert table.cells(rows, "text", partial=True) == ["also", None] and table.cells(rows, "text") == [None, None]
    assert bytes(table.cells(rows, "bytes", partial=True)[0]) == b"xyz"
    assert table.cells(rows, "reward", partial=True) == [1.0, None]
    asyncio.run(table.finalize_async(rows[0], "tokens"))
    assert table.cells(rows, "tokens")[0].tolist() == [1, 2, 3]
    with pytest.raises(forebay.InputError, match="partial is True or False"):
        table.cells(rows, "tokens", partial="yes")


def test_rows_are_found_again_and_sliced(solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1", 4))
    found = solver.find(policy_version=0, sample_ids=ids("q1", 4))
    assert len(rows) == len(found) == 4 and len(found[1:3]) == 2 and len(found[::-2]) == 2
    solver.write(found[-1], reward=[0.5])
    with pytest.raises(IndexError, match="row 4 of 4"):
        found[4]
    with pytest.raises(forebay.InputError, match="q2_0_0"):
        solver.find(policy_version=0, sample_ids=["q2_0_0"])


def test_many_rows_are_found_in_the_order_in_which_they_are_asked_for(solver):
    many = [f"m{at}_0_0" for at in range(10_500)]
    rows = solver.insert(policy_version=0, sample_ids=many)
    assert solver.find(policy_version=0, sample_ids=many[::-1]) == rows[::-1]
    assert list(solver.find(policy_version=0, sample_ids=["m7_0_0"] * 3)) == list(rows[7:8]) * 3
    with pytest.raises(forebay.InputError, match='"gone_0_0" of policy version 0'):
        solver.find(policy_version=0, sample_ids=[*many, "gone_0_0"])
    with pytest.raises(forebay.InputError, match="policy version 1"):
        solver.find(policy_version=1, sample_ids=many)
    assert len(solver.find(policy_version=0, sample_ids=[])) == 0


def test_a_token_makes_an_insert_safe_to_repeat(solver):
    def insert():
        return solver.insert(
            policy_version=0, sample_ids=["q1_0_0"], idempotency_tokens=[7], agent="a", weights="w"
        )

    insert()
    insert()
    assert solver.counts()["written"] == 1
    with pytest.raises(forebay.StateError, match="q1_0_0"):
        solver.insert(policy_version=0, sample_ids=["q1_0_0"])


def test_excluded_rows_are_counted_by_reason(solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1", 3))
    solver.exclude(rows[:2], "no answer")
    assert solver.counts() == {"written": 3, "consumed": 0, "open": 1, "excluded": {"no answer": 2}}


def test_columns_come_and_go_while_a_table_is_used(solver):
    solver.add_column("weight", "float32")
    solver.insert(policy_version=0, sample_ids=["q1_0_0"], weight=[0.5])
    solver.rename_column("weight", "importance")
    assert "importance" in solver.columns and "weight" not in solver.columns
    solver.retire_column("importance")
    with pytest.raises(forebay.InputError, match="importance"):
        solver.insert(policy_version=0, sample_ids=["q2_0_0"], importance=[0.5])


def test_roles_shared_and_lazy_columns_are_what_they_say(store):
    table = store.create_table(
        "t",
        {"tokens": "list<int32>", "logprobs": "list<float32>", "image": "binary"},
        roles={"tokens": "input_ids", "logprobs": "behaviour_logprobs"},
        shared=["tokens"],
        lazy=["image"],
        policy="actor",
    )
    reader = store.create_consumer("r", tables=["t"], kind="task")
    assert store.policy_version("actor") == 0
    with pytest.raises(forebay.InputError, match="same length"):
        table.insert(policy_version=0, sample_ids=["q0_0_0"], tokens=[[1, 2]], logprobs=[[0.5]])
    table.insert(policy_version=0, sample_ids=ids("q"), tokens=[list(range(50))] * 2, image=[b"x" * 50] * 2)
    with reader.claim(size=2, timeout=0) as claim:
        first, second = claim["tokens"]
        assert first.ctypes.data == second.ctypes.data, "equal values are stored once"
        assert claim.arrow().schema.names == ["sample_id", "policy_version", "tokens", "logprobs"]
        assert claim.arrow(["image"]).num_columns == 1


def test_cells_are_read_without_a_claim(store):
    columns = {
        "list": "list<int32>", "tensor": "tensor<float32, [2]>", "binary": "binary", "text": "utf8", "bool": "bool",
        "int8": "int8", "int64": "int64", "uint64": "uint64", "float16": "float16", "bfloat16": "bfloat16",
        "float32": "float32", "float64": "float64",
    }  # fmt: skip
    values = {
        "list": [1, 2], "tensor": np.array([0.5, 1.5], np.float32), "binary": b"abc", "text": "a text", "bool": True,
        "int8": -7, "int64": -(2**40), "uint64": 2**63, "float16": 0.5, "bfloat16": -0.5, "float32": 0.25,
        "float64": 0.1,
    }  # fmt: skip
    table = store.create_table("all", columns)
    rows = table.insert(policy_version=0, sample_ids=["q_0_0"], **{name: [value] for name, value in values.items()})
    more = table.insert(policy_version=0, sample_ids=["q_0_1"], text=[None])
    for name, value in values.items():
        (found,) = table.cells(rows, name)
        found = found.tolist() if hasattr(found, "dtype") else bytes(found) if name == "binary" else found
        assert found == (value.tolist() if hasattr(value, "tolist") else value), name
        assert table.cells(more, name) == [None]
    with pytest.raises(forebay.InputError, match='did you mean "list"'):
        table.cells(rows, "lists")


def test_rows_are_deleted_and_held_ones_only_by_force(store, solver, read):
    rows = solver.insert(policy_version=0, sample_ids=ids("q", 3), response=[[1], [2], [3]])
    assert solver.delete(rows[2]) == 1
    claim = read.claim(size=2, timeout=0)
    with pytest.raises(forebay.StateError):
        solver.delete(rows[:2])
    assert solver.delete(rows[:2], force=True) == 2
    assert store.sql("select count(*) as rows from solver").to_pylist() == [{"rows": 0}]
    with pytest.raises((forebay.InputError, forebay.StateError), match="no row is named|was deleted"):
        claim.finish(reward=[1.0, 2.0])


@pytest.mark.parametrize(
    "made",
    [
        lambda columns: pa.table(columns),
        lambda columns: pa.RecordBatch.from_pydict(columns),
        lambda columns: pa.concat_tables([pa.table(columns).slice(0, 1), pa.table(columns).slice(1)]),
        lambda columns: pa.table(columns).slice(0, 2),
    ],
)
def test_a_batch_of_arrow_is_written_by_the_names_of_its_columns(store, solver, made):
    begun = made({"prompt": pa.array([[1, 2], [3]], pa.list_(pa.int32())), "answer": ["a", None]})
    rows = solver.insert(begun, policy_version=0, sample_ids=ids("q"), reward=[1.0, 0.0])
    solver.write(rows, made({"response": pa.array([[4], [5, 6]]), "logprobs": pa.array([[0.5], [1.0, 2.0]])}))
    assert [list(value) for value in solver.cells(rows, "prompt")] == [[1, 2], [3]]
    assert [list(value) for value in solver.cells(rows, "response")] == [[4], [5, 6]]
    assert solver.cells(rows, "answer") == ["a", None] and solver.cells(rows, "reward") == [1.0, 0.0]


def test_a_batch_that_cannot_be_written_is_named(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q"))
    two = pa.table({"answer": ["a", "b"]})
    for call, named in [
        (lambda: solver.write(rows, two, answer=["a", "b"]), "given twice"),
        (lambda: solver.write(rows, two.slice(0, 1)), "1 values for 2 rows"),
        (lambda: solver.write(rows, pa.table({"answr": ["a", "b"]})), "answer"),
        (lambda: solver.write(rows, pa.table({"answer": [1, 2]})), "answer"),
        (lambda: solver.write(rows, {"answer": ["a", "b"]}), "not dict"),
        (lambda: solver.write(rows, pa.array([1, 2])), "not Int64Array"),
        (lambda: solver.insert([1], policy_version=0, sample_ids=ids("r")), "not list"),
    ]:
        with pytest.raises(forebay.InputError, match=named):
            call()
    assert solver.cells(rows, "answer") == [None, None]
    assert solver.counts()["written"] == 2


def test_lists_of_a_slice_are_those_of_its_rows_and_none_has_a_null_in_it(store):
    table = store.create_table("lists", {"tokens": pa.list_(pa.int32())})
    array = pa.array([[9, None], [1, 2], None, [], [3]], pa.list_(pa.int32()))
    rows = table.insert(policy_version=0, sample_ids=[f"q_0_{at}" for at in range(4)])
    table.write(rows, tokens=array.slice(1))
    assert [None if cell is None else list(cell) for cell in table.cells(rows, "tokens")] == [[1, 2], None, [], [3]]
    more = table.insert(policy_version=0, sample_ids=["r_0_0"])
    with pytest.raises(forebay.InputError, match="null"):
        table.write(more, tokens=array.slice(0, 1))


def test_what_an_iterator_raises_is_raised(solver):
    def broken(error):
        yield "q_0_0"
        raise error

    for error in [KeyError("lost"), KeyboardInterrupt()]:
        with pytest.raises(type(error)):
            solver.insert(policy_version=0, sample_ids=broken(error))
    for wrong in [iter(["q_0_0", 7]), 7]:
        with pytest.raises(forebay.InputError, match="sample_ids"):
            solver.insert(policy_version=0, sample_ids=wrong)
    assert solver.counts()["written"] == 0


def test_an_array_of_lists_that_does_not_fit_is_named(store):
    table = store.create_table("lists", {"tokens": pa.list_(pa.int32())})
    for values, named in [
        (pa.array([[1], [2**40]]), "1099511627776 of the array does not fit"),
        (pa.array([["a"], ["b"]]), "tokens"),
        (pa.array([[[1]], [[2]]]), "tokens"),
        (pa.array([[1]]), "1 values for 2 rows"),
        (pa.array([], pa.list_(pa.int32())), "0 values for 2 rows"),
        (pa.chunked_array([], pa.list_(pa.int32())), "0 values for 2 rows"),
    ]:
        with pytest.raises(forebay.InputError, match=named):
            table.insert(policy_version=0, sample_ids=["r_0_0", "r_0_1"], tokens=values)
    assert store.sql("select count(*) as rows from lists").to_pylist() == [{"rows": 0}]
    assert len(table.insert(policy_version=0, sample_ids=[], tokens=pa.array([], pa.list_(pa.int32())))) == 0


def test_a_batch_is_written_from_an_event_loop_too(store, solver):
    async def both():
        rows = await solver.insert_async(pa.table({"answer": ["a", "b"]}), policy_version=0, sample_ids=ids("q"))
        await solver.write_async(rows, pa.table({"reward": [1.0, 2.0]}))
        return rows

    rows = asyncio.run(both())
    assert solver.cells(rows, "answer") == ["a", "b"] and solver.cells(rows, "reward") == [1.0, 2.0]


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        ("float32", np.ma.array([1.5, 7.0], np.float32, mask=[0, 1])),
        ("float32", np.ma.array([1.5, 7.0], mask=[0, 1])),
        ("float32", np.ma.array([1.5, 7.0], ">f4", mask=[0, 1])),
        ("float32", np.ma.array([9, 1.5, 9, 7.0], mask=[0, 0, 1, 1])[1::2]),
        ("float32", [1.5, np.ma.masked]),
        ("int64", np.ma.array([3, 7], mask=[0, 1])),
        ("bool", np.ma.array([True, True], mask=[0, 1])),
        ("utf8", np.ma.array(["a", "b"], object, mask=[0, 1])),
        ("binary", [b"a", np.ma.masked]),
    ],
)
def test_what_is_masked_is_null_where_a_row_has_one_value(store, type_name, values):
    table = store.create_table("t", {"x": type_name})
    rows = table.insert(policy_version=0, sample_ids=ids("q"), x=values)
    first, second = table.cells(rows, "x")
    assert first == values[0] and second is None
    assert store.sql("select count(*) as rows from t where x is null and x_status").to_pylist() == [{"rows": 1}]


def test_a_column_with_nulls_is_written_as_it_was_read(store):
    table = store.create_table("t", {"x": "float32", "copy": "float32", "list": "list<float32>"})
    read = store.create_consumer("read", tables=["t"], kind="task")
    rows = table.insert(policy_version=0, sample_ids=ids("q", 3), x=[0.5, None, 1.5])
    with read.claim(size=3, timeout=0) as claim:
        x = claim["x"]
        claim.finish(copy=x, list=np.ma.array(np.ones((3, 2)), mask=False))
    assert table.cells(rows, "copy") == [0.5, None, 1.5]
    assert [row.tolist() for row in table.cells(rows, "list")] == [[1, 1]] * 3


def test_a_masked_array_does_not_grow_a_cell(solver):
    row = solver.insert(policy_version=0, sample_ids=["q1_0_0"])
    with pytest.raises(forebay.InputError, match="masked"):
        solver.append(row, "response", np.ma.array([1, 2], mask=[0, 1]))


def test_a_next_attempt_takes_the_place_of_the_one_before(store, solver):
    solver.insert(policy_version=0, sample_ids=["q1_0_0"])
    solver.insert(policy_version=0, sample_ids=["q1_0_0"], next_attempt=True)
    assert solver.counts() == {"written": 2, "consumed": 0, "open": 1, "excluded": {"superseded": 1}}
    with pytest.raises(forebay.InputError, match="q2_0_0"):
        solver.insert(policy_version=0, sample_ids=["q2_0_0"], next_attempt=True)


def test_a_row_may_be_left_out_from_the_start(store, solver):
    solver.insert(policy_version=0, sample_ids=ids("q1"), excluded="no answer")
    assert solver.counts() == {"written": 2, "consumed": 0, "open": 0, "excluded": {"no answer": 2}}


def test_a_row_that_comes_too_late_is_kept_where_it_says_so(store, solver):
    store.create_consumer("train", tables=["solver"], kind="trainer", ready=["reward"], staleness=0)
    solver.insert(policy_version=0, sample_ids=["q1_0_0"], reward=[1.0])
    with store.step(rows={"train": 1}) as step:
        [batch.accumulated() for batch in step.micro_batches("train", size=1, timeout=30)]
        step.commit({"solver": 1})
    with pytest.raises(forebay.StateError, match="version"):
        solver.insert(policy_version=0, sample_ids=["q2_0_0"], reward=[1.0])
    solver.insert(policy_version=0, sample_ids=["q2_0_0"], reward=[1.0], late=True)
    assert solver.counts()["excluded"] == {"stale": 1}


def test_a_row_of_a_peer_says_so(store, solver):
    own = store.create_consumer("own", tables=["solver"], kind="trainer", ready=["reward"])
    solver.insert(policy_version=0, sample_ids=["q1_0_0"], reward=[1.0], origin="berlin-3/17")
    shown = store.sql("select origin_peer, origin_round, excluded_reason from solver").to_pylist()
    assert shown == [{"origin_peer": "berlin-3", "origin_round": 17, "excluded_reason": "external"}] and own.open_groups() == []
    for origin in ("berlin-3", "/17", "berlin-3/now"):
        with pytest.raises(forebay.InputError, match=origin):
            solver.insert(policy_version=0, sample_ids=["q2_0_0"], origin=origin)


def test_a_column_whose_name_an_argument_has_is_given_in_a_batch(store):
    table = store.create_table("t", {"origin": "utf8", "late": "bool"})
    rows = table.insert(pa.table({"origin": ["a"], "late": [True]}), policy_version=0, sample_ids=["q_0_0"])
    assert table.cells(rows, "origin") == ["a"] and table.cells(rows, "late") == [True]


def test_rows_are_deleted_by_their_versions(store):
    table = store.create_table("t", {"x": "int32"})
    for version in range(5):
        table.insert(policy_version=version, sample_ids=ids(f"q{version}"), x=[1, 2])
    for named in ({"version": 3}, {"versions_up_to": 1}):
        with pytest.raises(forebay.StateError, match="or by force"):
            table.delete(**named)
    assert table.delete(version=3, force=True) == 2
    assert table.delete(versions_up_to=1, force=True) == 4
    assert store.sql("select distinct policy_version from t order by 1").to_pylist() == [
        {"policy_version": 2},
        {"policy_version": 4},
    ]
    with pytest.raises(forebay.StateError, match="version"):
        table.insert(policy_version=3, sample_ids=["late_0_0"])


def test_all_rows_are_deleted_at_once_and_held_ones_by_force(solver, read):
    solver.insert(policy_version=0, sample_ids=ids("q1"), response=[[1], [2]])
    held = read.claim(size=1, timeout=0)
    with pytest.raises(forebay.StateError):
        solver.delete(all=True)
    assert len(held) == 1 and solver.delete(all=True, force=True) == 2
    for given in ({}, {"version": 1, "all": True}, {"version": 1, "versions_up_to": 2}):
        with pytest.raises(forebay.InputError, match="versions_up_to="):
            solver.delete(**given)


@pytest.mark.parametrize("type_name", ["list<bfloat16>", "tensor<bfloat16, [2]>"])
def test_cells_of_lists_of_bfloat16_are_shown_as_float32(store, type_name):
    table = store.create_table("t", {"x": type_name})
    rows = table.insert(policy_version=0, sample_ids=ids("q", 3), x=[[0.5, -2.0], None, [1.5, 3.0]])
    for found in (table.cells(rows, "x"), asyncio.run(table.cells_async(rows, "x")), table.cells(rows, "x", partial=True)):
        assert [None if row is None else row.tolist() for row in found] == [[0.5, -2.0], None, [1.5, 3.0]]
        assert found[0].dtype == np.float32 and not found[0].flags.writeable


def test_a_list_of_bfloat16_is_shown_while_it_grows(store):
    table = store.create_table("t", {"x": "list<bfloat16>"})
    row = table.insert(policy_version=0, sample_ids=["q_0_0"])
    table.append(row, "x", [0.5, 1.0])
    assert table.cells(row, "x") == [None]
    assert [found.tolist() for found in table.cells(row, "x", partial=True)] == [[0.5, 1.0]]


def test_rows_are_equal_by_the_rows_that_they_are(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q", 3))
    found = solver.find(policy_version=0, sample_ids=ids("q", 3))
    assert rows == found and hash(rows) == hash(found) and {rows: 1}[found] == 1
    assert rows != rows[:2] and rows != rows[::-1] and rows[1] == found[1:2] and rows != ids("q", 3)
    assert len({rows[0], rows[1], found[0]}) == 2
    again = solver.insert(policy_version=0, sample_ids=["q_0_0"], next_attempt=True)
    assert again != rows[0] and again == solver.find(policy_version=0, sample_ids=["q_0_0"])
    checker = store.create_table("checker", {"verdict": "utf8"})
    assert checker.insert(policy_version=0, sample_ids=ids("q", 3)) != rows


def test_rows_are_iterated_one_by_one(solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q", 3))
    assert list(rows) == [rows[0], rows[1], rows[2]] and list(rows[:0]) == [] and rows[1] in rows
    assert isinstance(rows, collections.abc.Iterable)


def test_rows_of_changes_that_are_not_made_are_not_compared(store, solver):
    with store.changes() as changes:
        rows = changes.insert(solver, policy_version=0, sample_ids=["q_0_0"])
        assert rows == rows
        for use in (hash, iter, lambda rows: rows == solver.find(policy_version=0, sample_ids=[])):
            with pytest.raises(forebay.StateError, match="not made"):
                use(rows)
    assert rows == solver.find(policy_version=0, sample_ids=["q_0_0"])


def test_rows_that_are_pickled_say_how_they_travel(solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q"))
    for pickled in (pickle.dumps, copy.copy):
        with pytest.raises(forebay.InputError, match="2 rows of table \"solver\" .* Table.find"):
            pickled(rows)
