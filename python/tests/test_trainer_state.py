"""States: stored, restored bit by bit, moved to another process, and kept in a directory that cannot be fooled."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from random import Random

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")
transformers = pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import (  # noqa: E402
    AdamW,
    DirectoryStateStore,
    LayoutError,
    Payload,
    PolicyGradient,
    Trainer,
    VersionConflictError,
)
from forebay.trainer.flat import storage_bytes  # noqa: E402
from forebay.trainer.objective import identity_of  # noqa: E402
from tiny import micro_batch, qwen, unchanged  # noqa: E402

OPTIONS = dict(optimizer=AdamW(lr=0.01))


def model(dtype=torch.bfloat16, frozen=True, **options):
    made = qwen(dtype=dtype, dropout=0.2, **options).train()  # dropout: random state matters
    made.model.layers[0].mlp.requires_grad_(not frozen)
    return made


def train(trainer, parts) -> None:
    for part in parts:
        trainer.accumulate(part, claim=str(part.tokens))


def bits(trainer) -> dict[str, bytes]:
    return {name: payload.memory.numpy().tobytes() for name, payload in trainer.state().items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_in_the_middle_of_accumulation_goes_on_elsewhere_bit_by_bit(tmp_path, dtype):
    # FX-57, FX-58: 2 of 4 micro-batches here, 2 in another process.
    store, parts = DirectoryStateStore(tmp_path), micro_batch().passes(2)
    trainer = Trainer(model(dtype), **OPTIONS)
    train(trainer, micro_batch(seed=1).passes(2))
    trainer.commit()  # moments are not zero
    train(trainer, parts[:2])
    assert trainer.suspend(store, "solver/trainer") == 1
    program = f"""
        import torch
        from forebay.trainer import DirectoryStateStore, Trainer
        from test_trainer_state import OPTIONS, micro_batch, model, train
        store = DirectoryStateStore({str(tmp_path)!r})
        trainer = Trainer(model({dtype}, seed=99), **OPTIONS)  # other weights than those that are resumed
        torch.manual_seed(1234)
        assert trainer.resume(store, "solver/trainer") == 1 and trainer.version == 1
        train(trainer, micro_batch().passes(2)[2:])
        store.set("gradient", trainer.state())
        trainer.commit()
        store.set("committed", trainer.state())
    """
    here = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, env=environment)
    trainer.resume(store, "solver/trainer")
    train(trainer, parts[2:])
    for key in ("gradient", "committed"):
        _, elsewhere = store.get(key)
        here_now = bits(trainer)
        assert here_now.keys() == elsewhere.keys() and "rng.cpu" in here_now and "frozen." in str(here_now.keys())
        for name, payload in elsewhere.items():
            assert here_now[name] == payload.memory.numpy().tobytes(), (key, name)
        if key == "gradient":
            assert len(trainer.claims) == 4
            assert trainer.commit().version == 2


def test_a_trainer_that_was_never_suspended_comes_to_the_same_bits(tmp_path):
    # FX-57
    found = []
    for is_suspended in (False, True):
        torch.manual_seed(3)
        trainer = Trainer(model(), **OPTIONS)
        torch.manual_seed(8)
        for part in micro_batch().passes(2):
            train(trainer, [part])
            if is_suspended:
                trainer.suspend(DirectoryStateStore(tmp_path), "key")
                torch.rand(7)
                trainer.resume(DirectoryStateStore(tmp_path), "key")
        trainer.commit()
        found.append(bits(trainer))
    assert found[0] == found[1]


def test_a_suspended_trainer_holds_no_memory_and_refuses_everything(tmp_path):
    trainer, batch = Trainer(model(), **OPTIONS), micro_batch()
    trainer.accumulate(batch)
    held = sum(trainer.bytes.values())
    before = bits(trainer)
    trainer.suspend(DirectoryStateStore(tmp_path), "key")
    assert held > 0 and sum(trainer.bytes.values()) == 0
    assert storage_bytes(*trainer.model.parameters()) <= 4 * len(list(trainer.model.parameters()))
    with torch.no_grad():
        assert trainer.model(batch.input_ids).logits.isnan().all()  # nothing that could be taken for an answer
    calls = [
        lambda: trainer.accumulate(batch), trainer.commit, trainer.state, trainer.adopt, trainer.weights,
        lambda: trainer.suspend(DirectoryStateStore(tmp_path), "key"), lambda: trainer.load(tmp_path),
        trainer.weight_fingerprint, lambda: trainer.save_pretrained(tmp_path / "out"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(forebay.StateError, match="suspended.*resume"):
            call()
    trainer.resume(DirectoryStateStore(tmp_path), "key")
    assert sum(trainer.bytes.values()) == held and bits(trainer) == before


def test_a_state_is_views_of_the_buffers():
    trainer = Trainer(model())
    state = trainer.state()
    assert state["gradient"].memory.data_ptr() == trainer.cache.flat.data_ptr()
    assert state["weights.bfloat16"].memory.data_ptr() == trainer.model.model.embed_tokens.weight.data_ptr()
    assert {name: payload.dtype for name, payload in state.items()} == {
        "weights.bfloat16": "bfloat16", "frozen.bfloat16": "bfloat16", "master": "float32", "exp_avg": "float32",
        "exp_avg_sq": "float32", "gradient": "float32", "counters": "uint8", "rng.cpu": "uint8",
    }  # fmt: skip
    assert all(payload.tensor().numel() * payload.tensor().itemsize == payload.memory.numel() for payload in state.values())


def test_buffers_that_a_module_stores_belong_to_its_state():
    make = lambda: torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    one, other = Trainer(make()), Trainer(make())
    one.model(torch.randn(8, 3))
    other.restore(one.state())
    assert torch.equal(other.model[1].running_mean, one.model[1].running_mean) and other.model[1].num_batches_tracked == 1


OTHERS = {
    "layout": (lambda: qwen("Qwen2", dtype=torch.bfloat16), "another|layout"),
    "type": (lambda: model(torch.float32), "layout"),
    "what is trained": (lambda: model(frozen=False), "layout"),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_state_of_something_else_is_refused_and_changes_nothing(tmp_path, other, is_suspended):
    make, message = OTHERS[other]
    trainer = Trainer(model())
    state = {name: Payload(*payload[:2], payload.memory.clone()) for name, payload in Trainer(make()).state().items()}
    before = bits(trainer)
    if is_suspended:
        trainer.suspend(DirectoryStateStore(tmp_path), "key")
    with pytest.raises(LayoutError, match=message):
        trainer.restore(state)
    if is_suspended:
        trainer.resume(DirectoryStateStore(tmp_path), "key")
    assert bits(trainer) == before


@pytest.mark.parametrize("missing", ["gradient", "exp_avg", "counters", "frozen.bfloat16"])
@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_state_that_misses_a_payload_is_refused_and_changes_nothing(tmp_path, missing, is_suspended):
    trainer = Trainer(model())
    trainer.accumulate(micro_batch())
    state = {name: Payload(*payload[:2], payload.memory.clone()) for name, payload in trainer.state().items()}
    before = bits(trainer)
    del state[missing]
    if is_suspended:
        trainer.suspend(DirectoryStateStore(tmp_path), "key")
    with pytest.raises(LayoutError, match=f"no payload {missing!r}"):
        trainer.restore(state)
    if is_suspended:
        assert sum(trainer.bytes.values()) == 0
        trainer.resume(DirectoryStateStore(tmp_path), "key")
    assert bits(trainer) == before


def test_counters_and_moments_come_back(tmp_path):
    one = Trainer(model(), **OPTIONS)
    for step in range(3):
        train(one, [micro_batch(seed=step)])
        update = one.commit()
    train(one, [micro_batch(seed=9)])
    other = Trainer(model(seed=4), **OPTIONS)
    other.restore(one.state())
    assert (other.version, other.updates, other.claims) == (3, 3, one.claims) and update.version == 3
    assert one.commit() == other.commit() and one.weight_fingerprint() == other.weight_fingerprint()


class Interrupted:
    """A trainer to which everything happens that may happen between two micro-batches."""

    def __init__(self, path, random):
        self.path, self.random, self.number = path, random, 0
        self.store = DirectoryStateStore(path / "states")
        self.trainer = Trainer(model(), **OPTIONS)

    def suspended(self):
        self.trainer.suspend(self.store, "key")
        torch.rand(3)
        self.trainer.resume(self.store, "key")

    def elsewhere(self):
        state = self.trainer.state()
        self.trainer = Trainer(model(seed=self.random.randint(0, 99)), **OPTIONS)
        self.trainer.restore(state)

    def refused(self):
        other = Trainer(qwen("Qwen2", dtype=torch.bfloat16)).state()
        with pytest.raises(LayoutError):
            self.trainer.restore(other)

    def failing(self):
        wrong = micro_batch().tensors()
        wrong["input_ids"] = wrong["input_ids"] + 1000
        random = torch.get_rng_state()
        with pytest.raises(IndexError):
            self.trainer.accumulate(type(micro_batch()).of(**wrong))
        torch.set_rng_state(random)

    def moved(self):
        if not self.trainer.cache.is_empty or self.trainer.updates:
            return  # narrow weights are taken in as they are, and the master's digits are lost
        norm = self.trainer.model.model.norm.weight
        norm.data = norm.data.clone()
        with pytest.raises(forebay.StateError, match="norm.weight"):
            self.trainer.accumulate(micro_batch())
        self.trainer.adopt()

    def published(self):
        self.number += 1
        self.trainer.publish(self.store, "weights")
        self.trainer.save_pretrained(self.path / f"v{self.number}")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_happens_between_micro_batches_the_bits_are_those_of_a_quiet_run(tmp_path, seed):
    # FX-57, FX-58
    print("seed", seed)
    random = Random(seed)
    quiet, loud = Trainer(model(), **OPTIONS), Interrupted(tmp_path, random)
    events = [loud.suspended, loud.elsewhere, loud.refused, loud.failing, loud.moved, loud.published]
    for number in range(16):
        batch = micro_batch(rows=random.randint(1, 6), seed=number)
        event, is_commit = random.choice(events), random.random() < 0.4
        state = torch.get_rng_state()
        quiet.accumulate(batch, claim=str(number))
        update = quiet.commit() if is_commit else None
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        event()
        torch.set_rng_state(state)
        loud.trainer.accumulate(batch, claim=str(number))
        assert (loud.trainer.commit() if is_commit else None) == update
        assert torch.equal(torch.get_rng_state(), after)
        assert bits(loud.trainer) == bits(quiet), (seed, number, event.__name__)


# Weights in and out


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_saved_weights_are_read_by_transformers_and_by_a_trainer(tmp_path, kind, tied):
    trainer, batch = Trainer(qwen(kind, tied=tied), **OPTIONS), micro_batch()
    trainer.accumulate(batch)
    trainer.commit()
    trainer.save_pretrained(tmp_path / "v1")
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "v1")
    with torch.no_grad():
        assert torch.equal(read(batch.input_ids).logits, trainer.model(batch.input_ids).logits)
    other = Trainer(qwen(kind, tied=tied, seed=5))
    other.load(tmp_path / "v1")
    assert other.weight_fingerprint() == trainer.weight_fingerprint()
    other.accumulate(batch)  # loading was not somebody else's
    with pytest.raises(forebay.InputError, match="v1 exists"):
        trainer.save_pretrained(tmp_path / "v1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v1"]


def test_loaded_values_go_to_the_master_of_narrow_weights(tmp_path):
    Trainer(qwen(dtype=torch.bfloat16, seed=5)).save_pretrained(tmp_path / "v1")
    trainer = Trainer(qwen(dtype=torch.bfloat16), optimizer=AdamW(lr=0.0))
    before = trainer.weight_fingerprint()
    trainer.load(tmp_path / "v1")
    loaded = trainer.weight_fingerprint()
    trainer.accumulate(micro_batch())
    trainer.commit()  # an update of nothing
    assert trainer.weight_fingerprint() == loaded != before


def test_a_module_of_one_s_own_is_saved_as_safetensors(tmp_path):
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3)})
    module["b"].weight = module["a"].weight
    trainer = Trainer(torch.compile(module))
    trainer.save_pretrained(tmp_path / "v1")
    with safetensors.safe_open(tmp_path / "v1" / "model.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["a.bias", "a.weight", "b.bias"]
        assert torch.equal(file.get_tensor("a.weight"), module["a"].weight)


def test_loading_other_shapes_changes_nothing(tmp_path):
    from safetensors.torch import save_file

    trainer = Trainer(torch.nn.Linear(3, 2))
    save_file({"weight": torch.ones(2, 3), "bias": torch.ones(5)}, tmp_path / "shape.safetensors")
    save_file({"weight": torch.ones(2, 3)}, tmp_path / "missing.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"no tensors")
    cases = {"shape": (LayoutError, r"'bias' has the shape \[5\]"), "missing": (LayoutError, "no tensor 'bias'")}
    with unchanged(trainer):
        for name, (error, message) in {**cases, "broken": (forebay.CorruptError, "broken.safetensors")}.items():
            with pytest.raises(error, match=message):
                trainer.load(tmp_path / f"{name}.safetensors")
        with pytest.raises(forebay.InputError, match="no file, and no directory"):
            trainer.load(tmp_path / "nowhere")
        trainer.add(trainer.model(torch.ones(3)).sum(), 1.0)
        with pytest.raises(forebay.StateError, match="drop"):
            trainer.load(tmp_path / "shape.safetensors")
        trainer.drop()


def test_published_weights_say_where_each_tensor_lies(tmp_path):
    store, trainer = DirectoryStateStore(tmp_path), Trainer(model(), version=7)
    assert trainer.publish(store, "solver/weights", expected=0) == 1
    _, payloads = store.get("solver/weights")
    manifest = json.loads(payloads["manifest"].memory.numpy().tobytes())
    assert manifest["version"] == 7 and manifest["fingerprint"] == trainer.weight_fingerprint()
    for told in manifest["tensors"]:
        flat = payloads[f"weights.{told['dtype']}"].tensor()
        values = flat[told["offset"] :][: torch.Size(told["shape"]).numel()].view(told["shape"])
        assert torch.equal(values, trainer.weights()[told["name"]])


# The directory


def payloads(number: float) -> dict[str, Payload]:
    return {"a": Payload.of(torch.full((1000,), number)), "b": Payload.of(torch.arange(3))}


def test_versions_count_and_never_change(tmp_path):
    store = DirectoryStateStore(tmp_path)
    assert [store.set("a/b", payloads(number)) for number in (1.0, 2.0)] == [1, 2]
    assert store.get("a/b")[0] == 2 and store.get("a/b")[1]["a"].tensor()[0] == 2.0
    assert store.get("a/b", 1)[1]["a"].tensor()[0] == 1.0 and store.versions("a/b") == [1, 2]
    with safetensors.safe_open(tmp_path / "a" / "b" / "00000001.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("b"), torch.arange(3))
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["00000001.safetensors", "00000002.safetensors"]


@pytest.mark.parametrize("expected", [0, 2, 3])
def test_a_version_that_is_not_the_latest_is_refused(tmp_path, expected):
    store = DirectoryStateStore(tmp_path)
    store.set("key", payloads(1.0), expected=0)
    with pytest.raises(VersionConflictError, match=f"version 1, and {expected} was expected"):
        store.set("key", payloads(2.0), expected=expected)
    assert store.versions("key") == [1]


@pytest.mark.parametrize("expected", [True, False])
def test_of_writers_that_race_each_gets_a_version_of_its_own_or_is_told(tmp_path, expected):
    store, won, told = DirectoryStateStore(tmp_path), [], []

    def write(number):
        try:
            won.append((store.set("key", payloads(number), expected=0 if expected else None), number))
        except VersionConflictError:
            told.append(number)

    threads = [threading.Thread(target=write, args=(float(number),)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(won) == (1 if expected else 8) and len(won) + len(told) == 8
    assert sorted(version for version, _ in won) == store.versions("key") == list(range(1, len(won) + 1))
    assert all(store.get("key", version)[1]["a"].tensor()[0] == number for version, number in won)


def test_what_is_not_there_is_named(tmp_path):
    store = DirectoryStateStore(tmp_path)
    with pytest.raises(forebay.StateError, match="'key'.*nothing was stored"):
        store.get("key")
    store.set("key", payloads(1.0))
    with pytest.raises(forebay.StateError, match="no version 5.*1 to 1"):
        store.get("key", 5)
    for key in ("", "../key", "a//b", "/a", ".hidden", "a/.."):
        with pytest.raises(forebay.InputError, match="no key"):
            store.set(key, payloads(1.0))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damage_is_named_with_its_file(tmp_path, damage):
    store = DirectoryStateStore(tmp_path)
    store.set("key", payloads(1.0))
    file = tmp_path / "key" / "00000001.safetensors"
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes({"flip": bytes(content), "cut": bytes(content[:-9]), "empty": b""}[damage])
    with pytest.raises(forebay.CorruptError, match="00000001.safetensors.*earlier version"):
        store.get("key")


def test_a_writer_that_is_killed_leaves_no_version_and_its_file_is_removed(tmp_path):
    program = f"""
        import os, signal, torch
        from forebay.trainer import DirectoryStateStore, directory
        from test_trainer_state import payloads
        directory.os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        DirectoryStateStore({str(tmp_path)!r}).set("key", payloads(2.0))
    """
    store = DirectoryStateStore(tmp_path)
    store.set("key", payloads(1.0))
    here = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment)
    assert killed.returncode == -9 and len(list((tmp_path / "key").iterdir())) == 2
    assert store.get("key")[0] == 1
    assert store.set("key", payloads(3.0)) == 2
    assert sorted(path.name for path in (tmp_path / "key").iterdir()) == ["00000001.safetensors", "00000002.safetensors"]


def test_a_suspension_that_is_refused_leaves_the_trainer_at_work(tmp_path):
    trainer = Trainer(model(), **OPTIONS)
    trainer.accumulate(micro_batch())
    with unchanged(trainer):
        with pytest.raises(VersionConflictError, match="version 0, and 5 was expected"):
            trainer.suspend(DirectoryStateStore(tmp_path), "key", expected=5)
    assert not trainer.is_suspended and trainer.commit().version == 1


def test_a_writer_that_fails_leaves_no_version(tmp_path, monkeypatch):
    from forebay.trainer import directory

    store = DirectoryStateStore(tmp_path)
    store.set("key", payloads(1.0))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directory.os, "fsync", full)
    with pytest.raises(forebay.CapacityError, match="No space left"):
        store.set("key", payloads(2.0))
    assert [path.name for path in (tmp_path / "key").iterdir()] == ["00000001.safetensors"]


# What a state is of, and what it is not


FORMS = {
    "grpo": PolicyGradient(form="grpo"),
    "dapo": PolicyGradient(form="dapo"),
    "dr_grpo": PolicyGradient(form="dr_grpo", length=9),
    "dr_grpo longer": PolicyGradient(form="dr_grpo", length=10),
    "clipped": PolicyGradient(form="dapo", clip_high=0.28),
}


@pytest.mark.parametrize("one, other", [(one, other) for one in FORMS for other in FORMS])
def test_gradients_of_one_loss_are_not_added_to_those_of_another(one, other):
    from ranks import Model, logprobs

    make = lambda form: Trainer(Model(3), objective=replace(FORMS[form], forward=logprobs))
    first, second = make(one), make(other)
    second.restore(first.state())  # nothing is in the cache
    first.accumulate(micro_batch())
    if one == other:
        second.restore(first.state())
        assert second.cache.denominator == first.cache.denominator
        return
    with unchanged(second), pytest.raises(LayoutError, match="gradients of the loss .*PolicyGradient.*do not add up"):
        second.restore(first.state())


@pytest.mark.parametrize("objective", [PolicyGradient(), PolicyGradient(forward=lambda *_: None)])
def test_what_a_loss_is_called_is_the_same_in_every_process(objective):
    assert " at 0x" not in identity_of(objective)


def counters(trainer, text: bytes):
    return {**trainer.state(), "counters": Payload.of(torch.frombuffer(bytearray(text), dtype=torch.uint8))}


def changed(**change):
    def of(trainer):
        told = json.loads(trainer.state()["counters"].memory.numpy().tobytes())
        return counters(trainer, json.dumps({**told, **change}).encode())

    return of


RNG = lambda tensor: lambda trainer: {**trainer.state(), "rng.cpu": Payload.of(tensor)}
DAMAGED = {
    "no json": lambda trainer: counters(trainer, b"xx"),
    "no text": lambda trainer: counters(trainer, b"\xff\xfe"),
    "nested": lambda trainer: counters(trainer, b"[" * 100_000),
    "a list": lambda trainer: counters(trainer, b"[]"),
    "a number": lambda trainer: counters(trainer, b"7"),
    "no layout": changed(layout=None),
    "no version": changed(version=None),
    "a negative version": changed(version=-1),
    "a version that is a text": changed(version="1"),
    "updates that are a fraction": changed(updates=0.5),
    "claims that are a mapping": changed(claims={}),
    "a claim without rows": changed(claims=[{"table": "solver"}]),
    "a denominator that is none": changed(denominator=float("inf")),
    "a negative denominator": changed(denominator=-1.0),
    "metrics that are a list": changed(metrics=[1]),
    "applied rows that are none": changed(applied={"solver": [[1]]}),
    "an update that is none": changed(update={"version": 1}),
    "no subject": changed(subject=None),
    "random state of three bytes": RNG(torch.zeros(3, dtype=torch.uint8)),
    "random state of another type": RNG(torch.zeros(3)),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_state_that_is_damaged_is_refused_and_changes_nothing(case):
    trainer = Trainer(torch.nn.Linear(3, 2))
    with unchanged(trainer), pytest.raises(forebay.CorruptError, match="take an earlier version"):
        trainer.restore(DAMAGED[case](trainer))


@pytest.mark.parametrize("sums", ["[1]", "5", "null", '"x"', "[" * 100_000])
def test_a_file_whose_checksums_are_no_mapping_is_refused_by_name(tmp_path, sums):
    from safetensors.torch import save_file

    store = DirectoryStateStore(tmp_path)
    (tmp_path / "key").mkdir()
    save_file({"a": torch.ones(3)}, tmp_path / "key" / "00000001.safetensors", {"crc32": sums})
    with pytest.raises(forebay.CorruptError, match="00000001.*take an earlier version"):
        store.get("key")


def test_a_directory_in_the_place_of_a_version_is_refused_by_name(tmp_path):
    (tmp_path / "key" / "00000001.safetensors").mkdir(parents=True)
    with pytest.raises(forebay.CorruptError, match="00000001.*take an earlier version"):
        DirectoryStateStore(tmp_path).get("key")
