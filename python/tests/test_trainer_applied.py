"""A trainer and a store that commit one after the other: whatever comes between the two, each row is trained on once."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import forebay  # noqa: E402
from forebay.trainer import (  # noqa: E402
    AdamW,
    Columns,
    DirectoryStateStore,
    OtherVersionError,
    PolicyGradient,
    Trainer,
)
from ranks import Model, logprobs  # noqa: E402
from tiny import unchanged  # noqa: E402

TABLE = {"prompt": "list<int32>", "response": "list<int32>", "advantage": "float32"}
KEY = "solver/trainer"


def made(store, **options):
    settings = dict(objective=PolicyGradient(forward=logprobs), optimizer=AdamW(lr=0.05), columns=Columns())
    return Trainer(Model(3), **{**settings, **options})


def fill(solver, version: int, groups=range(3)) -> None:
    """The rows of a step, which are the same whenever they are made."""
    random = np.random.default_rng(version)
    for group in groups:
        solver.insert(
            policy_version=version, sample_ids=[f"v{version}q{group}_0_{n}" for n in range(2)],
            prompt=[[7, 8]] * 2, response=random.integers(0, 32, (2, 3)).tolist(), advantage=[1.0, -0.5],
        )  # fmt: skip


@pytest.fixture
def solver(store):
    table = store.create_table("solver", TABLE)
    store.create_consumer("train", tables=["solver"], kind="trainer", ready=["advantage"], group=("input_id", 2))
    fill(table, 0)
    return table


def accumulate(store, step, trainer, size=2) -> list[bool]:
    return [trainer.accumulate(batch).is_new for batch in step.micro_batches("train", size=size, timeout=60)]


@pytest.mark.parametrize("size", [2, 4, 6])
def test_a_step_that_the_store_did_not_commit_is_not_trained_twice(store, solver, size):
    # FX-57: the loop goes round after an error between the two commits.
    trainer = made(store)
    with store.step() as step:
        assert accumulate(store, step, trainer) == [True] * 3
        update, weights = trainer.commit(), trainer.weight_fingerprint()
    assert (update.version, store.policy_version("solver")) == (1, 0)
    with store.step() as step:
        assert set(accumulate(store, step, trainer, size)) == {False}
        assert trainer.commit() == update and trainer.weight_fingerprint() == weights
        assert step.commit({"solver": update.version}) == update.rows == 6
    fill(solver, 1)
    with store.step() as step:
        assert accumulate(store, step, trainer) == [True] * 3
        assert step.commit({"solver": trainer.commit().version}) == 6
    assert trainer.weight_fingerprint() != weights and store.policy_version("solver") == 2


def test_a_commit_of_the_step_that_failed_may_be_repeated(store, solver):
    trainer = made(store)
    with store.step() as step:
        accumulate(store, step, trainer)
        update = trainer.commit()
        with pytest.raises(forebay.InputError):
            step.commit({"solver": 7})
        assert trainer.commit() == update
        assert step.commit({"solver": trainer.commit().version}) == 6
    assert trainer.version == store.policy_version("solver") == 1


def test_the_rows_of_the_last_commit_come_again_alone(store, solver):
    trainer = made(store, max_lag=None)
    with store.step() as step:
        accumulate(store, step, trainer)
        trainer.commit()
    fill(solver, 0, [3])
    with store.step() as step:
        batches = iter(step.micro_batches("train", size=8, timeout=60))
        with unchanged(trainer), pytest.raises(forebay.StateError, match="6 of 8 rows.*resume a state of before"), next(batches) as batch:
            trainer.accumulate(batch)
    with store.step() as step:
        batches = step.micro_batches("train", size=2, timeout=60)
        with pytest.raises(forebay.StateError, match="version 1, and rows beside them.*Step.commit"):
            for batch in batches:
                with batch:
                    trainer.accumulate(batch)
    trainer.settled()  # whoever says that the store has them may train on them again
    with store.step() as step:
        assert accumulate(store, step, trainer) == [True] * 4


VERSIONS = {
    "of its own": (0, 0, 0, None),
    "behind": (1, 0, 0, "row v0q0_0_0 of 'solver' is of version 0, and the trainer's weights are version 1; .*max_lag"),
    "behind, and that is allowed": (1, 0, 1, None),
    "too far behind": (3, 0, 2, r"version 0.*version 3 \(max_lag=2\)"),
    "ahead": (0, 4, 5, "version 4.*version 0.*resume the state that is of it"),
    "ahead, and any is allowed": (0, 4, None, None),
    "behind, and any is allowed": (9, 0, None, None),
}


@pytest.mark.parametrize("case", VERSIONS)
@pytest.mark.embedded
def test_rows_of_another_version_than_the_weights_are_refused(store, case):
    weights, rows, max_lag, message = VERSIONS[case]
    columns = {"prompt": [[7, 8]], "response": [[1, 2]], "advantage": [1.0], "policy_version": [rows], "group_key": ["q"]}

    class Claimed:
        table, consumer, step, sequence, epoch, sample_ids = "solver", "train", 1, 0, (1, 1), [f"v{rows}q0_0_0"]
        accumulated = staticmethod(lambda: None)
        __getitem__ = staticmethod(columns.__getitem__)

    trainer = made(store, version=weights, max_lag=max_lag)
    if message is None:
        assert trainer.accumulate(Claimed()).is_new
        return
    with unchanged(trainer), pytest.raises(OtherVersionError, match=message):
        trainer.accumulate(Claimed())


@pytest.mark.parametrize("max_lag", [-1, -5])
def test_a_lag_that_is_none_is_refused(max_lag):
    with pytest.raises(forebay.InputError, match=f"max_lag={max_lag}"):
        Trainer(Model(3), max_lag=max_lag)


RESUMED = {
    "where the store is": (1, True, 1, None),
    "one ahead, and it knows the rows": (1, True, 0, None),
    "one ahead, and it does not": (1, False, 0, "version 1 of the policy, and the store stands at 0.*resume an earlier state"),
    "behind": (1, True, 2, "version 1 of the policy, and the store stands at 2.*resume a later state"),
    "far ahead": (1, True, 9, "stands at 9"),
    "not compared": (1, False, None, None),
}


@pytest.mark.parametrize("case", RESUMED)
@pytest.mark.embedded
def test_a_state_is_compared_with_the_store_when_it_is_resumed(store, solver, tmp_path, case):
    _, is_known, policy_version, message = RESUMED[case]
    states, trainer = DirectoryStateStore(tmp_path / "states"), made(store)
    with store.step() as step:
        accumulate(store, step, trainer)
        trainer.commit()
    if not is_known:
        trainer.settled()
    trainer.save(states, KEY)
    again = made(store)
    if message is None:
        assert again.resume(states, KEY, policy_version=policy_version) == 1
        assert again.version == 1 and again.weight_fingerprint() == trainer.weight_fingerprint()
        return
    with unchanged(again), pytest.raises(OtherVersionError, match=message):
        again.resume(states, KEY, policy_version=policy_version)


# The quickstart of docs/pytorch.md, killed. A step has two micro-batches, whose sum is the same bits in either order.


def dying(path, point):
    """What a program calls at its points: it is killed at one of them, in its second step, once."""

    def reached(where, version):
        if where == point and version == 1 and not os.path.exists(path + "/killed"):
            open(path + "/killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def begun(store):
    """The table of a store, whichever life of the program this is."""
    if "solver" in store.tables():
        return store.table("solver")
    solver = store.create_table("solver", TABLE)
    store.create_consumer("train", tables=["solver"], kind="trainer", ready=["advantage"], group=("input_id", 2))
    return solver


PROGRAM = """
    import json, os, sys
    import forebay, torch
    from forebay.trainer import DirectoryStateStore
    from test_trainer_applied import KEY, begun, dying, fill, made

    path, point, steps = sys.argv[1], sys.argv[2], 3
    torch.set_num_threads(1)

    reached = dying(path, point)

    states = DirectoryStateStore(path + "/states")
    with forebay.open(path + "/store", host_folder=path + "/host") as store:
        solver = begun(store)
        trainer = made(store)
        if states.versions(KEY):
            trainer.resume(states, KEY, policy_version=store.policy_version("solver"))
        else:
            trainer.save(states, KEY)
        while (version := store.policy_version("solver")) < steps:
            if solver.counts()["written"] < 4 * (version + 1):
                fill(solver, version, range(2))
            if os.path.exists(path + "/killed") and len(sys.argv) > 3 and version == 1:
                fill(solver, version, [7])  # rollouts went on meanwhile
            with store.step(groups=trainer.unfinished(version)) as step:
                for place, batch in enumerate(step.micro_batches("train", size=2, timeout=60)):
                    trainer.accumulate(batch)
                    reached("accumulate", version)
                    if place == 0:
                        if point == "suspend in mid-step":
                            trainer.resume(states, KEY, trainer.suspend(states, KEY))
                        reached("suspend in mid-step", version)
                update = trainer.commit()
                reached("commit", version)
                trainer.suspend(states, KEY)
                reached("suspend", version)
                trainer.resume(states, KEY)
                assert step.commit({"solver": update.version}) == 4
            reached("step.commit", version)
        told = {"version": trainer.version, "updates": trainer.updates, "weights": trainer.weight_fingerprint()}
        print(json.dumps({**told, "store": store.policy_version("solver"), "consumed": solver.counts()["consumed"]}))
