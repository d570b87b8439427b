"""Trains a model of `transformers` by GRPO through a store: rollouts, a judge, and a trainer over flat buffers.

    python grpo_transformers.py [DIRECTORY] [--steps 40] [--adapter]

The model is a tiny Qwen3 with random weights. A prompt names one token out of four; the more of the response is that token, the greater
the reward. With `--adapter` the model is frozen and a low-rank adapter of it is trained. In the middle of the run the trainer is
suspended between two micro-batches of a step, its state stored and its memory given back, and resumed.
"""

import argparse
import pathlib
import tempfile

import numpy as np
import torch
import transformers

import forebay
from forebay.trainer import AdamW, Base, Columns, DirectoryStateStore, PolicyGradient, Trainer

VOCABULARY, LENGTH, TARGETS, TRAJECTORIES, MICRO_BATCH = 16, 8, (4, 5, 6, 7), 16, 16
COLUMNS = {
    "prompt": "list<int32>", "response": "list<int32>", "logprobs": "list<float32>",
    "reward": "float32", "advantage": "float32",
}  # fmt: skip


def tiny_model() -> transformers.Qwen3ForCausalLM:
    torch.manual_seed(1)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=64, tie_word_embeddings=False,
        )  # fmt: skip
    )


@torch.no_grad()
def sampled(model: torch.nn.Module, prompts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Responses, and the log-probabilities of their tokens."""
    tokens, logprobs = torch.from_numpy(prompts.astype(np.int64)), []
    for _ in range(LENGTH):
        every = torch.log_softmax(model(input_ids=tokens, use_cache=False).logits[:, -1].float(), -1)
        chosen = torch.multinomial(every.exp(), 1)
        logprobs.append(every.gather(1, chosen))
        tokens = torch.cat([tokens, chosen], 1)
    return tokens[:, prompts.shape[1] :].numpy().astype(np.int32), torch.cat(logprobs, 1).numpy()


def roll_out(solver: forebay.Table, trainer: Trainer) -> None:
    """Samples a group for each prompt with the weights as they are now."""
    prompts = np.array([[1, target] for target in TARGETS for _ in range(TRAJECTORIES)], np.int32)
    with trainer.subject.active():
        responses, logprobs = sampled(trainer.model, prompts)
    samples = [f"v{trainer.version}t{prompt[1]}_0_{row % TRAJECTORIES}" for row, prompt in enumerate(prompts)]
    solver.insert(
        policy_version=trainer.version, sample_ids=samples, prompt=prompts, response=responses, logprobs=logprobs
    )


def judge(consumer: forebay.Consumer) -> None:
    """Rewards whole groups, and compares the members of each."""
    for _ in TARGETS:
        with consumer.claim(size=TRAJECTORIES, timeout=30.0) as claim:
            rows = zip(claim["prompt"], claim["response"])
            rewards = np.array([np.mean(response == prompt[-1]) for prompt, response in rows], np.float32)
            claim.finish(reward=rewards, advantage=(rewards - rewards.mean()) / (rewards.std() + 1e-4))


def train_step(store: forebay.Store, trainer: Trainer, states: DirectoryStateStore, is_suspended: bool) -> None:
    """One step: each micro-batch as soon as it is complete, then one commit of weights and rows."""
    with store.step() as step:
        for place, batch in enumerate(step.micro_batches("train", size=MICRO_BATCH, timeout=30.0)):
            trainer.accumulate(batch)
            if is_suspended and place == 1:
                version = trainer.suspend(states, "solver/trainer")
                print(f"suspended with {place + 1} micro-batches in the cache: {sum(trainer.bytes.values())} bytes held")
                trainer.resume(states, "solver/trainer", version)
        update = trainer.commit()
        step.commit({"solver": update.version})
    if update.version % 5 == 1:
        print(f"version {update.version:3}: {update.rows} rows, {update.tokens} tokens, norm {update.gradient_norm:.3f}")


def train(directory: pathlib.Path, steps: int, is_adapter: bool) -> list[float]:
    """A run: the mean reward of each step."""
    model = tiny_model()
    subject = Base(model).adapter("solver", rank=8, alpha=32, targets=["_proj", "lm_head"]) if is_adapter else model
    trainer = Trainer(
        subject,
        objective=PolicyGradient(form="dapo", clip_high=0.28),
        optimizer=AdamW(lr=1e-2, weight_decay=0.0),
        columns=Columns(old_logprobs="logprobs"),
    )
    states = DirectoryStateStore(directory / "states")
    with forebay.open(directory / "store") as store:
        solver = store.create_table("solver", COLUMNS)
        group = ("input_id", TRAJECTORIES)
        judges = store.create_consumer("judge", tables=["solver"], kind="task", ready=["response"], group=group)
        store.create_consumer("train", tables=["solver"], kind="trainer", ready=["logprobs", "advantage"], group=group)
        for step in range(steps):
            roll_out(solver, trainer)
            judge(judges)
            train_step(store, trainer, states, step == steps // 2)
        trainer.save_pretrained(directory / "trained")
        question = "select policy_version, avg(reward) as reward from solver group by 1 order by 1"
        return store.sql(question).arrow()["reward"].to_pylist()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("directory", nargs="?", type=pathlib.Path)
    arguments.add_argument("--steps", type=int, default=40)
    arguments.add_argument("--adapter", action="store_true")
    chosen = arguments.parse_args()
    torch.set_num_threads(1)  # more cost a model of this size more than they give
    with tempfile.TemporaryDirectory() as scratch:
        rewards = train(chosen.directory or pathlib.Path(scratch), chosen.steps, chosen.adapter)
    print("reward by step:", " ".join(f"{reward:.2f}" for reward in rewards))
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]), rewards
    print(f"reward: {rewards[0]:.2f} at first, {rewards[-1]:.2f} after {len(rewards)} steps")


if __name__ == "__main__":
    main()
