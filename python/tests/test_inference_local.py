"""A model in this process as an instance, and what a real trainer publishes on its way to instances of all kinds."""

import concurrent.futures
import gc
import math
import pathlib
import threading
import types
import weakref

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
transformers = pytest.importorskip("transformers")

from forebay.inference import (  # noqa: E402
    InstanceRefusedError,
    InstanceTimeoutError,
    Rollouts,
    Rotation,
    Sampling,
    ServerInstance,
    SglangServer,
    Subscriber,
    Template,
    VllmServer,
    WrongWeightsError,
    read_publication,
    write_checkpoint,
)
from forebay import InputError  # noqa: E402
from forebay.inference import local  # noqa: E402
from forebay.inference.local import LocalInstance, sample  # noqa: E402
from forebay.trainer import AdamW, Base, DirectoryStateStore, PolicyGradient, Trainer  # noqa: E402
from standin_sglang import Sglang  # noqa: E402
from standin_vllm import Vllm  # noqa: E402
from standins import token_of  # noqa: E402
from tiny import micro_batch, qwen  # noqa: E402

FOUR = Sampling(max_tokens=4)
TIMEOUT_S = 30


@pytest.fixture
def states(tmp_path):
    return DirectoryStateStore(tmp_path / "states")


def moved(trainer, seed=0):
    trainer.accumulate(micro_batch(seed=seed))
    trainer.commit()
    return trainer


def published(states, trainer):
    trainer.publish(states, "weights")
    return read_publication(states.get("weights")[1])


def test_the_fingerprint_of_what_is_read_is_the_trainers(states):
    trainer = moved(Trainer(qwen(dtype=torch.bfloat16), optimizer=AdamW(lr=0.01)))
    publication = published(states, trainer)
    assert publication.version.number == trainer.version == 1
    assert publication.version.fingerprint == trainer.weight_fingerprint()
    for name, weights in trainer.weights().items():
        assert bytes(publication.memory(publication.tensors[name])) == weights.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("frozen", [False, True])
def test_transformers_loads_the_directory_that_is_written(states, tmp_path, frozen):
    model = qwen(dtype=torch.bfloat16)
    model.model.layers[0].mlp.requires_grad_(not frozen)
    model.save_pretrained(tmp_path / "template")
    trainer = moved(Trainer(model, optimizer=AdamW(lr=0.01)))
    made = write_checkpoint(published(states, trainer), Template(tmp_path / "template"), tmp_path / "made")
    loaded, state = transformers.AutoModelForCausalLM.from_pretrained(made.directory, dtype="auto"), model.state_dict()
    assert loaded.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())


def test_peft_loads_the_directory_of_an_adapter(states, tmp_path):
    peft = pytest.importorskip("peft")
    trainer = Trainer(Base(qwen()).adapter("solver", rank=4, seed=1), optimizer=AdamW(lr=0.1))
    trainer.save_pretrained(tmp_path / "template")
    moved(trainer)
    made = write_checkpoint(published(states, trainer), Template(tmp_path / "template"), tmp_path / "made")
    assert made.is_adapter
    tokens = micro_batch().input_ids
    with torch.no_grad(), trainer.subject.active():
        wanted = trainer.model(tokens).logits
        found = peft.PeftModel.from_pretrained(qwen(), made.directory)(tokens).logits
    assert torch.allclose(found, wanted, atol=1e-5)


def test_a_model_answers_with_the_version_that_it_holds(states):
    trainer = moved(Trainer(qwen(), optimizer=AdamW(lr=0.05)))
    rotation = Rotation([LocalInstance(trainer.model)])
    assert rotation.update(published(states, trainer)) == {"local": None}
    before = {name: weights.clone() for name, weights in trainer.weights().items()}
    for seed in range(1, 4):
        moved(trainer, seed)  # the trainer moves on; the instance does not
    made = Rollouts(rotation).generate([1, 2, 3], sampling=Sampling(max_tokens=6, stop_token_ids=()))
    assert made.version.number == 1 and made.evidence == "memory" and made.finish == "length"
    old = qwen()
    old.load_state_dict({**old.state_dict(), **before})
    tokens = torch.tensor([[1, 2, 3, *made.tokens]])
    wanted = torch.log_softmax(old(tokens).logits[0, 2:-1].float(), -1).gather(1, tokens[0, 3:, None])[:, 0]
    assert torch.allclose(torch.tensor(made.logprobs), wanted, atol=1e-5)
    assert rotation.update(published(states, trainer)) == {"local": None}
    assert Rollouts(rotation).generate([1], sampling=FOUR).stamp == {
        "policy_version": 4, "weights": trainer.weight_fingerprint(),
    }  # fmt: skip


