"""How long versions of states stay: the last ones, those that are held, and those that a policy stands on."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import forebay  # noqa: E402
from forebay.trainer import AdamW, DirectoryStateStore, ObjectStateStore, OtherSettingsError, Payload, Trainer  # noqa: E402
from test_trainer_applied import KEY, TABLE, accumulate, fill, made  # noqa: E402
from tiny import unchanged  # noqa: E402


def state(number: int) -> dict[str, Payload]:
    return {"weights": Payload.of(torch.full((4,), float(number)))}


def value(states, key, version=None) -> float:
    return float(states.get(key, version)[1]["weights"].tensor()[0])


def test_the_last_versions_are_kept_and_numbers_are_never_used_again(tmp_path):
    states = DirectoryStateStore(tmp_path, keep=2)
    for number in range(1, 6):
        assert states.set("solver", state(number)) == number
    assert states.versions("solver") == [4, 5] and sorted(os.listdir(tmp_path / "solver")) == ["00000004.safetensors", "00000005.safetensors"]
    assert value(states, "solver") == 5 and value(states, "solver", 4) == 4
    with pytest.raises(forebay.StateError, match="no version 3.*there are 4 to 5"):
        states.get("solver", 3)
    assert states.set("solver", state(6), expected=5) == 6
    everything = DirectoryStateStore(tmp_path)
    everything.set("solver", state(7))
    assert everything.versions("solver") == [5, 6, 7]


@pytest.mark.parametrize("keep", [0, -1])
def test_at_least_the_latest_is_kept(tmp_path, keep):
    with pytest.raises(forebay.InputError, match=f"keep={keep}.*at least the latest"):
        DirectoryStateStore(tmp_path, keep=keep)


def test_a_version_that_somebody_holds_stays_until_he_lets_go_or_dies(tmp_path):
    states = DirectoryStateStore(tmp_path, keep=1)
    states.set("solver", state(1))
    program = """
        import sys, time
        from forebay.trainer import DirectoryStateStore
        with DirectoryStateStore(sys.argv[1]).hold("solver") as number:
            print(number, flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert holder.stdout.readline() == "1\n"
        with states.hold("solver", 1):
            states.set("solver", state(2))
        states.set("solver", state(3))
        assert states.versions("solver") == [1, 3] and value(states, "solver", 1) == 1
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    states.set("solver", state(4))
    assert states.versions("solver") == [4]
    with pytest.raises(forebay.StateError, match="no version 1"), states.hold("solver", 1):
        pass


def test_who_reads_the_latest_while_versions_go_always_has_one(tmp_path):
    states, over = DirectoryStateStore(tmp_path, keep=1), threading.Event()
    states.set("solver", state(1))

    def write():
        for number in range(2, 60):
            states.set("solver", state(number))
        over.set()

    writer, seen = threading.Thread(target=write), [0]
    writer.start()
    while not over.is_set():
        number, payloads = states.get("solver")
        assert float(payloads["weights"].tensor()[0]) == number >= seen[-1]
        seen.append(number)
    writer.join()
    states.set("solver", state(60))  # the reader may have held one when the last went in
    assert states.versions("solver") == [60]


SETTINGS = {
    "betas": (dict(betas=(0.8, 0.999)), r"betas=\[0.9, 0.999\].*betas=\[0.8, 0.999\]"),
    "eps": (dict(eps=1e-6), "eps=1e-08.*eps=1e-06"),
    "weight decay": (dict(weight_decay=0.3), "weight_decay=0.01.*weight_decay=0.3"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_moments_of_other_settings_are_refused_unless_they_are_asked_for(tmp_path, case):
    other, message = SETTINGS[case]
    states, trainer = DirectoryStateStore(tmp_path), Trainer(torch.nn.Linear(3, 2), optimizer=AdamW(lr=0.1))
    trainer.add(trainer.model(torch.ones(3)).sum(), 1.0)
    trainer.commit()
    trainer.save(states, "solver")
    again = Trainer(torch.nn.Linear(3, 2), optimizer=AdamW(lr=0.5, **other))
    with unchanged(again), pytest.raises(OtherSettingsError, match=f"made with {message}.*other_optimizer=True"):
        again.resume(states, "solver")
    again.resume(states, "solver", other_optimizer=True)
    assert again.weight_fingerprint() == trainer.weight_fingerprint()
    assert Trainer(torch.nn.Linear(3, 2), optimizer=AdamW(lr=0.5)).resume(states, "solver") == 1  # the learning rate is no part of it


# States that a step's commit names


@pytest.fixture
def solver(store):
    table = store.create_table("solver", TABLE)
    store.create_consumer("train", tables=["solver"], kind="trainer", ready=["advantage"], group=("input_id", 2))
    fill(table, 0)
    return table


def step_of(store, states, trainer):
    with store.step() as step:
        accumulate(store, step, trainer)
        update = trainer.commit()
        saved = trainer.save(states, KEY)
        step.commit({"solver": (update.version, states.named(KEY, saved))})
    return saved


def test_a_commit_names_the_state_that_the_policy_stands_on(store, solver):
    states, trainer = ObjectStateStore(store, policy="solver"), made(store)
    assert states.committed(KEY) is None and store.policy_objects("solver") == {}
    trainer.save(states, KEY)
    saved = step_of(store, states, trainer)
    assert saved == states.committed(KEY) == 2 and store.policy_objects("solver") == {"solver.trainer": 2}
    for _ in range(6):  # what the policy stands on stays, however many come after it
        trainer.save(states, KEY)
    again = made(store)
    assert again.resume(states, KEY, states.committed(KEY), policy_version=store.policy_version("solver")) == 2
    assert again.weight_fingerprint() == trainer.weight_fingerprint() and again.version == 1
    fill(solver, 1)
    assert step_of(store, states, again) == states.committed(KEY) > 2
    with pytest.raises(forebay.StateError, match="is gone"):
        states.get(KEY, 2)
    with pytest.raises(forebay.StateError, match="policy="):
        ObjectStateStore(store).committed(KEY)


def test_a_commit_that_names_what_is_not_there_changes_nothing(store, solver):
    states, trainer = ObjectStateStore(store, policy="solver"), made(store)
    with store.step() as step:
        accumulate(store, step, trainer)
        update = trainer.commit()
        with pytest.raises(forebay.Error, match="solver.trainer"):
            step.commit({"solver": (update.version, states.named(KEY, 7))})
        saved = trainer.save(states, KEY)
        with pytest.raises(forebay.InputError, match="makes it 1 and not 4"):
            step.commit({"solver": (4, states.named(KEY, saved))})
        assert store.policy_version("solver") == 0 and store.policy_objects("solver") == {}
        step.commit({"solver": {**states.named(KEY, saved), "cursor": b"12"}})
    assert store.policy_objects("solver") == {"solver.trainer": saved, "cursor": 1}


@pytest.mark.parametrize("moved", [(1,), (1, 2), (1, {}, 3), ("1", {}), (1, {"a": 1.5}), (1, {2: 2}), [1, {}]])
def test_what_names_no_objects_is_refused(store, solver, moved):
    with store.step() as step:
        accumulate(store, step, made(store))
        with pytest.raises(forebay.InputError):
            step.commit({"solver": moved})
        assert store.policy_version("solver") == 0
        step.commit({"solver": None})


def test_a_policy_with_state_keys_takes_versions_that_were_set(store):
    store.create_policy("solver", state_keys=["solver.trainer"])
    fill(store.create_table("solver", TABLE), 0)
    store.create_consumer("train", tables=["solver"], kind="trainer", ready=["advantage"], group=("input_id", 2))
    states, trainer = ObjectStateStore(store, policy="solver"), made(store)
    with store.step() as step:
        accumulate(store, step, trainer)
        with pytest.raises(forebay.StateError, match="solver.trainer"):
            step.commit({"solver": trainer.commit().version})
        step.commit({"solver": states.named(KEY, trainer.save(states, KEY))})
    assert states.committed(KEY) == 1


PROGRAM = """
    import json, os, shutil, sys
    import forebay, torch
    from forebay.trainer import ObjectStateStore
    from test_trainer_applied import KEY, begun, dying, fill, made

    path, point, steps = sys.argv[1], sys.argv[2], 3
    torch.set_num_threads(1)

    reached = dying(path, point)

    with forebay.open(path + "/store", host_folder=path + "/host") as store:
        states = ObjectStateStore(store, policy="solver")
        solver = begun(store)
        trainer = made(store)
        stands = states.committed(KEY)
        if stands is not None:
            trainer.resume(states, KEY, stands, policy_version=store.policy_version("solver"))
        while (version := store.policy_version("solver")) < steps:
            if solver.counts()["written"] == 4 * version:
                fill(solver, version, range(2))
            with store.step() as step:
                for batch in step.micro_batches("train", size=2, timeout=60):
                    trainer.accumulate(batch)
                    reached("accumulate", version)
                update = trainer.commit()
                reached("commit", version)
                saved = trainer.save(states, KEY)
                reached("save", version)
                states.objects.spill("solver.trainer", saved)
                reached("on the disk", version)
                assert step.commit({"solver": (update.version, states.named(KEY, saved))}) == 4
            reached("step.commit", version)
        told = {"version": trainer.version, "updates": trainer.updates, "weights": trainer.weight_fingerprint()}
        print(json.dumps({**told, "store": store.policy_version("solver"), "consumed": solver.counts()["consumed"]}))
"""


def run(path, point: str) -> subprocess.CompletedProcess:
    here = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path), point]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    result = run(tmp_path_factory.mktemp("quiet"), "nowhere")
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("memory", ["kept", "lost"])
@pytest.mark.parametrize("point", ["accumulate", "commit", "save", "on the disk", "step.commit"])
def test_a_run_that_stands_on_what_its_commits_name_is_killed_and_comes_to_the_same_weights(tmp_path, quiet, point, memory):
    # DESIGN 3.5, FX-57: store and state are one record, so nothing has to be known of what came between them; and the state is on the disk,
    # so that it outlives the memory of the machine.
    killed = run(tmp_path, point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if memory == "lost":
        shutil.rmtree(tmp_path / "host")
    result = run(tmp_path, point)
    assert result.returncode == 0, result.stderr
    assert result.stdout == quiet
