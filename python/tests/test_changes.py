"""Changes over several tables: made together when their block ends, or not at all."""

import asyncio
import threading

import numpy as np
import pyarrow as pa
import pytest

import forebay
from conftest import ids

pytestmark = pytest.mark.tcp


@pytest.fixture
def checker(store):
    return store.create_table("checker", {"verdict": "utf8"})


def test_what_a_block_says_is_made_when_it_ends_and_its_rows_can_be_used(store, solver, checker):
    old = solver.insert(policy_version=0, sample_ids=["q0_0_0"])
    with store.changes() as changes:
        asked = changes.insert(solver, policy_version=0, sample_ids=ids("q1"), prompt=[[1], np.array([2, 3], np.int32)])
        verdicts = pa.table({"verdict": ["yes"]})
        judged = changes.insert("checker", verdicts, policy_version=0, sample_ids=["q1_1_0"], parents=["solver/q1_0_0"])
        changes.write(old, reward=[0.5])
        assert solver.counts()["written"] == 1 and checker.counts()["written"] == 0
        assert (len(asked), len(judged), asked.table, judged.table) == (2, 1, "solver", "checker")
    solver.write(asked[1], reward=[1.0])
    assert [list(cell) for cell in solver.cells(asked, "prompt")] == [[1], [2, 3]]
    assert solver.cells(forebay.Rows.concat([old, asked]), "reward") == [0.5, None, 1.0]
    assert checker.cells(judged, "verdict") == ["yes"] and checker.show(judged)[0]["parent"] == "solver/q1_0_0"
    assert solver.show(asked[0])[0]["sample_id"] == "q1_0_0"


def test_a_block_that_raises_changes_nothing(store, solver, checker):
    with pytest.raises(KeyError), store.changes() as changes:
        rows = changes.insert(solver, policy_version=0, sample_ids=ids("q1"))
        raise KeyError("oops")
    assert solver.counts()["written"] == 0
    with pytest.raises(forebay.StateError, match=r"2 rows of table \"solver\".*store.changes"):
        solver.write(rows, reward=[1.0, 2.0])
    with pytest.raises(forebay.StateError, match="begin others"):
        changes.insert(solver, policy_version=0, sample_ids=ids("q1"))


def test_one_change_that_cannot_be_made_is_named_and_none_is(store, solver, checker):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1"))
    with pytest.raises(forebay.StateError, match="q1_0_0"):
        with store.changes() as changes:
            late = changes.insert(checker, policy_version=0, sample_ids=ids("q2"))
            changes.write(rows, reward=[1.0, 2.0])
            changes.exclude(rows[1], "no answer")
            changes.insert(solver, policy_version=0, sample_ids=["q1_0_0"])
    assert checker.counts()["written"] == 0 and solver.counts()["excluded"] == {}
    assert solver.cells(rows, "reward") == [None, None]
    with pytest.raises(forebay.StateError, match="not made"):
        late[0]
    with pytest.raises(forebay.StateError, match="begin others"):
        changes.apply()


def test_every_change_of_a_row_and_of_a_group_can_be_said(store, solver, train):
    rows = solver.insert(policy_version=0, sample_ids=[*ids("q1"), "q2_0_0"], response=[[1, 2, 3]] * 3, reward=[1.0] * 3)
    with store.changes(durability="synced", timeout=5) as changes:
        changes.span(rows[:2], start=[1, 2], version=1)
        changes.trainable_from(rows[:2], 2)
        changes.exclude(rows[2], "no answer")
        changes.expect_group(train, "solver", "q1", policy_version=0, members=2)
        changes.close_group("train", "solver", "q9", policy_version=0)
        assert repr(changes).endswith("5 to be made together>")
    spans = [(row["version_spans"], row["trainable_from"], row["excluded"]) for row in solver.show(rows)]
    assert spans == [([(0, 0), (1, 1)], 2, None), ([(0, 0), (2, 1)], 2, None), ([(0, 0)], 0, "no answer")]
    assert repr(changes).endswith("made or given up>")


def test_a_trajectory_is_closed_with_the_row_that_ends_it(store, solver):
    train = store.create_consumer("whole", tables=["solver"], kind="trainer", ready=["reward"], trajectories=("input_id", 1))
    with store.changes() as changes:
        changes.insert(solver, policy_version=0, sample_ids=["q1_0_0", "q1_1_0"], reward=[1.0, 2.0])
        changes.close_trajectory(train, "solver", "q1", 0, policy_version=0)
    with store.step() as step:
        (batch,) = [batch for batch in step.micro_batches(train, size=2, timeout=30.0) if not batch.accumulated()]
        assert len(batch) == 2


