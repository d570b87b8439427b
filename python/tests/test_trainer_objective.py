"""Losses: against formulas written down a second time, and against TRL's own gradients."""

import copy
import dataclasses
import functools
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import MicroBatch, PolicyGradient, Trainer, token_logprobs  # noqa: E402
from forebay.trainer.objective import identity_of  # noqa: E402
from tiny import VOCABULARY, difference, gradients, micro_batch, off_policy, qwen  # noqa: E402


def by_rows(logprobs, batch, *, form, low, high, kl, cap, length) -> float:
    """The loss of a whole batch, a token at a time in Python's own numbers."""
    rows, tokens = [], 0
    for row in range(batch.rows):
        losses = []
        for t in range(batch.input_ids.shape[1]):
            if not batch.loss_mask[row, t]:
                continue
            advantage = float(batch.advantages[row, 0])
            now, old, sampler, base = (
                float(table[row, t])
                for table in (logprobs, batch.old_logprobs, batch.behaviour_logprobs, batch.reference_logprobs)
            )
            ratio = 2.718281828459045 ** (now - old)
            loss = -min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
            if cap is not None:
                loss *= min(2.718281828459045 ** (old - sampler), cap)
            losses.append(loss + kl * (2.718281828459045 ** (base - now) - (base - now) - 1))
        rows.append(losses)
        tokens += len(losses)
    if form == "grpo":
        return sum(sum(losses) / max(len(losses), 1) for losses in rows) / len(rows)
    return sum(map(sum, rows)) / (tokens if form == "dapo" else len(rows) * length)


@pytest.mark.parametrize("form, length", [("grpo", None), ("dapo", None), ("dr_grpo", 9)])
@pytest.mark.parametrize("kl, cap", [(0.0, None), (0.07, None), (0.0, 1.1), (0.07, 1.1)])
def test_losses_are_their_formulas(form, length, kl, cap):
    model = qwen()
    batch = off_policy(model, micro_batch())
    objective = PolicyGradient(form=form, length=length, clip_low=0.1, clip_high=0.28, kl=kl, importance_cap=cap)
    with torch.no_grad():
        logprobs = objective.logprobs(model, batch)
    found = objective(logprobs, batch)
    expected = by_rows(logprobs, batch, form=form, low=0.1, high=0.28, kl=kl, cap=cap, length=length)
    assert float(found.value) / found.denominator == pytest.approx(expected, rel=1e-5)
    assert 0 < float(found.metrics["clip_share"]) < batch.tokens


def test_log_probabilities_are_those_of_the_model():
    model, batch = qwen(), micro_batch()
    with torch.no_grad():
        found = token_logprobs(model, batch, temperature=0.7)
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits / 0.7
    every = torch.log_softmax(logits, -1)
    for row in range(batch.rows):
        for t in range(1, batch.input_ids.shape[1]):
            assert found[row, t] == pytest.approx(float(every[row, t - 1, batch.input_ids[row, t]]), abs=1e-5)
    assert not found[:, 0].any()


def test_what_fills_rows_up_has_no_say():
    """Masked places may hold anything, numbers too large for exp among them."""
    model = qwen()
    batch = off_policy(model, micro_batch())
    wild = {
        name: torch.where(batch.loss_mask != 0, getattr(batch, name), 1e4 * (-1) ** number)
        for number, name in enumerate(("old_logprobs", "behaviour_logprobs", "reference_logprobs"))
    }
    objective = PolicyGradient(kl=0.1, importance_cap=2.0)
    found = []
    for given in (batch, MicroBatch.of(**{**batch.tensors(), **wild})):
        trainer = Trainer(copy.deepcopy(model), objective=objective)
        trainer.accumulate(given)
        found.append(trainer.cache.flat)
    assert torch.isfinite(found[1]).all() and torch.equal(*found)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"form": "ppo"}, "'ppo'"),
        ({"form": "dr_grpo"}, "length=None"),
        ({"form": "dapo", "length": 3}, "length=3"),
        ({"form": "dr_grpo", "length": 0}, "length=0"),
        ({"clip_low": -0.1}, "clip_low=-0.1"),
        ({"kl": float("nan")}, "kl=nan"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"importance_cap": 0.0}, "importance_cap=0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(forebay.InputError, match=message):
        PolicyGradient(**options)


@pytest.mark.parametrize("options, column", [({"importance_cap": 2.0}, "behaviour_logprobs")])
def test_a_loss_names_the_column_that_it_misses(options, column):
    trainer = Trainer(qwen(), objective=PolicyGradient(**options))
    with pytest.raises(forebay.InputError, match=column):
        trainer.accumulate(micro_batch())


def test_a_penalty_without_a_reference_says_where_one_comes_from():
    trainer = Trainer(qwen(), objective=PolicyGradient(kl=0.1))
    with pytest.raises(forebay.StateError, match="whole model is trained.*reference_logprobs as a column.*adapter"):
        trainer.accumulate(micro_batch())


@pytest.mark.parametrize(
    "change, message",
    [
        ({"input_ids": torch.zeros(3, dtype=torch.long)}, "input_ids"),
        ({"advantages": torch.zeros(8)}, "advantages"),
        ({"loss_mask": torch.ones(8, 12)}, "first token"),
        ({"old_logprobs": torch.zeros(8, 11)}, "old_logprobs"),
    ],
)
def test_tables_that_do_not_belong_together_are_refused(change, message):
    with pytest.raises(forebay.InputError, match=message):
        MicroBatch.of(**{**micro_batch().tensors(), **change})


