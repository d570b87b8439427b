"""The program that the package was asked for, line by line: what it says runs as it is written."""

import types

import numpy as np
import pytest

import forebay

pa = pytest.importorskip("pyarrow")


def a_run_at_version_3(path) -> None:
    """A store whose policy stands where the program goes on, and a task for it."""
    with forebay.open(path) as store:
        store.create_policy("solver", version=3)


def test_the_program_runs_as_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a_run_at_version_3("run/store")
    prompts = [np.arange(3, dtype=np.int32)] * 8
    names, tokens = [f"q1_0_{at}" for at in range(8)], [[1, 2, 3], [4]] * 4
    cache, scores = types.SimpleNamespace(claims=[]), None

    store = forebay.open("run/store", durability="logged")
    solver = store.create_table("solver", {"prompt": pa.list_(pa.int32()), "response": pa.list_(pa.int32()),
                                           "logprobs": pa.list_(pa.float32()), "reward": pa.float32()})  # fmt: skip
    train = store.create_consumer(
        "train", tables=["solver"], kind="trainer", ready=["response", "reward"], group=("input_id", 8)
    )
    store.create_consumer("reward", tables=["solver"], kind="task", ready=["response"])
    rows = solver.insert(policy_version=3, sample_ids=names, prompt=prompts)
    solver.write(rows, response=tokens, logprobs=[[0.5] * len(row) for row in tokens])
    with store.consumer("reward").claim(size=64) as claim:
        scores = np.array([1.0, 0.0] * (len(claim) // 2))
        claim.finish(reward=scores)
    with store.step() as step:
        for batch in step.micro_batches(train, size=16, timeout=30.0):
            assert [row.tolist() for row in batch["response"]] == tokens
            assert batch.arrow().num_rows == 8 and batch.copied_bytes >= 0
            try:
                import torch
            except ImportError:
                pass
            else:
                x = batch.torch("response", device="cuda" if torch.cuda.is_available() else "cpu", pad=0)
                assert tuple(x.shape) == (8, 3)
            batch.accumulated(cache)
        step.commit({"solver": 4})
    assert [record["rows"] for record in cache.claims] == [[[3, name] for name in names]]
    answer = store.sql("select policy_version, avg(reward) from solver group by 1")
    assert answer.to_pylist() == [{"policy_version": 3, "avg(solver.reward)": 0.5}]
    store.close()


def test_a_cache_lists_what_is_accumulated_and_nothing_else(store, solver, train):
    from conftest import begin, ids

    begin(solver, "q1", "q2")
    cache = []
    with store.step() as step:
        batches = step.micro_batches(train, size=2, timeout=30.0)
        next(batches).accumulated(cache)
        second = next(batches)
        for wrong in ("a cache", object(), types.SimpleNamespace(claims=None)):
            with pytest.raises(forebay.InputError, match="list of `claims`"):
                second.accumulated(wrong)
        assert second.is_held, "nothing was said of it"
        second.release()
        with pytest.raises(forebay.StateError, match="released"):
            second.accumulated(cache)
    assert [(record["consumer"], record["step"], record["rows"]) for record in cache] == [
        ("train", 1, [[0, name] for name in ids("q1")])
    ]


def test_a_commit_that_cannot_succeed_brings_nothing(store, path, solver, train):
    from conftest import begin

    begin(solver, "q1")
    with store.step() as step:
        with pytest.raises(forebay.StateError, match="solver"):
            step.commit({"solver": {"w": bytes(1 << 20)}})  # nothing is accumulated
        assert not list((path / "objects").glob("w*")), "its state was not brought"
        for batch in step.micro_batches(train, size=2, timeout=30.0):
            batch.accumulated()
        with pytest.raises(forebay.InputError, match="version 0, so this step makes it 1 and not 7"):
            step.commit({"solver": 7})
        assert step.commit({"solver": {"w": b"state"}}) == 2
    assert store.policy_state("solver") == {"w": b"state"}
