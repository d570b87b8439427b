"""Trains a model of `transformers` with several processes through a store, and generates with what they publish.

    forebay serve --dir run/store --socket run/fb.sock &
    python data_parallel.py unix://run/fb.sock [--ranks 2] [--steps 12] [--directory run]

Each rank is a process with a connection of its own, and takes its share of every micro-batch. Rank 0 leads: it generates, judges, begins
the steps and commits them. After each update it publishes the weights, which a model in its process takes over between two responses;
each row is stamped with the version and the fingerprint of the weights that made it.
"""

import argparse
import contextlib
import pathlib
import subprocess
import sys
import tempfile

import torch
from grpo_transformers import COLUMNS, LENGTH, TARGETS, TRAJECTORIES, judge, tiny_model

import forebay
from forebay.inference import Rollouts, Rotation, Sampling, Subscriber
from forebay.inference.local import LocalInstance
from forebay.trainer import AdamW, Columns, DirectoryStateStore, PolicyGradient, Ranks, Trainer

KEY, TIMEOUT_S = "solver/weights", 600.0


def roll_out(solver: forebay.Table, rollouts: Rollouts) -> None:
    """Samples a group for each prompt. What made a response stands on its row."""
    for target in TARGETS:
        for trajectory in range(TRAJECTORIES):
            made = rollouts.generate([1, target], sampling=Sampling(max_tokens=LENGTH))
            sample = f"v{made.version.number}t{target}_0_{trajectory}"
            solver.insert(
                **made.stamp, sample_ids=[sample], prompt=[made.prompt], response=[made.tokens], logprobs=[made.logprobs]
            )


def train_step(step: forebay.Step, trainer: Trainer, ranks: Ranks) -> int:
    """A rank's share of a step, and the update of all. Gives the version."""
    for batch in step.micro_batches(
        "train", size=TRAJECTORIES, rank=ranks.rank, world=ranks.world, split="balanced", timeout=TIMEOUT_S
    ):
        trainer.accumulate(batch)
    return trainer.commit().version


def lead(store: forebay.Store, trainer: Trainer, ranks: Ranks, states: DirectoryStateStore, steps: int) -> None:
    """The program of rank 0."""
    solver = store.create_table("solver", COLUMNS)
    group = ("input_id", TRAJECTORIES)
    judges = store.create_consumer("judge", tables=["solver"], kind="task", ready=["response"], group=group)
    store.create_consumer("train", tables=["solver"], kind="trainer", ready=["logprobs", "advantage"], group=group)
    rotation = Rotation([LocalInstance(trainer.model)])
    with Subscriber(states, KEY, rotation) as subscriber:
        for _ in range(steps):
            trainer.publish(states, KEY)
            subscriber.wait(trainer.version, timeout_s=TIMEOUT_S)
            roll_out(solver, Rollouts(rotation))
            judge(judges)
            with store.step() as step:
                ranks.exchange(step.number)
                step.commit({"solver": train_step(step, trainer, ranks)})


def follow(store: forebay.Store, trainer: Trainer, ranks: Ranks, steps: int) -> None:
    """The program of every other rank."""
    for _ in range(steps):
        number = ranks.exchange(None)[0]
        train_step(store.open_step(number), trainer, ranks)


def rank(address: str, directory: pathlib.Path, number: int, world: int, steps: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory / 'meeting'}", rank=number, world_size=world)
    ranks = Ranks(timeout_s=TIMEOUT_S)
    trainer = Trainer(
        tiny_model(),
        objective=PolicyGradient(form="dapo", clip_high=0.28),
        optimizer=AdamW(lr=1e-2, weight_decay=0.0),
        columns=Columns(old_logprobs="logprobs"),
        ranks=ranks,
    )
    with forebay.connect(address) as store:
        if number == 0:
            lead(store, trainer, ranks, DirectoryStateStore(directory / "states"), steps)
        else:
            follow(store, trainer, ranks, steps)
    fingerprints = ranks.exchange(trainer.weight_fingerprint())
    assert len(set(fingerprints)) == 1, fingerprints
    torch.distributed.destroy_process_group()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("address")
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=12)
    arguments.add_argument("--directory", type=pathlib.Path)
    arguments.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.rank is not None:
        rank(chosen.address, chosen.directory, chosen.rank, chosen.ranks, chosen.steps)
        return
    with contextlib.ExitStack() as stack:
        directory = chosen.directory or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        options = ["--ranks", str(chosen.ranks), "--steps", str(chosen.steps), "--directory", str(directory.absolute())]
        command = lambda number: [sys.executable, __file__, chosen.address, *options, "--rank", str(number)]
        processes = [subprocess.Popen(command(number)) for number in range(chosen.ranks)]
        codes = [process.wait() for process in processes]
    assert codes == [0] * chosen.ranks, codes
    with forebay.connect(chosen.address) as store:
        question = "select policy_version, avg(reward) as reward from solver group by 1 order by 1"
        rewards = store.sql(question).arrow()["reward"].to_pylist()
    print("reward by step:", " ".join(f"{reward:.2f}" for reward in rewards))
    print(f"{chosen.ranks} ranks: the same weights, to the bit")


if __name__ == "__main__":
    main()