class Fixed(torch.nn.Module):
    """A model whose next token does not depend on the tokens before."""

    def __init__(self, shares):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.log(torch.tensor(shares)))

    def forward(self, input_ids, use_cache):
        return types.SimpleNamespace(logits=self.logits.expand(1, input_ids.shape[1], -1))


@pytest.mark.parametrize(
    "top_p, temperature, shares",
    [
        (1.0, 1.0, [0.1, 0.5, 0.1, 0.3]), (0.7, 1.0, [0, 0.625, 0, 0.375]), (0.85, 1.0, [0.1 / 0.9, 0.5 / 0.9, 0, 0.3 / 0.9]),
        (0.45, 1.0, [0, 1, 0, 0]), (0.01, 1.0, [0, 1, 0, 0]), (0.8, 0.0, [0, 1, 0, 0]),
    ],
)  # fmt: skip
def test_tokens_are_drawn_of_the_likeliest_that_have_top_p_together(top_p, temperature, shares):
    torch.manual_seed(1)
    sampling = Sampling(max_tokens=400, top_p=top_p, temperature=temperature)
    tokens, logprobs, _ = sample(Fixed([0.1, 0.5, 0.1, 0.3]), (0,), sampling)
    for token, logprob in zip(tokens, logprobs):
        if temperature > 0:
            wanted = shares[token] or shares[{0: 2, 2: 0}[token]]  # of two that are as likely either may be left out
            assert logprob == pytest.approx(math.log(wanted), abs=1e-5)
    assert len(set(tokens)) == sum(share > 0 for share in shares)


def test_what_a_model_here_does_not_know_of_sampling_is_refused(states):
    trainer = moved(Trainer(qwen(), optimizer=AdamW(lr=0.05)))
    rotation = Rotation([LocalInstance(trainer.model)])
    rotation.update(published(states, trainer))
    for sampling in (Sampling(extra={"top_k": 5}), Sampling(top_p=0.0), Sampling(top_p=1.5)):
        with pytest.raises(InputError, match="extra|top_p"):
            Rollouts(rotation).generate([1], sampling=sampling)
    assert rotation.states()[0].is_in_rotation and rotation.states()[0].requests == 0
    known = LocalInstance(trainer.model, generate=lambda model, prompt, sampling: ([sampling.extra["top_k"]], [-0.5], "stop"))
    rotation = Rotation([known])
    rotation.update(published(states, trainer))
    assert Rollouts(rotation).generate([1], sampling=Sampling(extra={"top_k": 5})).tokens == (5,)


@pytest.mark.parametrize("is_own", [False, True])
def test_a_model_here_answers_in_time_or_says_so(states, is_own, monkeypatch):
    trainer = moved(Trainer(qwen(), optimizer=AdamW(lr=0.05)))
    slow = lambda model, prompt, sampling: sample(model, prompt, sampling)
    rotation = Rotation([LocalInstance(trainer.model, generate=slow if is_own else None)])
    rotation.update(published(states, trainer))
    made = []

    def monotonic():
        made.append(1)
        return float(len(made))  # a second passes whenever somebody looks

    monkeypatch.setattr(local, "time", types.SimpleNamespace(monotonic=monotonic))
    with pytest.raises(InstanceTimeoutError, match="no answer within"):
        Rollouts(rotation).generate([1], sampling=Sampling(max_tokens=64), timeout_s=3.0 if not is_own else 0.5)
    assert rotation.states()[0].is_in_rotation
    assert is_own or 2 <= len(made) <= 8


