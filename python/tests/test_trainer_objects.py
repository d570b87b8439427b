"""A trainer's state as objects of a store: embedded, and in other processes through a server."""

import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import serving
from forebay.trainer import ObjectStateStore, Payload, Trainer, VersionConflictError
from test_trainer_state import OPTIONS, bits, micro_batch, model, train

import forebay


def elsewhere(program: str) -> None:
    here = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, env=environment)


@pytest.mark.parametrize("neighbour", [True, False])
def test_a_state_goes_on_in_another_process_after_the_server_was_killed(tmp_path, neighbour):
    # FX-57, FX-58, FX-61: 2 of 4 micro-batches here, 2 in another process.
    parts = micro_batch().passes(2)
    trainer = Trainer(model(torch.bfloat16), **OPTIONS)
    train(trainer, micro_batch(seed=1).passes(2))
    trainer.commit()
    train(trainer, parts[:2])
    with serving.Server(tmp_path / "store", tmp_path / "fb.sock") as server:
        with forebay.connect(server.address, neighbour=neighbour) as store:
            assert trainer.suspend(ObjectStateStore(store), "solver/trainer") == 1
        server.kill()
        server.start()
        elsewhere(f"""
            import forebay, torch
            from forebay.trainer import ObjectStateStore, Trainer
            from test_trainer_state import OPTIONS, micro_batch, model, train
            with forebay.connect({server.address!r}, neighbour={neighbour}) as store:
                states = ObjectStateStore(store)
                trainer = Trainer(model(torch.bfloat16, seed=99), **OPTIONS)
                assert trainer.resume(states, "solver/trainer") == 1 and trainer.version == 1
                train(trainer, micro_batch().passes(2)[2:])
                trainer.commit()
                states.set("committed", trainer.state())
        """)
        with forebay.connect(server.address, neighbour=neighbour) as store:
            states = ObjectStateStore(store)
            trainer.resume(states, "solver/trainer")
            train(trainer, parts[2:])
            trainer.commit()
            _, there = states.get("committed")
            here = bits(trainer)
            assert here.keys() == there.keys()
            for name, payload in there.items():
                assert here[name] == payload.memory.numpy().tobytes(), name


def test_memory_classes_are_those_of_the_payloads(tmp_path):
    with forebay.open(tmp_path / "store", host_folder=tmp_path / "host") as store:
        states, trainer = ObjectStateStore(store, spill=True), Trainer(model(torch.bfloat16), **OPTIONS)
        trainer.accumulate(micro_batch())
        states.set("solver", trainer.state())
        with store.objects.get("solver") as held:
            classes = {name: spec.memory_class for name, spec in held.specs.items()}
        assert {classes["master"], classes["exp_avg"], classes["gradient"], classes["counters"]} == {
            "master",
            "moments",
            "gradient",
            "other",
        }
        assert store.objects.list("solver")[0].tiers == ("host", "disk")


def test_a_version_that_is_not_the_latest_is_refused(tmp_path):
    payloads = {"a": Payload.of(torch.arange(5))}
    with forebay.open(tmp_path / "store", host_folder=tmp_path / "host") as store:
        states = ObjectStateStore(store)
        assert [states.set("a/b", payloads, expected=version) for version in (0, 1)] == [1, 2]
        with pytest.raises(VersionConflictError, match="version 2"):
            states.set("a/b", payloads, expected=1)
        assert states.versions("a/b") == [1, 2]
        assert states.wait("a/b", 1, 5.0) == 2 and states.wait("a/b", 2, 0.01) is None
        version, found = states.get("a/b", 1)
        assert version == 1 and torch.equal(found["a"].tensor(), torch.arange(5))


KEYS = ["a/b", "a.b", "a..b", "a./b", "a.-b", "a/b.c", "a.b/c", "a/b/c", "a.b.c", "a-b", "a_b"]


def test_keys_that_differ_name_different_objects(tmp_path):
    with forebay.open(tmp_path / "store", host_folder=tmp_path / "host") as store:
        states = ObjectStateStore(store)
        for number, key in enumerate(KEYS):
            assert states.set(key, {"a": Payload.of(torch.tensor([number]))}, expected=0) == 1
        for number, key in enumerate(KEYS):
            assert int(states.get(key)[1]["a"].tensor()) == number and states.versions(key) == [1]


@pytest.mark.parametrize("key", ["state/solver", "state.solver", "part/0", "part.0", "a/.b", "", "a//b", "a b", "../a"])
def test_keys_of_others_and_keys_that_are_none_are_refused(tmp_path, key):
    with forebay.open(tmp_path / "store", host_folder=tmp_path / "host") as store:
        with pytest.raises(forebay.InputError, match="key"):
            ObjectStateStore(store).set(key, {"a": Payload.of(torch.arange(5))})
