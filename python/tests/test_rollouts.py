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


def test_a_new_row_says_at_once_what_made_it_and_what_is_trained_on(store, solver):
    rows = solver.insert(
        policy_version=0, sample_ids=ids("q1", 2), version_spans=[[(2, 1), (3, 5)], []], trainable_from=[2, 0],
        response=[[1, 2, 3, 4], [5, 6, 7]],
    )
    said = lambda rows: [(row["version_spans"], row["trainable_from"]) for row in solver.show(rows)]
    assert said(rows) == [([(0, 0), (2, 1), (3, 5)], 2), ([(0, 0)], 0)]
    spans, starts = zip(*said(rows))
    again = solver.insert(policy_version=0, sample_ids=ids("q2", 2), version_spans=spans, trainable_from=starts)
    assert said(again) == said(rows), "as they are shown"
    with store.changes() as changes:
        more = changes.insert(solver, policy_version=0, sample_ids=["q3_0_?"], rollouts=2, version_spans=[[(4, 2)]], trainable_from=4)
    assert said(more) == [([(0, 0), (4, 2)], 4)] * 2


@pytest.mark.parametrize(
    "said, named",
    [
        (dict(version_spans=[[(2, 1)]]), "version_spans has 1 entries for 2 rows"),
        (dict(version_spans=[(2, 1), (2, 1)]), "version_spans is a list with one list of pairs"),
        (dict(version_spans=[[(2, 1)], [(-1, 1)]]), "version_spans is a list with one list of pairs"),
        (dict(version_spans=[[(2, 1)], [(2, 0)]]), "version 0 from token 2 on does not follow on version 0 from token 0"),
        (dict(version_spans=[[], [(3, 1), (2, 2)]]), "version 2 from token 2 on does not follow on version 1 from token 3"),
        (dict(trainable_from=[1]), "trainable_from has 1 entries for 2 rows"),
        (dict(trainable_from="all"), "trainable_from is the number of a token"),
    ],
)
def test_what_is_said_wrongly_of_a_new_row_is_refused_by_its_name_and_nothing_is_inserted(store, solver, said, named):
    with pytest.raises(forebay.InputError, match=named):
        solver.insert(policy_version=0, sample_ids=ids("q1", 2), **said)
    assert solver.counts()["written"] == 0


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
