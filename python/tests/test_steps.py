"""The loop of a trainer: micro-batches, the commit, and every way of not getting there."""

import gc
import threading
import weakref

import numpy as np
import pytest

import forebay
from conftest import begin, ids


def take(store, train, size=2, **options):
    """One step of everything that was begun; the sample ids by micro-batch."""
    with store.step() as step:
        taken = []
        for batch in step.micro_batches(train, size=size, timeout=30.0, **options):
            taken.append(batch.sample_ids)
            batch.accumulated()
        step.commit({"solver": store.policy_version("solver") + 1})
    return taken


def test_a_step_takes_what_was_begun_and_commits_it(store, solver, train):
    begin(solver, "q1", "q2")
    with store.step() as step:
        assert step.number == 1 and train.open_groups() == ["q1", "q2"]
        seen = []
        for batch in step.micro_batches(train, size=2, timeout=30.0):
            assert batch.step == 1 and batch.sequence == len(seen) // 2 and batch.is_held
            assert [row.tolist() for row in batch["response"]] == [[1, 2, 3], [4]]
            assert batch["reward"].tolist() == [1.0, 0.0]
            seen += batch.sample_ids
            batch.accumulated()
            assert not batch.is_held
        assert seen == ids("q1") + ids("q2") and step.is_complete(train)
        assert step.commit({"solver": 1}) == 4
    assert store.policy_version("solver") == 1
    assert solver.counts() == {"written": 4, "consumed": 4, "open": 0, "excluded": {}}


def test_groups_and_numbers_of_rows_are_planned_by_consumer(store, solver, train):
    begin(solver, "q1", "q2")
    with store.step(groups={train: ["q2"]}) as step:
        batches = [batch for batch in step.micro_batches("train", size=2, timeout=30.0) if not batch.accumulated()]
        assert [batch.sample_ids for batch in batches] == [ids("q2")]
        step.commit({"solver": None})
    with pytest.raises(forebay.StateError, match="takes nothing for 'other'|takes nothing for \"other\""):
        with store.step(rows={"train": 2}) as step:
            step.micro_batches("other", size=2)


def test_a_step_without_a_plan_and_without_groups_is_refused(store, solver, train):
    with pytest.raises(forebay.StateError, match="rows="):
        store.step()


def test_an_exception_gives_the_step_up_and_its_rows_back(store, solver, train):
    begin(solver, "q1", "q2")
    with pytest.raises(ZeroDivisionError):
        with store.step() as step:
            for place, batch in enumerate(step.micro_batches(train, size=2, timeout=30.0)):
                with batch:
                    1 // (1 - place)
                    batch.accumulated()
    with pytest.raises(forebay.StateError, match="given up"):
        step.commit({"solver": 1})
    with pytest.raises(forebay.StateError, match="claim again"):
        batch["reward"]
    assert sorted(take(store, train)) == [ids("q1"), ids("q2")]


def test_leaving_without_a_commit_gives_the_step_up(store, solver, train):
    begin(solver, "q1")
    with store.step() as step:
        for batch in step.micro_batches(train, size=2, timeout=30.0):
            batch.accumulated()
    assert step.number == 1 and take(store, train) == [ids("q1")]


def test_a_micro_batch_that_was_forgotten_is_named(store, solver, train):
    begin(solver, "q1", "q2")
    with store.step() as step:
        batches = step.micro_batches(train, size=2, timeout=30.0)
        next(batches)
        with pytest.raises(forebay.StateError, match="micro-batch 0 of step 1"):
            next(batches)
        with pytest.raises(forebay.StateError, match="not accumulated"):
            step.commit({"solver": 1})


def test_a_released_micro_batch_comes_again(store, solver, train):
    begin(solver, "q1")
    with store.step() as step:
        batches = step.micro_batches(train, size=2, timeout=30.0)
        with next(batches) as batch:
            first = batch.sample_ids
        again = next(batches)
        assert again.sample_ids == first and again.epoch != batch.epoch
        again.accumulated()
        assert next(batches, None) is None
        step.commit({"solver": 1})


def test_rows_that_are_not_ready_in_time_raise(store, solver, train):
    rows = solver.insert(policy_version=0, sample_ids=ids("q1"), response=[[1], [2]])
    with store.step() as step:
        batches = step.micro_batches(train, size=2, timeout=0.01)
        with pytest.raises(forebay.WaitTimeout, match="0.01 s for the next micro-batch of \"train\""):
            next(batches)
        solver.write(rows, reward=[1.0, 0.0])
        next(batches).accumulated()
        step.commit({"solver": 1})


def test_a_commit_checks_versions_and_policies(store, solver, train):
    begin(solver, "q1")
    with store.step() as step:
        for batch in step.micro_batches(train, size=2, timeout=30.0):
            batch.accumulated()
        for updates, error, named in [
            ({"solver": 5}, forebay.InputError, "makes it 1 and not 5"),
            ({"sover": 1}, forebay.InputError, 'did you mean "solver"'),
            ({}, forebay.StateError, "no update"),
            ({"solver": "1"}, forebay.InputError, "'1'"),
            ({"solver": {"w": "text"}}, forebay.InputError, "'text'"),
        ]:
            with pytest.raises(error, match=named):
                step.commit(updates)
        step.commit({"solver": {"solver.weights": b"the new weights"}})
    assert store.policy_state("solver") == {"solver.weights": b"the new weights"}


