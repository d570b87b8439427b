"""Reverb: a server of tables of immutable items, with samplers and rate limiters.

An item is written whole, so the three stages of a sample stay with the writer until the reward is known, and a batch is
64 items and one flush. Every item is given once: a queue. The columns of an item have lengths of their own, which a
`TrajectoryWriter` fixes with its first item: that of the older `Writer` is used, which takes them as they are.
"""

import os
from importlib.metadata import version

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import reverb

import harness
from harness import BATCH, MICRO_BATCH

TABLE = "train"


class Reverb:
    NAME = "Reverb"
    LEVEL_NOTES = {
        "memory": "nothing survives; no stages: a sample is written once, whole; taken at fetch, into buffers ahead of the taker",
    }

    def __init__(self, pool, directory, level):
        self.pool = pool
        table = reverb.Table.queue(name=TABLE, max_size=10_000_000)
        self.server = reverb.Server(tables=[table], port=None)

    @staticmethod
    def version():
        return version("dm-reverb")

    def writer(self, rows):
        pool = self.pool
        samples = list(zip(pool.prompts, pool.responses, pool.logprobs, pool.rewards))
        client = reverb.Client(self.address())
        self.open = writer = client.writer(max_sequence_length=1, chunk_length=1, max_in_flight_items=BATCH)

        def write(first):
            for row in range(first, first + BATCH):
                writer.append([np.int64(row), *samples[row % len(samples)]])
                writer.create_item(TABLE, num_timesteps=1, priority=1.0)
            writer.flush()

        return write

    def taker(self):
        return Reverb.connect(self.address())

    def address(self):
        return f"localhost:{self.server.port}"

    @staticmethod
    def connect(address):
        client = reverb.Client(address)
        items = client.sample(TABLE, num_samples=2**62, emit_timesteps=False)

        def take():
            taken = [next(items).data for _ in range(MICRO_BATCH)]
            rows, *lists, rewards = zip(*taken)
            lists = [np.concatenate([value.reshape(-1) for value in column]) for column in lists]
            return np.concatenate(rows).reshape(-1), lists, np.concatenate(rewards).reshape(-1)

        return take

    def close(self):
        self.open.close()
        self.server.stop()


if __name__ == "__main__":
    harness.main(Reverb)
