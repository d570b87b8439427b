"""Arguments of another kind: each is refused by its name, as an error of this package. Mappings are taken of any kind."""

import asyncio
import collections
import types

import pytest

import forebay
from conftest import SOLVER, begin, ids


def refused(call, *said):
    with pytest.raises(forebay.InputError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    for text in said:
        assert text in str(caught.value), str(caught.value)


def test_what_a_store_is_told(store, solver):
    for call, *said in [
        (lambda: store.table(5), "name is a text", "not 5"),
        (lambda: store.create_table(b"x", {}), "name is", "b'x'"),
        (lambda: store.create_table("x", ["a"]), "columns is a dict", "['a']"),
        (lambda: store.create_table("x", {1: "int32"}), "the name of a column is a text", "not 1"),
        (lambda: store.create_table("x", {"a": 5}), "5 is no type"),
        (lambda: store.create_table("x", {"a": "int32"}, roles=["a"]), "roles is a dict", "['a']"),
        (lambda: store.create_table("x", {"a": "int32"}, lazy="a"), "lazy is a list", "'a'"),
        (lambda: store.create_consumer("x", tables="solver", kind="task"), "tables is a list", "'solver'"),
        (lambda: store.create_consumer("x", tables=["solver"], kind=1), "kind is", "not 1"),
        (lambda: store.consumer(None), "name is a text", "None"),
        (lambda: store.create_policy("x", version=-1), "version is a whole number", "-1"),
        (lambda: store.create_policy("x", state_keys="w"), "state_keys is a list", "'w'"),
        (lambda: store.policy_version(1), "name is", "not 1"),
        (lambda: store.policy_state(1), "name is", "not 1"),
        (lambda: store.step(groups=["q1"]), "groups is a dict", "['q1']"),
        (lambda: store.step(groups={"train": "q1"}), "groups is a list of keys", "'q1'"),
        (lambda: store.step(groups={"train": [1]}), "groups is a list of keys", "[1]"),
        (lambda: store.step(rows=[2]), "rows is a dict", "[2]"),
        (lambda: store.step(rows={"train": -1}), "rows is a number", "-1"),
        (lambda: store.step(log="wandb"), "log is a function", "'wandb'"),
        (lambda: store.open_step("1"), "number is", "'1'"),
        (lambda: store.rewind("1"), "step is the number", "'1'"),
        (lambda: store.rewind(0, exclude="yes"), "exclude is True or False", "'yes'"),
        (lambda: store.sql(None), "statement is a text in SQL", "None"),
        (lambda: store.backup(5), "to is a directory", "not 5"),
        (lambda: forebay.connect(7070), "address is", "7070"),
        (lambda: forebay.open(5), "path is a directory", "not 5"),
    ]:
        refused(call, *said)


def test_what_a_table_is_told(store, solver):
    insert = lambda **given: solver.insert(**{"policy_version": 0, "sample_ids": ["q_0_0"], **given})
    rows = insert(prompt=[[1]])
    for call, *said in [
        (lambda: insert(policy_version=-1), "policy_version is a whole number", "-1"),
        (lambda: insert(policy_version="0"), "policy_version", "'0'"),
        (lambda: insert(policy_version=1.5), "policy_version", "1.5"),
        (lambda: insert(policy_version=2**64), "policy_version", "18446744073709551616"),
        (lambda: insert(sample_ids=7), "sample_ids is a list", "7"),
        (lambda: insert(sample_ids=[7]), "sample_ids is a list", "[7]"),
        (lambda: insert(purpose=1), "purpose is a text", "1"),
        (lambda: insert(agent=1), "agent is a text", "1"),
        (lambda: insert(parents="q"), "parents is a list", "'q'"),
        (lambda: insert(weights=1), "weights is a text", "1"),
        (lambda: insert(idempotency_tokens=[-1]), "idempotency_tokens is a list", "[-1]"),
        (lambda: solver.write(["q_0_0"], reward=[1.0]), "rows is what insert() or find() gave", "['q_0_0']"),
        (lambda: solver.append(rows, 1, [1]), "column is the name", "1"),
        (lambda: solver.exclude(rows, 1), "reason is a text", "1"),
        (lambda: solver.find(policy_version=0, sample_ids="q_0_0"), "sample_ids is a list", "'q_0_0'"),
        (lambda: solver.cells(rows, None), "column is the name", "None"),
        (lambda: solver.delete(rows, force="yes"), "force is True or False", "'yes'"),
        (lambda: solver.delete("q_0_0"), "rows is what insert() or find() gave", "'q_0_0'"),
        (lambda: solver.delete(version="0"), "version is a whole number", "'0'"),
        (lambda: solver.delete(versions_up_to=-1), "versions_up_to is a whole number", "-1"),
        (lambda: solver.delete(all="yes"), "all is True or False", "'yes'"),
        (lambda: insert(next_attempt="yes"), "next_attempt is True or False", "'yes'"),
        (lambda: insert(late="yes"), "late is True or False", "'yes'"),
        (lambda: insert(excluded=True), "excluded is a text", "True"),
        (lambda: insert(origin=("berlin", 1)), "origin is a text", "('berlin', 1)"),
        (lambda: solver.show("q_0_0"), "rows is what insert() or find() gave", "'q_0_0'"),
        (lambda: solver.get(policy_version="0", sample_id="q_0_0"), "policy_version is a whole number", "'0'"),
        (lambda: solver.span(rows, start=0, version="1"), "version is a whole number", "'1'"),
        (lambda: solver.add_column(1, "int32"), "name is a text", "not 1"),
        (lambda: solver.add_column("x", 1), "1 is no type"),
        (lambda: solver.add_column("x", "int32", lazy="yes"), "lazy is True or False", "'yes'"),
        (lambda: solver.rename_column(1, "x"), "column is the name", "not 1"),
        (lambda: solver.rename_column("reward", None), "name is a text", "None"),
        (lambda: solver.retire_column(b"reward"), "column is the name", "b'reward'"),
        (lambda: forebay.Rows.concat(5), "parts is a list of rows", "not 5"),
        (lambda: forebay.Rows.concat(["q_0_0"]), "parts is a list of rows", "['q_0_0']"),
        (lambda: rows["q_0_0"], "what stands in [] is the place of a row", "'q_0_0'"),
        (lambda: asyncio.run(awaited(solver.write_async, "q_0_0")), "rows is what insert() or find() gave", "'q_0_0'"),
    ]:
        refused(call, *said)
    assert list(solver.columns) == list(SOLVER)


async def awaited(call, *arguments):
    return await call(*arguments)


def test_what_consumers_and_steps_are_told(store, solver, train, read):
    begin(solver, "q1")
    with store.step() as step:
        for call, *said in [
            (lambda: read.claim(size="1"), "size is a whole number", "'1'"),
            (lambda: read.claim(size=-1), "size is a whole number", "-1"),
            (lambda: read.claim(tokens="response"), "tokens is (column, number", "'response'"),
            (lambda: read.claim(size=1, exact="no"), "exact is True or False", "'no'"),
            (lambda: read.claim(size=1, owner=1), "owner is a text", "1"),
            (lambda: train.expect_group("solver", "q1", policy_version=0, members=-2), "members is", "-2"),
            (lambda: train.close_group("solver", 1, policy_version=0), "key is the key", "1"),
            (lambda: step.micro_batches(5, size=1), "consumer is a consumer or", "5"),
            (lambda: step.micro_batches(train, size=1, rank="0", world=1), "rank is", "'0'"),
            (lambda: step.micro_batches(train, size=1, rank=0, world=-1), "world is", "-1"),
            (lambda: step.micro_batches(train, size=1, rank=0, world=1, gang=1), "gang is a text", "not 1"),
            (lambda: step.micro_batches(train, size=1, rank=0, world=1, split=2), "split is", '"balanced"', "not 2"),
            (lambda: step.micro_batches(train, size=1, rank=0, world=1, split="even"), 'split="even"', '"balanced"'),
            (lambda: step.micro_batches(train, size=1, split="even"), 'split="even"', '"same"'),
            (lambda: step.micro_batches(train, size=1, rank=0), "world=", "go together"),
            (lambda: step.drop_cache(1), "table is", "1"),
            (lambda: step.commit(["solver"]), "updates is a dict", "['solver']"),
            (lambda: step.commit({1: None}), "a policy to commit is the name of one", "1"),
            (lambda: step.commit({"solver": {1: b""}}), "the key of an object is a text", "1"),
        ]:
            refused(call, *said)
    with read.claim(size=1, timeout=30.0) as batch:
        refused(lambda: batch[0], "the name of a column", "0")
        refused(lambda: batch.arrow("reward"), "columns is a list", "'reward'")
        refused(lambda: batch.arrow(in_place="yes"), "in_place is True or False", "'yes'")
        refused(lambda: batch.torch("response", pad="0"), "pad is a number", "'0'")
        refused(lambda: batch.torch("response", layout=2), 'layout is "padded"', "not 2")
        refused(lambda: batch.torch("response", layout="loose"), "layout is 'padded'", "'loose'")
        refused(lambda: batch.extend("1h"), "seconds is a number of seconds", "'1h'")
        refused(lambda: batch.extend(-1), "seconds is a number of seconds", "-1")


def test_what_an_operator_s_calls_are_told(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=["q_0_0"])
    admin = store.admin
    for call, *said in [
        (lambda: admin.peek(5), "table is the name", "not 5"),
        (lambda: admin.peek("solver", columns="reward"), "columns is a list", "'reward'"),
        (lambda: admin.peek("solver", rows="1"), "rows is a whole number", "'1'"),
        (lambda: admin.peek("solver", rows=-1), "rows is a whole number", "-1"),
        (lambda: admin.peek("solver", newest="yes"), "newest is True or False", "'yes'"),
        (lambda: admin.peek("solver", ready_for=1), "ready_for is", "not 1"),
        (lambda: admin.evict(["q_0_0"], "spoilt"), "rows is what insert() or find() gave", "['q_0_0']"),
        (lambda: admin.evict(rows, None), "reason is a text", "None"),
        (lambda: admin.set_budgets(disk_bytes_max="1GiB"), "disk_bytes_max is a number of bytes", "'1GiB'"),
        (lambda: admin.set_budgets(disk=1), '"disk"', "disk_bytes_max"),
        (lambda: admin.set_retention(versions_kept="2"), "versions_kept is a whole number", "'2'"),
        (lambda: admin.set_retention(versions_kept=-2), "versions_kept is a whole number", "-2"),
        (lambda: admin.set_retention(consumed_kept="1h"), "consumed_kept is a number of seconds", "'1h'"),
        (lambda: admin.backup(5), "to is a directory", "5"),
        (lambda: admin.backup("x", set_objects=1), "set_objects is True or False", "1"),
        (lambda: admin.backup("x", progress="yes"), "progress is a function", "'yes'"),
        (lambda: admin.verify(progress=1), "progress is a function", "1"),
    ]:
        refused(call, *said)


def test_what_objects_are_told(store):
    numpy = pytest.importorskip("numpy")
    from forebay.objects import TensorSpec

    objects, tensors = store.objects, {"w": numpy.zeros(2, "float32")}
    objects.set("w", tensors)
    held = objects.get("w")
    for call, *said in [
        (lambda: objects.set(5, tensors), "key is a text", "not 5"),
        (lambda: objects.set("w", tensors, version="2"), "version is a whole number", "'2'"),
        (lambda: objects.set("w", tensors, expected=1.5), "expected is a whole number", "1.5"),
        (lambda: objects.set("w", tensors, metadata=["step"]), "metadata is a dict", "['step']"),
        (lambda: objects.set("w", tensors, metadata={"step": 1}), "metadata is a dict", "{'step': 1}"),
        (lambda: objects.set("w", [1]), "a mapping of names", "list"),
        (lambda: objects.get(5), "key is a text", "not 5"),
        (lambda: objects.get("w", "1"), "version is a whole number", "'1'"),
        (lambda: objects.get("w", tier=1), "tier is", "not 1"),
        (lambda: objects.get("w", tier="gpu"), "tier is", "gpu", "host"),
        (lambda: objects.get("w", at_least=2, timeout="1"), "timeout is a number of seconds", "'1'"),
        (lambda: objects.get("w", at_least=2, timeout=-1), "timeout is", "-1"),
        (lambda: objects.get("w", at_least=2, timeout=float("nan")), "timeout is a number of seconds", "nan"),
        (lambda: objects.get_together("w"), "keys is a list", "'w'"),
        (lambda: objects.get_many("w"), "keys is a list", "'w'"),
        (lambda: objects.get_many(5), "keys is a list", "not 5"),
        (lambda: objects.get_many([["w"]]), "keys are texts", "[['w']]"),
        (lambda: objects.receive_many(["w"], timeout="1"), "timeout is a number of seconds", "'1'"),
        (lambda: objects.receive_many(["w"], timeout=-1), "timeout is a number of seconds", "-1"),
        (lambda: objects.delete_many(5), "versions is a list of pairs", "not 5"),
        (lambda: held.rows("w", "0", 1), "start is a whole number", "'0'"),
        (lambda: held.rows("w", 0, None), "end is a whole number", "None"),
        (lambda: held.rows("w", 1, 0), "rows 1 to 0"),
        (lambda: objects.begin("w", {"w": TensorSpec("F32", 5, "weights")}), "has the shape 5", "whole numbers"),
        (lambda: objects.begin("w", {"w": TensorSpec("F32", (n for n in (2, -1)), "weights")}), "(2, -1)", "0 or more"),
        (lambda: objects.receive(5, timeout=0), "key is a text", "not 5"),
        (lambda: objects.commit_together(["w"]), "fillings is a list of what begin() gave", "['w']"),
        (lambda: objects.list(5), "key is a text", "not 5"),
        (lambda: objects.delete("w", "1"), "version is a whole number", "'1'"),
        (lambda: objects.delete("w", None), "version is", "None"),
        (lambda: objects.spill(5), "key is a text", "not 5"),
        (lambda: objects.demote("w", -1), "version=-1", "0 or more"),
        (lambda: objects.exchange(5, "w"), "out is the key", "5"),
        (lambda: objects.exchange("w", ("w", "1")), "version is a whole number", "'1'"),
    ]:
        refused(call, *said)


def test_a_tensor_s_type_is_read_however_it_is_spaced(store):
    table = store.create_table("images", {"a": "tensor<float32,[2,3]>", "b": "tensor<float32, [2, 3]>"})
    assert set(table.columns.values()) == {"tensor<float32, [2, 3]>"}


def test_a_final_cell_is_named_by_its_sample(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q9"), reward=[1.0, 0.0])
    with pytest.raises(forebay.StateError, match=r'"reward" of row "q9_0_1" \(version 0\) is final'):
        solver.write(rows, reward=[1.0, 2.0])


def test_a_step_that_is_open_says_for_how_long(store, solver, train):
    begin(solver, "q1")
    with store.step():
        with pytest.raises(forebay.StateError, match=r"step 1 is open, begun \d+\.\d s ago"):
            store.step(rows={train: 1})


def test_the_version_is_that_of_the_package():
    import importlib.metadata

    assert forebay.__version__ == importlib.metadata.version("forebay")


@pytest.mark.parametrize("mapping", [types.MappingProxyType, collections.UserDict, collections.OrderedDict])
def test_a_mapping_need_not_be_a_dict(store, mapping):
    columns, roles = {"tokens": "list<int32>", "reward": "float32"}, {"tokens": "input_ids", "reward": "reward"}
    table = store.create_table("t", mapping(columns), roles=mapping(roles))
    assert table.columns == columns
    train = store.create_consumer("train", tables=["t"], kind="trainer", ready=["reward"], group=("input_id", 2))
    for updates in ({"t": mapping({"t.weights": b"new"})}, mapping({"t": (2, mapping({"t.weights": b"newer"}))})):
        version = store.policy_version("t")
        table.insert(policy_version=version, sample_ids=ids(f"q{version}"), reward=[1.0, 2.0])
        plan = {"groups": mapping({train: [f"q{version}"]})} if version else {"rows": mapping({"train": 2})}
        with store.step(**plan) as step:
            [batch.accumulated() for batch in step.micro_batches(train, size=2, timeout=30)]
            step.commit(updates)
    assert store.policy_state("t") == {"t.weights": b"newer"}


@pytest.mark.parametrize("name", ["authorty", 5])
def test_certificates_may_be_in_any_mapping(name):
    wrong = types.MappingProxyType({name: ""})
    refused(lambda: forebay.connect("grpcs://host:1", tls=wrong), "a name in tls is", f"not {name!r}")