def test_a_durable_policy_wants_its_state(store):
    store.create_policy("actor", version=3, state_keys=["actor.weights"])
    table = store.create_table("t", {"reward": "float32"}, policy="actor")
    train = store.create_consumer("train", tables=["t"], kind="trainer", ready=["reward"])
    table.insert(policy_version=3, sample_ids=["q_0_0"], reward=[1.0])
    with store.step(rows={train: 1}) as step:
        for batch in step.micro_batches(train, tokens=None, size=1, timeout=30.0):
            batch.accumulated()
        with pytest.raises(forebay.StateError, match="actor.weights"):
            step.commit({"actor": 4})
        step.commit({"actor": {"actor.weights": b"w"}})
    assert store.policy_version("actor") == 4


def test_micro_batches_may_be_cut_by_tokens(store, solver):
    train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["response"])
    solver.insert(policy_version=0, sample_ids=ids("q", 4), response=[[1] * 10, [2] * 10, [3] * 10, [4]])
    with store.step(rows={train: 4}) as step:
        sizes = []
        for batch in step.micro_batches(train, tokens=("response", 20), timeout=30.0):
            sizes.append(len(batch))
            batch.accumulated()
        step.commit({"solver": 1})
    assert sum(sizes) == 4 and max(sizes) <= 3 and len(sizes) >= 2


def test_ranks_share_the_micro_batches_of_a_step(store, solver, train):
    begin(solver, "q1", "q2", "q3")
    seen = {0: [], 1: []}
    with store.step() as step:

        def rank(number: int):
            batches = step.micro_batches(train, size=2, timeout=30.0, rank=number, world=2, split="balanced")
            for batch in batches:
                seen[number].append((batch.sequence, batch.sample_ids, batch.rows_in_gang))
                batch.accumulated()

        threads = [threading.Thread(target=rank, args=(number,)) for number in seen]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert step.commit({"solver": 1}) == 6
    assert [sequence for sequence, _, _ in seen[0]] == [sequence for sequence, _, _ in seen[1]] == [0, 1, 2]
    assert all(rows == 2 for rank in seen.values() for _, _, rows in rank)
    both = sorted(sample for rank in seen.values() for _, samples, _ in rank for sample in samples)
    assert both == ids("q1") + ids("q2") + ids("q3")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rank": 0}, "go together"),
        ({"rank": 2, "world": 2}, "ranks 0 to 1, not 2"),
        ({"rank": 0, "world": 2, "split": "half"}, "half"),
        ({"size": 0}, "size is 0"),
        ({"size": None}, "size="),
        ({"timeout": -1}, "-1"),
        ({"timeout": "soon"}, "soon"),
    ],
)
def test_a_wrong_argument_of_micro_batches_is_named(store, solver, train, options, named):
    begin(solver, "q1")
    with store.step() as step:
        with pytest.raises(forebay.InputError, match=named):
            step.micro_batches(train, **{"size": 2, **options})


def test_a_second_step_is_refused_while_one_is_open(store, solver, train):
    begin(solver, "q1")
    with store.step():
        with pytest.raises(forebay.StateError, match="step 1 is open"):
            store.step()


def test_columns_become_tensors(store, solver, train):
    torch = pytest.importorskip("torch")
    begin(solver, "q1")
    with store.step() as step:
        batch = next(step.micro_batches(train, size=2, timeout=30.0))
        assert batch.torch("response", pad=-1).tolist() == [[1, 2, 3], [4, -1, -1]]
        assert batch.torch("reward").dtype == torch.float32
        packed = batch.torch("response", layout="packed")
        assert packed.values.tolist() == [1, 2, 3, 4] and packed.cu_seqlens.tolist() == [0, 3, 4]
        assert packed.position_ids.tolist() == [0, 1, 2, 0] and packed.max_seqlen == 3
        assert [row.tolist() for row in batch.torch("response", layout="nested").unbind()] == [[1, 2, 3], [4]]


def test_padding_needs_no_torch_to_be_right():
    from forebay._torch import _padded

    rows = [np.array([1, 2, 3], np.int32), np.array([], np.int32), np.array([4], np.int32)]
    assert _padded("x", rows, -1).tolist() == [[1, 2, 3], [-1, -1, -1], [4, -1, -1]]
    for none in (0.5, float("nan"), float("inf")):
        with pytest.raises(forebay.InputError, match=f"and {none} is none"):
            _padded("x", rows, none)
    with pytest.raises(forebay.InputError, match="300"):
        _padded("x", [row.astype(np.int8) for row in rows], 300)


def test_a_step_whose_log_refers_to_it_is_collected(store, solver, train):
    class Trainer:
        def __init__(self):
            self.step = store.step(rows={train: 1}, log=self.log)

        def log(self, record, step):
            pass

    trainer = weakref.ref(Trainer())
    gc.collect()
    assert trainer() is None
    with store.step(rows={train: 1}) as step:
        assert step.number == 1, "the one before was given up"


@pytest.mark.parametrize("exclude", [False, True])
def test_a_rewind_undoes_every_step_after_one(store, solver, train, exclude):
    begin(solver, "q1")
    take(store, train)
    begin(solver, "q2", version=1)
    take(store, train)
    assert store.rewind(1, exclude=exclude) == {"step": 1, "steps_undone": 1, "rows": 2}
    assert store.policy_version("solver") == 1
    counts = {"written": 4, "consumed": 2, "open": 0 if exclude else 2, "excluded": {"rewound": 2} if exclude else {}}
    assert solver.counts() == counts
    if not exclude:
        assert take(store, train) == [ids("q2")]
    with pytest.raises(forebay.InputError, match="7"):
        store.rewind(7)
    with store.step(rows={train: 1}), pytest.raises(forebay.StateError, match="open"):
        store.rewind(0)
