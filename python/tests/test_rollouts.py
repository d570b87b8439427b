"""Rollouts: replicas of a row, the versions that made it, and the part of it that is trained on."""

import numpy as np
import pytest

import forebay
from conftest import ids

pytestmark = pytest.mark.tcp


def test_a_row_has_as_many_replicas_as_rollouts_and_they_share_its_cells(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=["q1_0_0", "q2_0_?"], rollouts=3, prompt=[[1, 2], [3]], agent="a")
    shown = solver.show(rows)
    assert [row["sample_id"] for row in shown] == ids("q1", 3) + ids("q2", 3)
    assert {row["agent"] for row in shown} == {"a"}
    assert [list(prompt) for prompt in solver.cells(rows, "prompt")] == [[1, 2]] * 3 + [[3]] * 3
    solver.write(rows, reward=np.arange(6))
    assert solver.cells(rows[2], "reward") == [2.0]
    with store.changes() as changes:
        more = changes.insert(solver, policy_version=0, sample_ids=["q2_0_?"], rollouts=2)
        assert len(more) == 2
    assert [row["sample_id"] for row in solver.show(more)] == ["q2_0_3", "q2_0_4"]


def test_a_token_makes_all_replicas_safe_to_repeat(store, solver):
    insert = lambda: solver.insert(policy_version=0, sample_ids=["q1_0_?"], rollouts=4, idempotency_tokens=[7])
    first, second = insert(), insert()
    samples = lambda rows: [row["sample_id"] for row in solver.show(rows)]
    assert samples(first) == samples(second) == ids("q1", 4) and solver.counts()["written"] == 4


@pytest.mark.parametrize("rollouts", [0, -1, 1.5, "2", None])
def test_a_number_of_rollouts_that_is_none_is_refused(store, solver, rollouts):
    with pytest.raises(forebay.InputError, match="rollouts is a whole number of rows a sample id, 1 or more"):
        solver.insert(policy_version=0, sample_ids=["q1_0_0"], rollouts=rollouts)


def test_a_row_says_which_version_made_which_of_its_tokens(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1", 2), response=[[1, 2, 3, 4], [5, 6, 7]])
    solver.span(rows, start=[2, 1], version=1)
    solver.span(rows, start=3, version=5)
    solver.span(rows, start=3, version=5)
    assert [row["version_spans"] for row in solver.show(rows)] == [[(0, 0), (2, 1), (3, 5)], [(0, 0), (1, 1), (3, 5)]]
    for start, version, named in [(3, 6, "version 6 from token 3"), (9, 5, "version 5 from token 9")]:
        with pytest.raises(forebay.InputError, match=named):
            solver.span(rows, start=start, version=version)
    (first,) = store.sql("select version_spans from solver where sample_id = 'q1_0_0'").to_pylist()
    assert [span["version"] for span in first["version_spans"]] == [0, 1, 5]


def test_only_tokens_from_a_start_on_are_trained_on(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1", 2), response=[[1, 2, 3, 4], [5, 6, 7]])
    solver.trainable_from(rows, np.array([2, 0]))
    solver.trainable_from(rows[1], 1)
    assert [row["trainable_from"] for row in solver.show(rows)] == [2, 1]
    with pytest.raises(forebay.InputError, match="what is masked stays masked"):
        solver.trainable_from(rows, 1)
    assert [row["trainable_from"] for row in solver.show(rows)] == [2, 1]


def test_a_start_that_is_none_is_refused(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1", 2))
    for start, named in [(-1, "start is the number of a token"), ("2", "start is"), ([1], "1 entries for 2 rows"), ([1, "x"], "start is")]:
        with pytest.raises(forebay.InputError, match=named):
            solver.trainable_from(rows, start)
        with pytest.raises(forebay.InputError, match=named):
            solver.span(rows, start=start, version=1)
