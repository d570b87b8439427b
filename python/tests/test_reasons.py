"""Why nothing came, and where nobody answers: what a message says to who has made the usual mistakes."""

import pathlib

import pytest

import forebay
from conftest import begin, ids

SOON = 0.05


def told(call, error=forebay.WaitTimeout) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_rows_of_a_version_to_come(store, solver, train, read):
    begin(solver, "q1", version=3)
    said = told(lambda: store.step(), forebay.StateError)
    assert 'in "solver" 2 rows are of a version that is still to come' in said and "its policy is at 0" in said
    assert "the newest is of 3" in said and "create_policy(" in said
    with store.step(rows={train: 2}) as step:
        said = told(lambda: next(step.micro_batches(train, size=2, timeout=SOON)))
    assert "planned are not ready" in said and "the newest is of 3" in said and "is at 0" in said


def test_why_a_task_waits(store, solver, read):
    assert 'table "solver": it has no rows' in told(lambda: read.claim(size=1, timeout=SOON))
    rows = solver.insert(policy_version=0, sample_ids=ids("q1"), prompt=[[1], [2]])
    assert "2 rows are open, and each lacks a column" in told(lambda: read.claim(size=1, timeout=SOON))
    solver.write(rows, response=[[1], [2]])
    said = told(lambda: read.claim(size=3, exact=True, timeout=SOON))
    assert "2 rows are ready, which is fewer than was asked for" in said
    with read.claim(size=2, timeout=30.0) as batch:
        assert "2 rows are in somebody's hands" in told(lambda: read.claim(size=1, timeout=SOON))
        batch.finish()
    solver.exclude(rows, "spoilt")
    assert "all of its rows are consumed or excluded" in told(lambda: read.claim(size=1, timeout=SOON))


def test_why_a_group_waits(store, solver, train):
    solver.insert(policy_version=0, sample_ids=ids("q1", 1), response=[[1]], reward=[1.0])
    with store.step() as step:
        said = told(lambda: next(step.micro_batches(train, size=2, timeout=SOON)))
    assert "1 row is open, and no group of them is complete" in said, said


def test_where_nobody_answers_is_said_once(tmp_path: pathlib.Path):
    address = f"unix://{tmp_path}/none.sock"
    with pytest.raises(forebay.RetryError) as caught:
        forebay.connect(address, timeout=5.0)
    said = str(caught.value)
    assert address in said and "forebay serve --socket" in said and "No such file" in said
    assert said.count("No such file") == 1 and "Status" not in said and "tonic" not in said and len(said) < 400
    assert caught.value.cause == "Connection" and isinstance(caught.value.__cause__, ConnectionError)


def test_tls_is_told_in_python_s_words():
    said = told(lambda: forebay.connect("grpcs://localhost:1"), forebay.InputError)
    assert 'tls={"authority":' in said