# TRL


def golden(tmp_path, model, batch, prompt: int, *, kl: float, **options):
    """The gradient of TRL's loss of the same rows."""
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    import transformers
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1")
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=8, num_generations=8, use_cpu=True, report_to=[],
        bf16=False, max_completion_length=9, gradient_checkpointing=False, **options,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model, args=arguments, reward_funcs=lambda **_: [0.0], processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["w2"] * 8}),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.beta = kl  # set here, since the trainer would fetch a reference model by name
    model.train()
    inputs = {
        "prompt_ids": batch.input_ids[:, :prompt],
        "prompt_mask": batch.attention_mask[:, :prompt],
        "completion_ids": batch.input_ids[:, prompt:],
        "completion_mask": batch.loss_mask[:, prompt:].long(),
        "advantages": batch.advantages[:, 0],
        "old_per_token_logps": batch.old_logprobs[:, prompt:],
        "ref_per_token_logps": batch.reference_logprobs[:, prompt:],
        "num_items_in_batch": torch.tensor(float(batch.tokens)),
    }
    trainer._compute_loss(model, inputs).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("form, length", [("grpo", None), ("dapo", None), ("dr_grpo", 9)])
@pytest.mark.parametrize("kl, unbiased", [(0.0, False), (0.05, False), (0.05, True)])
def test_gradients_are_those_of_trl(tmp_path, form, length, kl, unbiased):
    model = qwen()
    batch = off_policy(model, micro_batch())
    theirs = dict(loss_type=form, epsilon=0.1, epsilon_high=0.28, use_bias_correction_kl=unbiased)
    expected = golden(tmp_path, copy.deepcopy(model), batch, 3, kl=kl, **theirs)
    mine = dict(form=form, length=length, clip_low=0.1, clip_high=0.28, kl=kl, unbiased_kl=unbiased)
    trainer = Trainer(copy.deepcopy(model), objective=PolicyGradient(**mine), rows_per_pass=3)
    trainer.accumulate(batch)
    found = gradients(trainer)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert difference(found[name] / trainer.cache.denominator, gradient) < 1e-5, name


# Names


def scaled(model, batch, temperature, scale=1.0):
    return scale * token_logprobs(model, batch, temperature)


class Head:
    def __call__(self, model, batch, temperature):
        return token_logprobs(model, batch, temperature)


def closing_over(scale):
    return lambda model, batch, temperature: scaled(model, batch, temperature, scale)


NAMES = """
import functools, sys
from forebay.trainer import PolicyGradient
from forebay.trainer.objective import identity_of
from test_trainer_objective import Head, closing_over, scaled
for forward in (scaled, functools.partial(scaled, scale=2.0), closing_over(3.0), lambda m, b, t: m in {"a", "b", "c", "d"}):
    print(identity_of(PolicyGradient(forward=forward)))
print(identity_of(PolicyGradient(forward=Head(), name="head")))
"""


def test_a_loss_has_one_name_in_every_process():
    paths = [os.path.dirname(__file__), *sys.path]
    said = [
        subprocess.run(
            [sys.executable, "-c", NAMES], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(paths)},
        ).stdout.splitlines()
        for seed in "12"
    ]  # fmt: skip
    assert said[0] == said[1] and len(set(said[0])) == 5
    assert "scaled" in said[0][1] and "scale=2.0" in said[0][1] and "head" in said[0][4]


def test_two_losses_have_two_names():
    name = lambda **settings: identity_of(PolicyGradient(**settings))
    forwards = [
        scaled, functools.partial(scaled, scale=2.0), functools.partial(scaled, scale=3.0), closing_over(2.0), closing_over(3.0),
        lambda m, b, t: 1, lambda m, b, t: 2, Named(2.0).forward, Named(3.0).forward,
    ]  # fmt: skip
    assert len({name(forward=forward) for forward in forwards}) == len(forwards)
    assert name(forward=closing_over(2.0)) == name(forward=closing_over(2.0))
    assert name(forward=Head(), name="a") != name(forward=Head(), name="b") != name()


@dataclasses.dataclass
class Named:
    scale: float

    def forward(self, model, batch, temperature):
        return scaled(model, batch, temperature, self.scale)


@pytest.mark.parametrize("forward", [Head(), functools.partial(scaled, scale=Head()), closing_over(Head()), Head().__call__])
def test_a_loss_without_a_name_is_refused_when_it_is_made(forward):
    with pytest.raises(forebay.InputError, match="name=.*or a text `identity`"):
        PolicyGradient(forward=forward)

    @dataclasses.dataclass
    class Own:
        head: object
        needs_reference = False

    with pytest.raises(forebay.InputError, match="name="):
        Trainer(torch.nn.Linear(3, 2), objective=Own(forward))


def test_a_function_that_reads_what_has_no_value_yet_has_no_name():
    def forward(model, batch, temperature):
        return later(model, batch, temperature)

    with pytest.raises(forebay.InputError, match="no value yet.*name="):
        PolicyGradient(forward=forward)
    later = None  # noqa: F841
