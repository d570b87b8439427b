"""Ranks as processes, for the tests of data parallel training: a function of a test, called in each with its own process group."""

import datetime
import functools
import multiprocessing
import os
import pathlib
import pickle
import queue
import sys
import time
import traceback

import torch

from forebay.trainer import AdamW, MicroBatch, PolicyGradient, Trainer
from tiny import VOCABULARY, micro_batch

LIMIT_S = 90.0


class Model(torch.nn.Module):
    """A causal model that is made in no time."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = torch.nn.Embedding(VOCABULARY, 24)
        self.mix = torch.nn.GRU(24, 24, batch_first=True)
        self.head = torch.nn.Linear(24, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.mix(self.embedding(tokens))[0])


def logprobs(model, batch, temperature):
    logits = model(batch.input_ids)[:, :-1]
    every = torch.log_softmax(logits / temperature, -1).gather(-1, batch.input_ids[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(every, (1, 0))


def make(seed=3, dtype=torch.float32, **options) -> Trainer:
    settings = dict(optimizer=AdamW(lr=0.01), objective=PolicyGradient(forward=logprobs))
    return Trainer(Model(seed).to(dtype), **{**settings, **options})


def share(rank: int, world: int) -> list[MicroBatch]:
    """A rank's micro-batches of the eight rows of a step: ragged, and of three ranks the middle one has none."""
    bounds = {1: [0, 8], 2: [0, 5, 8], 3: [0, 5, 5, 8]}[world]
    batch = micro_batch()
    tensors = {name: tensor[bounds[rank] : bounds[rank + 1]] for name, tensor in batch.tensors().items()}
    return MicroBatch.of(**tensors).passes(2) if len(tensors["loss_mask"]) else []


def begin(path: pathlib.Path, rank: int, world: int) -> None:
    """Makes this process a rank of the group that meets at a file."""
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=LIMIT_S)
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world, timeout=limit)


def _run(function, path, rank, world, results, arguments) -> None:
    try:
        begin(path, rank, world)
        results.put((rank, None, pickle.dumps(function(rank, world, *arguments))))  # tensors too, as bytes
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
    finally:
        results.close()
        results.join_thread()
        os._exit(0)  # a group that lost a rank is not to be waited for


@functools.cache
def _context():
    """Processes that are forked from one that has imported torch and begun no thread, so that each is there at once."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ranks", "torch.distributed.tensor", "test_trainer_ranks"])
    return context


def run(path: pathlib.Path, world: int, function, *arguments, lost=()) -> list:
    """What a function gives in each rank; `None` of ranks that are meant to be lost."""
    context = _context()
    results = context.Queue()
    meeting = path / f"meeting-{time.monotonic_ns()}"
    ranks = [context.Process(target=_run, args=(function, meeting, rank, world, results, arguments)) for rank in range(world)]
    [rank.start() for rank in ranks]
    found: dict[int, object] = {}
    try:
        while len(found) < world - len(lost):
            rank, error, value = results.get(timeout=LIMIT_S)
            assert error is None, f"rank {rank}: {error}"
            found[rank] = pickle.loads(value)
    except queue.Empty:
        raise AssertionError(f"ranks {sorted(set(range(world)) - found.keys())} said nothing in {LIMIT_S} s") from None
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return [found.get(rank) for rank in range(world)]
