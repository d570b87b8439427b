"""What became of rows: which step and gradient used each, which rows made a step, and why the others are in none."""

import asyncio
import time

import pytest

import forebay
from conftest import begin, ids

pytestmark = pytest.mark.tcp


def trained(store, train, version: int = 1, size: int = 2):
    """One step of everything that was begun; sample ids by micro-batch."""
    with store.step() as step:
        made = []
        for batch in step.micro_batches(train, size=size, timeout=30.0):
            made.append(batch.sample_ids)
            batch.accumulated()
        step.commit({"solver": version})
    return made


def test_a_step_tells_which_samples_made_it_and_a_sample_which_step_used_it(store, solver, train):
    begin(solver, "q1", "q2")
    made = trained(store, train)
    replayed = store.replay(1)
    assert [batch["sample_ids"] for batch in replayed] == made and len(made) == 2
    for sequence, batch in enumerate(replayed):
        assert batch["table"] == batch["rows"].table == "solver"
        gradient = batch["gradient"]
        assert gradient == {
            "name": f"solver/1/train/{sequence}/0",
            "policy": "solver",
            "step": 1,
            "consumer": "train",
            "sequence": sequence,
            "cache_epoch": 0,
        }
        assert [reward is not None for reward in solver.cells(batch["rows"], "reward")] == [True, True]
        for shown, sample in zip(solver.show(batch["rows"]), batch["sample_ids"], strict=True):
            assert (shown["sample_id"], shown["step"], shown["gradient"]) == (sample, 1, gradient)
            again = solver.get(policy_version=0, sample_id=sample)
            assert {**again, "row": None} == {**shown, "row": None} and len(again["row"]) == 1
    store.rewind(0)
    assert [row["gradient"] for row in solver.show(replayed[0]["rows"])] == [None, None]
    with pytest.raises(forebay.InputError, match="no committed step"):
        store.replay(1)


def test_a_row_is_shown_with_all_that_was_said_of_it(store, solver):
    before = time.time() - 60
    first = solver.insert(policy_version=0, sample_ids=["q1_0_0"], agent="a", weights="w", purpose="eval")
    again = {"next_attempt": True, "purpose": "eval", "parents": ["checker/q0_0_0"]}
    second = solver.insert(policy_version=0, sample_ids=["q1_0_0"], **again)
    foreign = solver.insert(policy_version=0, sample_ids=["q2_0_0"], origin="berlin-3/17")
    (superseded,), (live,) = solver.show(first), solver.show(second)
    assert before < superseded.pop("created_at") < before + 120 and len(superseded.pop("row")) == 1
    assert superseded == {
        "sample_id": "q1_0_0",
        "policy_version": 0,
        "version_spans": [(0, 0)],
        "trainable_from": 0,
        "attempt": 0,
        "purpose": "eval",
        "agent": "a",
        "origin": None,
        "parent": None,
        "weights": "w",
        "excluded": "superseded",
        "step": None,
        "gradient": None,
    }
    assert (live["attempt"], live["parent"], live["excluded"]) == (1, "checker/q0_0_0", None)
    assert solver.show(foreign)[0]["origin"] == "berlin-3/17"
    solver.write(solver.get(policy_version=0, sample_id="q1_0_0")["row"], reward=[1.0])
    assert solver.cells(second, "reward") == [1.0]


def test_what_is_not_there_is_none_by_its_identity_and_an_error_by_its_row(store, solver):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1"))
    assert solver.get(policy_version=1, sample_id="q1_0_0") is None and solver.show(rows[:0]) == []
    for call, named in [
        (lambda: solver.get(policy_version=0, sample_id="q1"), "q1"),
        (lambda: solver.get(policy_version=0, sample_id=7), "sample_id is a text"),
        (lambda: solver.show("q1_0_0"), "what insert"),
        (lambda: store.create_table("checker", {"x": "int32"}).show(rows), "solver"),
        (lambda: store.replay("1"), "step is the number"),
        (lambda: store.replay(9), 'no committed step is named "9"'),
    ]:
        with pytest.raises(forebay.InputError, match=named):
            call()
    solver.delete(rows[0])
    with pytest.raises(forebay.Error, match="deleted|no row"):
        solver.show(rows)


def test_rows_whose_gradients_were_lost_come_again_and_no_others(store, solver, train):
    begin(solver, "q1", "q2", "q3")
    with store.step() as step:
        cache, taken = [], []
        for batch in step.micro_batches(train, size=2, timeout=30.0):
            taken.append(batch)
            batch.accumulated(cache)
        assert step.return_lost([]) == 0
        assert step.return_lost([taken[0], tuple(cache[1]["epoch"])]) == 4
        assert step.return_lost([cache[0]]) == 0, "it has gone back before"
        assert step.metrics()["forebay/rows"] == 2 and step.metrics()["forebay/micro_batches"] == 1
        again = []
        for batch in step.micro_batches(train, size=2, timeout=30.0):
            again += batch.sample_ids
            batch.accumulated()
        assert sorted(again) == sorted(taken[0].sample_ids + taken[1].sample_ids)
        assert step.metrics()["forebay/rows"] == 6
        assert step.commit({"solver": 1}) == 6
    assert len(store.replay(1)) == 3


@pytest.mark.parametrize("split", ["same", "balanced"])
def test_a_micro_batch_that_one_rank_has_lost_comes_again_to_all(store, solver, train, split):
    begin(solver, "q1", "q2")
    with store.step() as step:
        ranks = [
            step.micro_batches(train, size=2, timeout=30.0, rank=rank, world=2, split=split) for rank in range(2)
        ]

        def all_of_them():
            for parts in zip(*ranks, strict=True):
                [part.accumulated() for part in parts]
                yield parts

        (lost, _), _ = list(all_of_them())
        counted = lambda: [step.metrics()[f"forebay/{name}"] for name in ("rows", "micro_batches")]
        assert counted() == [4, 2]
        assert step.return_lost([lost]) == 2 and counted() == [2, 1]
        (again,) = list(all_of_them())
        assert {sample for part in again for sample in part.sample_ids} == set(ids("q1")) and counted() == [4, 2]
        assert step.commit({"solver": 1}) == 4


def test_what_names_no_micro_batch_is_refused(store, solver, train):
    begin(solver, "q1")
    with store.step() as step:
        for claims, named in [
            (7, "claims is a list of micro-batches"),
            (["x"], "a claim is a micro-batch"),
            ([(1, 2, 3)], "a claim is a micro-batch"),
            ([{"sequence": 1}], "a claim is a micro-batch"),
        ]:
            with pytest.raises(forebay.InputError, match=named):
                step.return_lost(claims)
    with pytest.raises(forebay.StateError, match="begin another"):
        step.return_lost([])


def test_an_event_loop_asks_the_same(store, solver, train):
    (rows,) = begin(solver, "q1")
    trained(store, train)

    async def main():
        replayed, shown = await asyncio.gather(store.replay_async(1), solver.show_async(rows))
        live = await solver.get_async(policy_version=0, sample_id="q1_0_1")
        with pytest.raises(forebay.InputError, match="no committed step"):
            await store.replay_async(9)
        return replayed, shown, live

    replayed, shown, live = asyncio.run(main())
    assert replayed[0]["sample_ids"] == [row["sample_id"] for row in shown] == ids("q1")
    assert live["gradient"] == shown[1]["gradient"] == replayed[0]["gradient"]