"""


def run(path, point: str, *more: str) -> subprocess.CompletedProcess:
    here = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path), point, *more]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    result = run(tmp_path_factory.mktemp("quiet"), "nowhere")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["version"], told["store"], told["consumed"]) == (3, 3, 12)
    return told


@pytest.mark.parametrize("point", ["accumulate", "suspend in mid-step", "commit", "suspend", "step.commit"])
def test_a_run_that_is_killed_comes_to_the_weights_of_a_quiet_one(tmp_path, quiet, point):
    # FX-57, FX-58
    assert run(tmp_path, point).returncode == -signal.SIGKILL
    result = run(tmp_path, point)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == quiet


def test_a_run_that_is_killed_goes_on_though_more_was_written_meanwhile(tmp_path, quiet):
    # FX-57, FX-58: the update that the store lacks is committed with the rows that made it, and nothing beside them.
    assert run(tmp_path, "suspend", "more").returncode == -signal.SIGKILL
    result = run(tmp_path, "suspend", "more")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == quiet


@pytest.mark.parametrize("size", [2, 4, 8])
def test_what_was_written_beside_an_unfinished_step_is_trained_on_in_the_next(store, tmp_path, size):
    solver = store.create_table("solver", TABLE)
    store.create_consumer("train", tables=["solver"], kind="trainer", ready=["advantage"], group=("input_id", 2), staleness=1)
    fill(solver, 0)
    states, trainer = DirectoryStateStore(tmp_path / "states"), made(store, max_lag=1)
    assert trainer.unfinished(0) is None
    with store.step(groups=trainer.unfinished(0)) as step:
        assert accumulate(store, step, trainer) == [True] * 3
        assert trainer.unfinished(0) is None  # before the commit
        update = trainer.commit()
        trainer.save(states, KEY)
    fill(solver, 0, [8, 9])
    again = made(store, max_lag=1)
    again.resume(states, KEY, policy_version=0)
    assert again.unfinished(0) == {"train": ["v0q0", "v0q1", "v0q2"]} == trainer.unfinished(0)
    with store.step(groups=again.unfinished(0)) as step:
        assert set(accumulate(store, step, again, size)) == {False}
        assert again.commit() == update
        assert step.commit({"solver": update.version}) == 6
    assert again.unfinished(1) is None
    with store.step(groups=again.unfinished(1)) as step:
        assert set(accumulate(store, step, again, size)) == {True}
        assert step.commit({"solver": again.commit().version}) == 4
    assert solver.counts()["consumed"] == 10
