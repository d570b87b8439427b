"""Trains a tiny policy through a store: rollouts, a judge, and a trainer with one rank and with two.

    python quickstart.py [DIRECTORY]            # stores in this process; ranks are threads
    python quickstart.py ADDRESS ADDRESS        # two servers (`forebay serve`) of empty stores; ranks are processes

The policy picks three tokens out of eight; the more of them are 5, the greater the reward. Gradients come from torch where it
is installed, else from the formula. One rank or two, the sum of the gradients is the same to the last bit: each is the sum of
the same parts, added up in the order of the sample ids.
"""

import json
import pathlib
import subprocess
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


def parts(step: forebay.Step, logits: np.ndarray, rank: int, ranks: int) -> dict[str, np.ndarray]:
    """What one rank adds: the gradients of its rows, by sample id."""
    found: dict[str, np.ndarray] = {}
    for batch in step.micro_batches(
        "train", size=TRAJECTORIES, timeout=30.0, rank=rank, world=ranks, split="balanced"
    ):
        rows = zip(batch.sample_ids, batch["response"], batch["advantage"])  # of a store here: over its own pages
        found.update({sample: float(weight) * score(logits, response) for sample, response, weight in rows})
        batch.accumulated()
    return found


class Threads:
    """Ranks that are threads, for a store in this process."""

    def __init__(self, place: str, ranks: int):
        self.ranks = ranks

    def parts(self, step: forebay.Step, logits: np.ndarray) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        run = lambda rank: found.update(parts(step, logits, rank, self.ranks))
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.ranks)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return found

    def end(self) -> None:
        pass


class Processes:
    """Ranks that are processes, each with a connection of its own. They are told the number of each step and the weights, and
    tell their gradients."""

    def __init__(self, place: str, ranks: int):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        rank = lambda number: [sys.executable, __file__, "--rank", place, str(number), str(ranks)]
        self.ranks = [subprocess.Popen(rank(number), **pipes) for number in range(ranks)]

    def parts(self, step: forebay.Step, logits: np.ndarray) -> dict[str, np.ndarray]:
        for rank in self.ranks:
            print(json.dumps([step.number, logits.tolist()]), file=rank.stdin, flush=True)
        told = [json.loads(rank.stdout.readline()) for rank in self.ranks]
        return {sample: np.array(part) for parts in told for sample, part in parts.items()}

    def end(self) -> None:
        [rank.stdin.close() for rank in self.ranks]
        assert [rank.wait() for rank in self.ranks] == [0] * len(self.ranks)


def rank(place: str, number: int, ranks: int) -> None:
    """The program of a rank that is a process."""
    with forebay.connect(place) as store:
        for line in sys.stdin:
            step, logits = json.loads(line)
            found = parts(store.open_step(step), np.array(logits), number, ranks)
            print(json.dumps({sample: part.tolist() for sample, part in found.items()}), flush=True)


def train(place: str, ranks: int) -> tuple[np.ndarray, list[float]]:
    """A run: the sum of all its gradients, and the mean reward of each step."""
    random, logits, total = np.random.default_rng(7), np.zeros(TOKENS), np.zeros(TOKENS)
    is_address = "://" in place
    team = (Processes if is_address else Threads)(place, ranks)
    with forebay.connect(place) if is_address else forebay.open(place) as store:
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
                found = team.parts(step, logits)
                direction = sum(found[sample] for sample in sorted(found)) / len(found)
                step.commit({"solver": version + 1})
            total += direction
            logits = logits + 4.0 * direction
        team.end()
        question = "select policy_version, avg(reward) as reward from solver group by 1 order by 1"
        return total, store.sql(question).arrow()["reward"].to_pylist()


def main(places: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        if len(places) < 2:
            directory = pathlib.Path(places[0] if places else scratch)
            places = [str(directory / "one-rank"), str(directory / "two-ranks")]
        alone, rewards = train(places[0], 1)
        together, _ = train(places[1], 2)
    print("gradients from", "the formula" if torch is None else "torch")
    print("ranks are", "processes" if "://" in places[1] else "threads")
    print(f"reward: {rewards[0]:.2f} at first, {rewards[-1]:.2f} after {STEPS} steps")
    assert rewards[-1] > rewards[0]
    assert (alone == together).all(), (alone, together)
    print("one rank and two: the same gradient")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(sys.argv[1:])
