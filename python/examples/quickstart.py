"""Trains a tiny policy through a store: rollouts, a judge, and a trainer with one rank and with two.

    python quickstart.py [DIRECTORY]

The policy picks three tokens out of eight; the more of them are 5, the greater the reward. Gradients come from torch where it
is installed, else from the formula. One rank or two, the sum of the gradients is the same to the last bit: each is the sum of
the same parts, added up in the order of the sample ids.
"""

import pathlib
import sys
import tempfile
import threading

import numpy as np

import forebay

TOKENS, LENGTH, INPUTS, TRAJECTORIES, STEPS = 8, 3, 4, 8, 30

try:
    import torch
except ImportError:
    torch = None


def probabilities(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def score(logits: np.ndarray, response: np.ndarray) -> np.ndarray:
    """The gradient of the log-probability of a response."""
    if torch is None:
        return np.bincount(response, minlength=TOKENS) - len(response) * probabilities(logits)
    parameters = torch.tensor(logits, requires_grad=True)
    torch.log_softmax(parameters, 0)[torch.from_numpy(response.astype(np.int64))].sum().backward()
    return parameters.grad.numpy()


def rollout(solver: forebay.Table, logits: np.ndarray, version: int, random: np.random.Generator) -> None:
    """Samples the responses of one policy version."""
    for question in range(INPUTS):
        responses = random.choice(TOKENS, (TRAJECTORIES, LENGTH), p=probabilities(logits)).astype(np.int32)
        samples = [f"v{version}q{question}_0_{trajectory}" for trajectory in range(TRAJECTORIES)]
        solver.insert(policy_version=version, sample_ids=samples, response=responses)


def judge(consumer: forebay.Consumer) -> None:
    """Rewards whole groups, and compares the members of each."""
    for _ in range(INPUTS):
        with consumer.claim(size=TRAJECTORIES, timeout=30.0) as claim:
            rewards = np.array([np.mean(response == 5) for response in claim["response"]])
            claim.finish(reward=rewards, advantage=rewards - rewards.mean())


def gradient(step: forebay.Step, logits: np.ndarray, ranks: int) -> np.ndarray:
    """The gradient of a step, by so many ranks. Each has a thread here; what one adds up are the gradients of its rows."""
    parts: dict[str, np.ndarray] = {}

    def rank(number: int) -> None:
        batches = step.micro_batches(
            "train", size=TRAJECTORIES, timeout=30.0, rank=number, world=ranks, split="balanced"
        )
        for batch in batches:
            rows = zip(batch.sample_ids, batch["response"], batch["advantage"])  # arrays over the store's own pages
            parts.update({sample: float(weight) * score(logits, response) for sample, response, weight in rows})
            batch.accumulated()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(ranks)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sum(parts[sample] for sample in sorted(parts)) / len(parts)


def train(directory: pathlib.Path, ranks: int) -> tuple[np.ndarray, list[float]]:
    """A run: the sum of all its gradients, and the mean reward of each step."""
    random, logits, total = np.random.default_rng(7), np.zeros(TOKENS), np.zeros(TOKENS)
    with forebay.open(directory) as store:
        solver = store.create_table(
            "solver", {"response": "list<int32>", "reward": "float32", "advantage": "float32"}
        )
        group = ("input_id", TRAJECTORIES)
        judges = store.create_consumer("judge", tables=["solver"], kind="task", ready=["response"], group=group)
        store.create_consumer(
            "train", tables=["solver"], kind="trainer", ready=["response", "advantage"], group=group
        )
        for version in range(STEPS):
            rollout(solver, logits, version, random)
            with store.step() as step:
                judge(judges)
                direction = gradient(step, logits, ranks)
                step.commit({"solver": version + 1})
            total += direction
            logits = logits + 4.0 * direction
        question = "select policy_version, avg(reward) as reward from solver group by 1 order by 1"
        return total, store.sql(question).arrow()["reward"].to_pylist()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        alone, rewards = train(directory / "one-rank", 1)
        together, _ = train(directory / "two-ranks", 2)
    print("gradients from", "the formula" if torch is None else "torch")
    print(f"reward: {rewards[0]:.2f} at first, {rewards[-1]:.2f} after {STEPS} steps")
    assert rewards[-1] > rewards[0]
    assert (alone == together).all(), (alone, together)
    print("one rank and two: the same gradient")


if __name__ == "__main__":
    main()
