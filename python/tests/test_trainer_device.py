"""Trainers whose weights lie on a CUDA device: the gradients of a CPU, states that come back bit by bit, and objects of a store.

Without a CUDA device they are skipped; FOREBAY_TESTS_DEVICE=cpu runs them there, to see that they run.
"""

import copy
import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import AdamW, Base, DirectoryStateStore, ObjectStateStore, PolicyGradient, Trainer  # noqa: E402
from tiny import difference, gradients, micro_batch, off_policy, qwen  # noqa: E402

DEVICE = torch.device(os.environ.get("FOREBAY_TESTS_DEVICE", "cuda:0"))
pytestmark = pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="needs a CUDA device")
OPTIONS = dict(
    objective=PolicyGradient(form="dapo", clip_high=0.28, kl=0.04, importance_cap=2.0),
    optimizer=AdamW(lr=0.01),
    rows_per_pass=2,  # the next pass is copied while the model computes on the one before
)


def joined(found: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.float().cpu().flatten() for _, tensor in sorted(found.items())])


def bits(trainer) -> dict[str, bytes]:
    return {name: bytes(payload.memory.cpu().numpy()) for name, payload in trainer.state().items()}


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3"])
@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_gradients_and_updates_are_those_of_the_cpu(kind, dtype, most):
    model = qwen(kind, dtype=dtype)
    batches = [off_policy(model, micro_batch(seed=seed)) for seed in range(3)]
    here, there = Trainer(copy.deepcopy(model), **OPTIONS), Trainer(copy.deepcopy(model).to(DEVICE), **OPTIONS)
    assert there.cache.flat.device == DEVICE
    for batch in batches:
        here.accumulate(batch)
        there.accumulate(batch)
    assert here.cache.tokens == there.cache.tokens
    found = difference(joined(gradients(there)), joined(gradients(here)))
    assert found < most, found
    before = joined(dict(model.named_parameters()))
    updates = here.commit(), there.commit()
    assert abs(updates[0].gradient_norm - updates[1].gradient_norm) <= most * updates[0].gradient_norm
    # A gradient near zero may have another sign there, and Adam's first step is the sign: of all weights nearly all move alike.
    moved = [joined(dict(trainer.model.named_parameters())) - before for trainer in (here, there)]
    alike = (moved[0] - moved[1]).abs() <= 0.1 * moved[0].abs() + 1e-7
    assert alike.float().mean() > (0.99 if dtype == torch.float32 else 0.9), float(alike.float().mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kept", ["directory", "objects"])
def test_a_state_in_the_middle_of_accumulation_goes_on_bit_by_bit(tmp_path, dtype, kept):
    # FX-57, FX-58: 2 of 4 micro-batches, then another trainer with other weights takes over.
    made = lambda seed: qwen(dtype=dtype, dropout=0.2, seed=seed).to(DEVICE).train()  # dropout: random state matters
    settings = {**OPTIONS, "objective": PolicyGradient(form="dapo")}
    parts = micro_batch().passes(2)
    with forebay.open(tmp_path / "store") as store:
        states = DirectoryStateStore(tmp_path / "states") if kept == "directory" else ObjectStateStore(store)
        first = Trainer(made(11), **settings)
        first.accumulate(micro_batch(seed=1))
        first.commit()  # moments are not zero
        for part in parts[:2]:
            first.accumulate(part)
        version, before = first.save(states, "solver/trainer"), bits(first)
        for part in parts[2:]:
            first.accumulate(part)
        first.commit()
        quiet = bits(first)
        first.suspend(states, "solver/other")

        second = Trainer(made(99), **settings)
        assert second.resume(states, "solver/trainer") == version
        assert bits(second) == before
        for part in parts[2:]:
            second.accumulate(part)
        second.commit()
        assert bits(second) == quiet
        assert all(parameter.device == DEVICE for parameter in second.model.parameters())


def test_a_suspended_trainer_leaves_no_memory_on_the_device(tmp_path):
    if DEVICE.type != "cuda":
        pytest.skip("a CPU does not count its memory")
    made = lambda: torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.Linear(2048, 2048)).to(DEVICE)
    loss = lambda model: model(torch.randn(4, 2048, device=DEVICE)).square().sum()
    loss(made()).backward()  # what torch keeps for products, whoever computes
    without = torch.cuda.memory_allocated(DEVICE)
    model = made()
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    trainer = Trainer(model, optimizer=AdamW(lr=0.01))
    trainer.add(loss(model), 4)
    trainer.commit()
    taken = lambda: torch.cuda.memory_allocated(DEVICE) - without
    assert taken() > 3 * weights  # weights, gradients, moments
    trainer.suspend(DirectoryStateStore(tmp_path), "solver/trainer")
    assert taken() < weights / 100
    trainer.resume(DirectoryStateStore(tmp_path), "solver/trainer")
    assert next(model.parameters()).device == DEVICE and taken() > 3 * weights


def test_adapters_of_one_base_learn_on_the_device():
    base = Base(qwen().to(DEVICE))
    solver, verifier = (
        base.adapter(name, rank=2, alpha=4, targets=["q_proj", "v_proj"], seed=seed)
        for seed, name in enumerate(["solver", "verifier"])
    )
    trainers = [Trainer(subject, optimizer=AdamW(lr=0.02)) for subject in (solver, verifier)]
    before = trainers[1].weight_fingerprint()
    trainers[0].accumulate(micro_batch(seed=1))
    trainers[0].commit()
    assert trainers[1].weight_fingerprint() == before
    assert trainers[0].cache.flat.device == DEVICE


def test_a_module_on_the_device_is_an_object_and_comes_back(tmp_path):
    model = qwen(dtype=torch.bfloat16).to(DEVICE)
    with forebay.open(tmp_path / "store") as store:
        store.objects.set("solver", model)
        other = qwen(dtype=torch.bfloat16, seed=99).to(DEVICE)
        held = store.objects.get("solver")
        held.verify()
        held.copy_to(other)
        for (name, one), (_, two) in zip(model.state_dict().items(), other.state_dict().items()):
            assert two.device == DEVICE and torch.equal(one, two), name


def test_a_claimed_batch_goes_to_the_device_padded_and_packed(tmp_path):
    import numpy as np

    with forebay.open(tmp_path / "store") as store:
        table = store.create_table("solver", {"response": "list<int32>", "reward": "float32"})
        store.create_consumer("train", tables=["solver"], kind="task", ready=["response", "reward"])
        random = np.random.default_rng(7)
        responses = [random.integers(0, 1000, 1 + 37 * row % 91).astype(np.int32) for row in range(16)]
        rewards = random.random(16).astype(np.float32)
        ids = [f"q{row}_0_0" for row in range(16)]
        table.insert(policy_version=0, sample_ids=ids, response=responses, reward=rewards)
        with store.consumer("train").claim(size=16) as claim:
            padded = claim.torch("response", device=DEVICE, pad=-1)
            assert padded.device == DEVICE
            assert torch.equal(claim.torch("reward", device=DEVICE).cpu(), torch.from_numpy(rewards))
            for row, response in zip(padded.cpu().numpy(), responses):
                assert (row[: len(response)] == response).all() and (row[len(response) :] == -1).all()
            claim.finish()
