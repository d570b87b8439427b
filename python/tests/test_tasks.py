"""Tasks: a claim is finished with what it wrote, or goes back."""

import threading

import numpy as np
import pytest

import forebay
from conftest import ids


@pytest.fixture
def reward(store, solver):
    return store.create_consumer("reward", tables=["solver"], kind="task", ready=["response"])


@pytest.fixture
def rows(solver):
    return solver.insert(policy_version=0, sample_ids=ids("q1", 4), response=[[1], [2, 2], [3], [4]])


def test_a_claim_is_finished_with_its_columns_in_one_record(store, solver, rows, reward):
    with store.consumer("reward").claim(size=64, timeout=0) as claim:
        scores = np.array([row.sum() for row in claim["response"]], np.float32)
        claim.finish(reward=scores)
    assert store.sql("select reward from solver order by sample_id").arrow()["reward"].to_pylist() == [1, 4, 3, 4]
    with pytest.raises(forebay.WaitTimeout):
        reward.claim(size=64, timeout=0)
    with pytest.raises(forebay.StateError, match="claim again"):
        claim.finish(reward=scores)


def test_a_claim_that_is_not_finished_goes_back(rows, reward):
    with pytest.raises(ZeroDivisionError):
        with reward.claim(size=4, timeout=0):
            1 // 0
    with reward.claim(size=4, timeout=0) as claim:
        assert len(claim) == 4
    claim = reward.claim(size=3, timeout=0)
    del claim
    claim = reward.claim(size=3, timeout=0)
    claim.release()
    assert len(reward.claim(size=4, timeout=0)) == 4


def test_two_holders_never_have_the_same_row(rows, reward):
    first, second = reward.claim(size=2, timeout=0), reward.claim(size=64, timeout=0)
    assert not set(first.sample_ids) & set(second.sample_ids) and len(first) == len(second) == 2


def test_a_wrong_column_leaves_the_claim_as_it_was(rows, reward):
    claim = reward.claim(size=4, timeout=0)
    for columns, named in [
        ({"rewrd": [1.0] * 4}, "reward"),
        ({"reward": [1.0]}, "1 values for 4 rows"),
        ({"reward": ["x"] * 4}, "'x'"),
    ]:
        with pytest.raises(forebay.InputError, match=named):
            claim.finish(**columns)
    claim.finish(reward=[0.0] * 4)


def test_columns_that_are_not_there_are_named(rows, reward):
    with reward.claim(size=1, timeout=0) as claim:
        with pytest.raises(forebay.InputError, match='did you mean "response"'):
            claim["reponse"]
        with pytest.raises(forebay.InputError, match="batch.arrow"):
            claim["created_at"]
        assert claim.arrow(["created_at", "state"]).num_columns == 2
        assert claim["prompt"] == [None] and claim["reward"].mask.tolist() == [True]


def test_rows_of_a_claim_can_be_written_beside_it(solver, rows, reward):
    with reward.claim(size=2, timeout=0) as claim:
        solver.write(claim.rows, answer=["a", "b"])
        assert claim["answer"] == ["a", "b"]


def test_a_trainer_is_claimed_in_a_step_only(store, solver):
    train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["reward"])
    with pytest.raises(forebay.StateError, match="begin a step"):
        train.claim(size=1, timeout=0)


def test_groups_are_told_what_to_expect(store, solver):
    judge = store.create_consumer("judge", tables=["solver"], kind="task", ready=["reward"], group=("input_id", 8))
    solver.insert(policy_version=0, sample_ids=ids("q1"), reward=[1.0, 2.0])
    judge.expect_group("solver", "q1", policy_version=0, members=2)
    first = judge.claim(size=8, timeout=0)
    solver.insert(policy_version=0, sample_ids=ids("q2"), reward=[1.0, 2.0])
    judge.close_group("solver", "q2", policy_version=0)
    second = judge.claim(size=8, timeout=0)
    assert (first.sample_ids, second.sample_ids) == (ids("q1"), ids("q2"))
    turns = store.create_consumer(
        "turns", tables=["solver"], kind="task", trajectories=("input_id", 1), member_fails="exclude"
    )
    solver.insert(policy_version=0, sample_ids=["q3_0_0", "q3_1_0"])
    turns.close_trajectory("solver", "q3", 0, policy_version=0)
    assert turns.claim(size=8, timeout=0).sample_ids == ["q3_0_0", "q3_1_0"]


def test_who_waits_is_woken_by_the_row_that_comes(solver, reward):
    got = []
    waiting = threading.Thread(target=lambda: got.append(reward.claim(size=1, timeout=60).sample_ids))
    waiting.start()
    solver.insert(policy_version=0, sample_ids=["q1_0_0"], response=[[1]])
    waiting.join()
    assert got == [["q1_0_0"]]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "trainee"}, "trainee"),
        ({"tables": ["slover"]}, "solver"),
        ({"ready": ["rewad"]}, "reward"),
        ({"grup": 1}, "grup"),
        ({"group": ("input", 2)}, "input_id_turn"),
        ({"group": 8}, "8"),
        ({"group": ("input_id", 2), "trajectories": ("input_id", 2)}, "one of the two"),
        ({"group": ("input_id", 2), "member_fails": "panic"}, "panic"),
        ({"only": [("reward", "=", 1.0)]}, "'='|\"=\""),
        ({"purposes": ["trian"]}, "trian"),
        ({"origins": "mine"}, "mine"),
        ({"rate_limiter": (1.0, 2)}, "samples_per_insert"),
    ],
)
def test_a_wrong_declaration_is_named(store, solver, options, named):
    with pytest.raises(forebay.InputError, match=named):
        store.create_consumer("c", **{"tables": ["solver"], "kind": "task", **options})


def test_a_consumer_takes_what_its_declaration_says(store, solver):
    best = store.create_consumer(
        "best",
        tables=["solver"],
        kind="task",
        ready=["reward"],
        only=[("reward", ">=", 0.5)],
        priority="reward",
        purposes=["eval"],
        origins="own",
    )
    solver.insert(policy_version=0, sample_ids=ids("q", 4), purpose="eval", reward=[0.1, 0.6, 0.9, 0.7])
    solver.insert(policy_version=0, sample_ids=["t_0_0"], reward=[1.0])
    first, rest = best.claim(size=1, timeout=0), best.claim(size=9, timeout=0)
    assert (first.sample_ids, rest.sample_ids) == (["q_0_2"], ["q_0_1", "q_0_3"])
    assert store.consumers() == ["best"]


def test_a_rate_limiter_holds_inserts_back_with_a_typed_error(store, solver):
    store.create_consumer("slow", tables=["solver"], kind="task", rate_limiter=(1.0, 1, 1.0))
    with pytest.raises(forebay.RetryError, match="slow"):
        for number in range(9):
            solver.insert(policy_version=0, sample_ids=[f"q{number}_0_0"], timeout=0)


def test_a_task_may_hold_its_rows_longer_than_a_lease(store, rows, reward):
    with reward.claim(size=4, timeout=0) as claim:
        before = store.sql("select extract(epoch from deadline) as at from system.claims").to_pylist()[0]["at"]
        until = claim.extend(3600)
        after = store.sql("select extract(epoch from deadline) as at from system.claims").to_pylist()[0]["at"]
        assert after == pytest.approx(until) and until > before + 3000
        assert claim.extend(1) == until, "it is held no shorter than it is already"
        claim.finish(reward=[0.0] * 4)
    with pytest.raises(forebay.StateError, match="claim again"):
        claim.extend(1)