def test_what_is_wrong_is_refused_at_its_call(store, solver, checker, tmp_path):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1"))
    changes = store.changes()
    insert = lambda table, **given: changes.insert(table, **{"policy_version": 0, "sample_ids": ["q_0_0"], **given})
    with forebay.open(tmp_path / "other") as other:
        stranger = other.create_table("solver", {"reward": "float32"})
        for call, *named in [
            (lambda: insert(5), "table is a table or the name", "not 5"),
            (lambda: insert(stranger), "other"),
            (lambda: insert("slover", reward=[1.0]), "slover"),
            (lambda: insert(solver, rewrd=[1.0]), 'did you mean "reward"'),
            (lambda: insert(solver, reward=["x"]), "'x'"),
            (lambda: insert(solver, policy_version=-1), "policy_version is a whole number"),
            (lambda: insert(solver, timeout=3), "store.changes()"),
            (lambda: changes.write("q1_0_0", reward=[1.0]), "what insert"),
            (lambda: changes.write(rows, reward=[1.0]), "1 values for 2 rows"),
            (lambda: changes.write(rows, reward=[1.0, 2.0], durability="synced"), "store.changes()"),
            (lambda: changes.span(rows, start=[1], version=1), "1 entries for 2 rows"),
            (lambda: changes.exclude(rows, 5), "reason is a text"),
            (lambda: changes.expect_group(5, "solver", "q1", policy_version=0, members=1), "consumer is"),
            (lambda: changes.expect_group("train", "solver", "q1", policy_version=0, members=-1), "members is"),
            (lambda: store.changes(durability="later"), "later"),
        ]:
            with pytest.raises(forebay.InputError) as refused:
                call()
            assert all(text in str(refused.value) for text in named), str(refused.value)
    changes.apply()
    assert solver.counts()["written"] == 2 and solver.cells(rows, "reward") == [None, None]


def test_rows_of_the_same_block_are_not_there_yet(store, solver):
    with store.changes() as changes:
        rows = changes.insert(solver, policy_version=0, sample_ids=ids("q1"))
        for use in (lambda: changes.write(rows, reward=[1.0, 2.0]), lambda: rows[0], lambda: solver.show(rows)):
            with pytest.raises(forebay.StateError, match="not made"):
                use()
    assert solver.cells(rows, "reward") == [None, None]


def test_changes_are_made_or_given_up_within_the_block(store, solver):
    with store.changes() as changes:
        rows = changes.insert(solver, policy_version=0, sample_ids=ids("q1"))
        changes.apply()
        assert solver.cells(rows, "reward") == [None, None]
    with store.changes() as changes:
        changes.insert(solver, policy_version=0, sample_ids=ids("q2"))
        changes.give_up()
    with store.changes():
        pass
    assert solver.counts()["written"] == 2


def test_a_table_that_changed_meanwhile_is_looked_at_again(store, path, solver):
    solver.insert(policy_version=0, sample_ids=["q0_0_0"], reward=[1.0])
    with pytest.raises(forebay.InputError, match="reward"):
        with store.changes() as changes:
            changes.insert(solver, policy_version=0, sample_ids=["q1_0_0"], reward=[1.0])
            solver.retire_column("reward")
    with store.changes() as changes:
        changes.insert(solver, policy_version=0, sample_ids=["q1_0_0"], answer=["a"])
    assert solver.counts()["written"] == 2


def test_threads_say_changes_to_one_list(store, solver):
    with store.changes() as changes:
        say = lambda at: changes.insert(solver, policy_version=0, sample_ids=[f"q{at}_0_0"], answer=[str(at)])
        threads = [threading.Thread(target=say, args=(at,)) for at in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    answers = store.sql("select answer from solver order by answer").to_pylist()
    assert [row["answer"] for row in answers] == [str(at) for at in range(8)]


def test_closing_the_store_gives_changes_up(store, solver):
    changes = store.changes()
    changes.insert(solver, policy_version=0, sample_ids=ids("q1"))
    store.close()
    with pytest.raises(forebay.ClosedError):
        changes.apply()


def test_an_event_loop_makes_changes_too(store, solver, checker):
    async def main():
        async with store.changes() as changes:
            rows = changes.insert(solver, policy_version=0, sample_ids=ids("q1"), reward=[1.0, 2.0])
            changes.insert(checker, policy_version=0, sample_ids=["q1_1_0"])
        with pytest.raises(KeyError):
            async with store.changes() as given_up:
                given_up.insert(solver, policy_version=0, sample_ids=ids("q2"))
                raise KeyError("oops")
        more = store.changes()
        more.write(rows, answer=["a", "b"])
        await more.apply_async()
        return rows

    rows = asyncio.run(main())
    assert solver.cells(rows, "answer") == ["a", "b"] and solver.counts()["written"] == 2
    assert checker.counts()["written"] == 1