def test_a_request_keeps_its_model_and_the_next_gets_the_new_one(states):
    began, may_end = threading.Event(), threading.Event()
    models = []

    def waiting(model, prompt, sampling):
        models.append(weakref.ref(model))
        if len(models) == 1:
            began.set()
            assert may_end.wait(TIMEOUT_S)
        return sample(model, prompt, sampling)

    trainer = moved(Trainer(qwen(), optimizer=AdamW(lr=0.05)))
    rotation = Rotation([LocalInstance(trainer.model, generate=waiting)])
    rotation.update(published(states, trainer))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(Rollouts(rotation).generate, [1], sampling=FOUR)
        assert began.wait(TIMEOUT_S)
        moved(trainer, 1)
        assert rotation.update(published(states, trainer)) == {"local": None}
        assert Rollouts(rotation).generate([1], sampling=FOUR).version.number == 2
        may_end.set()
        assert asked.result().version.number == 1
    del asked
    gc.collect()
    assert models[0]() is None and models[1]() is not None  # the old version's memory is free


def test_an_adapter_is_exchanged_over_a_base_that_is_shared(states):
    # PL-B15
    base = Base(qwen())
    trainer = Trainer(base.adapter("solver", rank=4, seed=1), optimizer=AdamW(lr=0.1))
    base.adapter("verifier", rank=4, seed=2)
    moved(trainer)
    instance = LocalInstance(trainer.subject)
    rotation = Rotation([instance])
    rotation.update(published(states, trainer))
    model = rotation.held("local").model
    tokens = micro_batch().input_ids
    with torch.no_grad():
        with trainer.subject.active():
            wanted = trainer.model(tokens).logits
        assert torch.equal(model(tokens).logits, wanted)  # whichever adapter is active elsewhere
    shared = {parameter.data_ptr() for parameter in model.parameters()} & {p.data_ptr() for p in base.model.parameters()}
    assert len(shared) >= len(list(base.named()))  # the base is there once


def test_what_the_model_does_not_have_is_refused_and_the_one_before_serves(states):
    trainer = moved(Trainer(qwen(), optimizer=AdamW(lr=0.05)))
    rotation = Rotation([LocalInstance(trainer.model)], max_lag=9)
    rotation.update(published(states, trainer))
    other = qwen("Qwen2")  # has biases
    told = rotation.update(published(states, moved(moved(Trainer(other, optimizer=AdamW(lr=0.05))))))["local"]
    assert isinstance(told, WrongWeightsError) and told.is_untouched and "has no parameter" in str(told)
    assert Rollouts(rotation).generate([1], sampling=FOUR).version.number == 1
    with pytest.raises(InstanceRefusedError, match="no template"):
        Rollouts(rotation).chat([{"role": "user", "content": "2+2"}])


def test_a_trainers_versions_reach_servers_and_models_and_come_back_on_rows(states, tmp_path):
    # PL-08: published once an update; every row has the version and the weights that made it.
    model = qwen()
    model.save_pretrained(tmp_path / "template")
    standins = [Vllm(tmp_path / "template"), Sglang(tmp_path / "template")]
    servers = [VllmServer(standins[0].url, name="vllm"), SglangServer(standins[1].url, name="sglang")]
    rotation = Rotation([LocalInstance(model), *(ServerInstance(server) for server in servers)])
    trainer = Trainer(model, optimizer=AdamW(lr=0.05), objective=PolicyGradient())
    rows = []
    with Subscriber(states, "weights", rotation, template=tmp_path / "template", directory=tmp_path / "served") as subscriber:
        for step in range(1, 4):
            assert trainer.publish(states, "weights") == step
            subscriber.wait(trainer.version, timeout_s=TIMEOUT_S)
            expected = token_of(subscriber.directory / rotation.aim.label)
            leases = [rotation.lease(1) for _ in range(3)]
            names = {lease.__enter__().instance.name for lease in leases}
            assert names == {"local", "vllm", "sglang"}
            [lease.__exit__(None, None, None) for lease in leases]
            for _ in range(3):
                made = Rollouts(rotation).generate([1], sampling=FOUR)
                assert made.stamp == {"policy_version": trainer.version, "weights": trainer.weight_fingerprint()}
                assert made.instance == "local" or set(made.tokens) == {expected}
                rows.append(made.stamp)
            moved(trainer, step)
    assert len({row["weights"] for row in rows}) == 3
    [standin.stop() for standin in standins]


def test_the_program_of_the_documentation_runs(tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "inference.md").read_text()
    (program,) = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    exec(compile(program.replace("run/", f"{tmp_path}/"), "inference.md", "exec"), {})
