"""TransferQueue: rows of named fields in the memory of actors, with what is ready and what each task has had kept by a
controller.

Its low-level client, which its documents name for fine-grained control: `put` with a partition gives the rows' names,
`put` with those adds fields, `get_meta` claims what is ready for a task, `get_data` fetches it. `polling_mode`, for
without it the controller sleeps inside of its only thread until enough is ready. Columns of lists are jagged tensors. One
deployment serves all repetitions, each in a partition of its own that is cleared at its end.
"""

import atexit
import itertools
import os

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict

import harness
from harness import BATCH, MICRO_BATCH

PARTITIONS = itertools.count()
FIELDS = ["row", "prompt", "response", "logprobs", "reward"]


class TransferQueue:
    NAME = "TransferQueue"
    LEVEL_NOTES = {
        "memory": "SimpleStorage, 2 units; nothing survives; taken at fetch, rows of a dead taker are gone; takers poll",
    }

    def __init__(self, pool, directory, level):
        self.pool = pool
        if not ray.is_initialized():
            ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="error")
            tq.init(OmegaConf.create({"controller": {"polling_mode": True}}))
            atexit.register(tq.close)
        self.client = tq.get_client()
        self.partition = f"train_{next(PARTITIONS)}"

    @staticmethod
    def version():
        return tq.__version__

    def writer(self, rows):
        pool, client, partition = self.pool, self.client, self.partition
        shared = [self.stages(samples) for samples in pool.batches()]

        def write(first):
            prompt, response, reward = shared[first // BATCH % len(shared)]
            prompt["row"] = torch.arange(first, first + BATCH)
            rows = client.put(prompt, partition_id=partition)
            client.put(response, metadata=rows)
            client.put(reward, metadata=rows)

        return write

    def stages(self, samples):
        pool = self.pool
        jagged = lambda column: torch.nested.as_nested_tensor(
            [torch.from_numpy(column[sample]) for sample in samples], layout=torch.jagged
        )
        rewards = torch.from_numpy(pool.rewards[samples.start : samples.stop])
        prompts = torch.stack([torch.from_numpy(pool.prompts[sample]) for sample in samples])
        return (
            TensorDict({"prompt": prompts}, batch_size=BATCH),
            TensorDict({"response": jagged(pool.responses), "logprobs": jagged(pool.logprobs)}, batch_size=BATCH),
            TensorDict({"reward": rewards}, batch_size=BATCH),
        )

    def taker(self):
        return taker(self.client, self.partition)

    def address(self):
        return ray.get_runtime_context().gcs_address, self.partition

    @staticmethod
    def connect(address):
        cluster, partition = address
        ray.init(address=cluster, log_to_driver=False, logging_level="error")
        tq.init()
        return taker(tq.get_client(), partition)

    def close(self):
        self.client.clear_partition(self.partition)


def taker(client, partition):
    def take():
        meta = client.get_meta(FIELDS, MICRO_BATCH, partition, mode="fetch", task_name="trainer")
        if meta.size == 0:
            return None
        data = client.get_data(meta)
        lists = [flat(data[field]) for field in ("prompt", "response", "logprobs")]
        return data["row"].numpy().reshape(-1), lists, data["reward"].numpy().reshape(-1)

    return take


def flat(column):
    values = column.values() if column.is_nested else column
    return values.contiguous().numpy().reshape(-1)


if __name__ == "__main__":
    harness.main(TransferQueue)
