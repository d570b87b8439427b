"""The record of a step, and who is told of it."""

import sys

import pytest

import forebay
from conftest import begin, ids

NAMES = {
    "rows", "tokens", "micro_batches", "staleness_mean", "staleness_max", "seconds", "seconds_waited", "copied_bytes",
    "excluded",
}  # fmt: skip


def train_on_everything(step, train, **options):
    for batch in step.micro_batches(train, size=2, timeout=60, **options):
        batch["response"], batch["reward"]
        batch.accumulated()


def test_a_committed_step_is_logged_by_its_number(store, solver, train):
    logged = []
    for version in range(2):
        begin(solver, "q1", "q2", version=version)
        with store.step(log=lambda record, step: logged.append((step, record))) as step:
            train_on_everything(step, train)
            assert len(logged) == version
            step.commit({"solver": version + 1})
    assert [step for step, _ in logged] == [1, 2]
    for _, record in logged:
        assert {name.removeprefix("forebay/") for name in record} == NAMES
        assert record["forebay/rows"] == 4 and record["forebay/micro_batches"] == 2
        assert record["forebay/copied_bytes"] == 4 * 4 and record["forebay/excluded"] == 0
        assert record["forebay/seconds"] >= record["forebay/seconds_waited"] >= 0


def test_a_step_that_is_given_up_is_not_logged(store, solver, train):
    begin(solver, "q1")
    logged = []
    with store.step(log=lambda *told: logged.append(told)) as step:
        train_on_everything(step, train)
        assert step.metrics()["forebay/rows"] == 2
    assert logged == []


@pytest.mark.parametrize("options", [{}, {"tokens": ("response", 100)}], ids=["role", "counted column"])
def test_tokens_are_lengths_of_the_counted_column_or_of_the_role(store, options):
    table = store.create_table(
        "t", {"response": "list<int32>", "reward": "float32"}, roles={} if options else {"response": "input_ids"}
    )
    train = store.create_consumer("train", tables=["t"], kind="trainer", ready=["response"])
    table.insert(policy_version=0, sample_ids=ids("q", 3), response=[[1] * 5, [2] * 6, []])
    with store.step(rows={train: 3}) as step:
        for batch in step.micro_batches(train, size=2, exact=False, timeout=60, **options):
            batch.accumulated()
        assert step.metrics()["forebay/tokens"] == 11


def test_what_comes_again_counts_once(store, solver, train):
    begin(solver, "q1")
    with store.step() as step:
        batches = step.micro_batches(train, size=2, timeout=60)
        next(batches).release()
        next(batches).accumulated()
        assert step.metrics()["forebay/rows"] == 2
        step.drop_cache("solver")
        assert step.metrics()["forebay/rows"] == 0
        next(step.micro_batches(train, size=2, timeout=60)).accumulated()
        assert step.metrics()["forebay/rows"] == 2


@pytest.mark.parametrize("split", ["same", "balanced"])
def test_rows_of_a_gang_count_once(store, solver, train, split):
    begin(solver, "q1", "q2")
    with store.step() as step:
        ranks = [
            step.micro_batches(train, size=2, timeout=60, rank=rank, world=2, split=split) for rank in range(2)
        ]
        for batches in zip(*ranks):
            [batch.accumulated() for batch in batches]
        record = step.metrics()
        assert (record["forebay/rows"], record["forebay/micro_batches"]) == (4, 2)
        step.commit({"solver": 1})


def test_old_rows_and_rows_that_were_left_out_are_told(store, solver):
    train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["response"], staleness=2)
    solver.insert(policy_version=0, sample_ids=ids("q1", 1), response=[[1]])
    for version in range(2):
        solver.insert(policy_version=version, sample_ids=["a_0_0"], response=[[1]])
        with store.step(rows={train: 1}) as step:
            for batch in step.micro_batches(train, size=1, timeout=60):
                batch.accumulated()
            step.commit({"solver": version + 1})
    poor = solver.insert(policy_version=2, sample_ids=ids("q2"), response=[[1], [2]])
    with store.step(rows={train: 2}) as step:
        solver.exclude(poor[:1], "truncated")
        for batch in step.micro_batches(train, size=4, timeout=60):
            batch.accumulated()
        record = step.metrics()
        step.commit({"solver": 3})
    assert record["forebay/excluded"] == record["forebay/excluded/truncated"] == 1
    assert record["forebay/rows"] == 2 and record["forebay/staleness_max"] >= 1
    assert 0 < record["forebay/staleness_mean"] <= record["forebay/staleness_max"]


def test_a_logger_that_fails_does_not_make_the_commit_look_as_if_it_had(store, solver, train, monkeypatch):
    begin(solver, "q1")
    failures = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: failures.append(failure.exc_value))

    def log(record, step):
        raise ZeroDivisionError

    with store.step(log=log) as step:
        train_on_everything(step, train)
        assert step.commit({"solver": 1}) == 2
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
