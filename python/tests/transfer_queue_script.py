"""A script of TransferQueue's calls, run by `test_transfer_queue_original.py` against the original and against forebay's.

    python transfer_queue_script.py MODULE         # prints what the calls gave, as JSON
"""

import importlib
import json
import os
import sys

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict


POLLING = {"controller": {"polling_mode": True}}


class Notes:
    """What calls gave, in plain words. Global indexes are named by the order in which they are first seen."""

    def __init__(self):
        self.lines, self.indexes = [], {}

    def __call__(self, given) -> None:
        self.lines.append(self.plain(given))

    def raised(self, call) -> None:
        try:
            self(call())
        except Exception as error:
            self.lines.append(f"{type(error).__name__}: {error}")

    def refused(self, call) -> None:
        """Only the class of the error is the same."""
        try:
            self(call())
        except Exception as error:
            self.lines.append(next(of.__name__ for of in (TypeError, ValueError, RuntimeError) if isinstance(error, of)))

    def index(self, number: int) -> str:
        return self.indexes.setdefault(int(number), f"index {len(self.indexes)}")

    def plain(self, given):
        if isinstance(given, TensorDict):
            return {name: self.field(given.get(name)) for name in sorted(given.keys())}
        if hasattr(given, "global_indexes"):
            return {
                "indexes": [self.index(number) for number in given.global_indexes],
                "fields": list(given.field_names),
                "ready": bool(given.is_ready),
                "produced": given.production_status.tolist(),
                "tags": [dict(tag) for tag in given.custom_meta],
                "partitions": list(given.partition_ids),
                "extra": given.extra_info,
            }
        if hasattr(given, "keys") and hasattr(given, "tags"):
            return [given.keys, given.tags, given.partition_id, given.fields, given.extra_info]
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], torch.Tensor):
            return [[self.index(number) for number in given[0]], given[1].tolist()]
        return given

    @staticmethod
    def field(value):
        if isinstance(value, torch.Tensor):
            rows = [[list(row.shape), row.tolist()] for row in value.unbind()]
            return ["nested" if value.is_nested else "dense", str(value.dtype), rows]
        return [type(value).__name__, value.tolist() if hasattr(value, "tolist") else list(value)]


def ragged(*lengths: int):
    return torch.nested.as_nested_tensor([torch.arange(n) for n in lengths], layout=torch.jagged)


def batch(**fields):
    return TensorDict(fields, batch_size=len(next(iter(fields.values())).unbind()))


def keys_and_tags(tq, note) -> None:
    fields = TensorDict(
        {
            "prompts": torch.arange(4).view(2, 2),
            "score": torch.tensor([0.5, 1.5]),
            "extra": NonTensorStack({"k": 1}, "text"),
            "responses": ragged(3, 1),
            "images": torch.arange(8, dtype=torch.uint8).view(2, 2, 2),
            "mask": torch.tensor([[True, False], [False, True]]),
            "half": torch.tensor([[0.5], [1.5]], dtype=torch.bfloat16),
        },
        batch_size=2,
    )
    put = tq.kv_batch_put(["a", "b"], "train", fields=fields, tags=[{"status": "running", "is_prompt": True}, {"n": 2}])
    note(put)
    note(tq.kv_batch_get(["b", "a"], "train"))
    note(tq.kv_put("c", "train", fields={"prompts": torch.tensor([7, 8])}, tag={"n": 3}))
    note(tq.kv_batch_get(["b", "c"], "train"))
    note(tq.kv_batch_get("c", "train", "prompts"))
    note(tq.kv_batch_get(["a", "unknown", "b"], "train", select_fields=["prompts", "score"]))
    note(tq.kv_batch_get_by_meta(put, "score"))
    note.raised(lambda: tq.kv_batch_get_by_meta(put, "unknown"))
    note.raised(lambda: tq.kv_batch_get(["unknown"], "train"))
    note.raised(lambda: tq.kv_batch_get(["a"], "unknown"))
    note(tq.kv_batch_put(["a", "d"], "train", tags=[{"status": "finished"}, {"n": 4}]))
    note(tq.kv_list())
    note([tq.kv_list("train"), tq.kv_list("unknown")])
    note(tq.kv_put("a", "train", fields={"prompts": torch.tensor([70, 80, 90])}))
    note(tq.kv_batch_get(["a", "b"], "train", "prompts"))
    note(tq.kv_batch_put(["b"], "train", fields=batch(added=torch.tensor([True]))))


def the_client(tq, note) -> None:
    client = tq.get_client()
    meta = client.kv_retrieve_meta(["a", "b", "unknown"], "train")
    note(meta)
    note(client.kv_retrieve_keys(meta.global_indexes, "train"))
    some = meta.select_fields(["prompts"])
    note(some)
    note(client.get_data(some))
    note(client.put(batch(values=torch.ones(2, 1)), some))
    note(client.get_data(client.kv_retrieve_meta(["b", "a"], "train").select_fields(["values", "score"])))
    note(client.get_partition_list())
    note(client.get_production_status(["prompts", "values"], "train"))
    note([client.check_production_status([name], "train") for name in ("prompts", "score")])
    tq.kv_clear(["a", "unknown"], "train")
    note(tq.kv_list())
    note.raised(lambda: client.put(batch(x=torch.ones(2, 1))))


def batches_of_tasks(tq, note) -> None:
    client = tq.get_client()
    note(client.put(batch(x=torch.arange(6).view(3, 2)), partition_id="val").field_names)
    note(client.get_consumption_status("t", "val")[1].tolist())
    first = client.get_meta(["x"], 2, "val", task_name="t")
    note(client.get_data(first))
    note([client.get_consumption_status("t", "val")[1].tolist(), client.check_consumption_status("t", "val")])
    rest = client.get_meta(["x"], 1, "val", task_name="t")
    note(client.get_data(rest))
    note(client.check_consumption_status("t", "val"))
    note(client.get_meta(["x"], 3, "val", task_name="other").size)
    note([client.reset_consumption("val", "t"), client.get_consumption_status("t", "val")[1].tolist()])
    note(client.get_meta(["x"], 2, "val", mode="force_fetch").size)
    new = client.get_meta(["y"], 2, "val", mode="insert")
    note(new.size)
    note(client.put(batch(y=torch.zeros(2, 1)), new).is_ready)
    note(client.get_production_status(["x", "y"], "val")[1].tolist())
    client.clear_samples(rest)
    note(client.get_production_status(["x"], "val")[1].tolist())
    client.clear_partition("val")
    note([client.get_partition_list(), tq.kv_list("val")])
    note([client.get_consumption_status("t", "unknown"), client.reset_consumption("unknown")])


def samples_that_are_not_ready(tq, note) -> None:
    client = tq.get_client()
    for key, name in ("ax", "by", "cx"):
        tq.kv_put(key, "parts", fields={name: torch.tensor([1])})
    tq.kv_put("d", "parts", tag={"n": 1})
    for keys in (["a", "b"], ["a", "d"], "d"):
        note.raised(lambda: tq.kv_batch_get(keys, "parts"))
        note(client.kv_retrieve_meta(keys, "parts"))
    note.raised(lambda: tq.kv_batch_get(["a", "b"], "parts", "x"))
    note.raised(lambda: tq.kv_batch_get(["a", "c"], "parts", "nowhere"))
    for fields in (["x"], ["x", "y"], ["x", "nowhere"], ["nowhere"], []):
        for size in (1, 3, 10):
            note(client.get_meta(fields, size, "parts", mode="force_fetch"))
    # In polling mode, so without waiting.
    note(client.get_meta(["x"], 3, "parts", task_name="t"))
    note(client.get_meta(["x"], 1, "nowhere", task_name="t"))
    note(client.get_consumption_status("t", "parts"))
    note(client.get_meta(["x"], 2, "parts", task_name="t"))


def keys_of_samples(tq, note) -> None:
    client = tq.get_client()
    [first, second] = client.kv_retrieve_meta(["a", "b"], "parts").global_indexes
    for numbers in (first, [second, first], [], [str(first)], (first,)):
        note.refused(lambda: client.kv_retrieve_keys(numbers, "parts"))
    note.refused(lambda: client.kv_retrieve_keys([first], "nowhere"))


def samples_one_by_one(tq, note) -> None:
    client = tq.get_client()
    fields = batch(dense=torch.zeros(2, 2), ragged=ragged(3, 1), score=torch.ones(2), text=NonTensorStack("u", "v"))
    tq.kv_batch_put(["a", "b"], "views", fields=fields, tags=[{"n": 1}, {"n": 2}])
    meta = client.kv_retrieve_meta(["b", "a"], "views")

    def said(meta):
        for sample in meta.samples:
            about = [[name, str(of["dtype"]), of["shape"], of["is_non_tensor"]] for name, of in sorted(sample.fields.items())]
            note([note.index(sample.global_index), sample.partition_id, sample.production_status, dict(sample.custom_meta), about])

    said(meta)
    said(meta.select_samples([1]))
    said(type(meta).concat(meta.chunk(2)))
    said(meta.select_fields(["text"]).union(meta.select_fields(["score"])))
    client.put(batch(added=torch.zeros(2, 5)), meta)
    said(meta)
    note.refused(lambda: meta.union(meta[:1]))


def tags_of_all_kinds(tq, note) -> None:
    client = tq.get_client()
    kinds = {
        "numpy": {"score": np.float32(0.9), "n": np.int64(3), "is": np.bool_(True), "of": np.arange(3)},
        "tensor": {"t": torch.tensor([1.5])},
        "keys": {1: "a", "by": {2: 3}},
        "bytes": {"b": b"\x00\xff"},
        "plain": {"n": None, "f": 1.5, "l": [1, {"d": True}]},
    }
    for key, tag in kinds.items():
        note(repr(tq.kv_put(key, "tags", tag=tag).tags))
        note(repr(tq.kv_list("tags")["tags"][key]))
    meta = client.kv_retrieve_meta("plain", "tags")
    meta.update_custom_meta([{"f": 2.5}])
    client.set_custom_meta(meta)
    note(tq.kv_list("tags")["tags"]["plain"])
    meta.clear_custom_meta()
    meta.update_custom_meta([{"only": 1}])
    client.set_custom_meta(meta)
    note(tq.kv_list("tags")["tags"]["plain"])


def wrong_calls(tq, note) -> None:
    """At the end: the original begins a sample before it refuses its tags."""
    note.raised(lambda: tq.kv_put("k", "train"))
    note.raised(lambda: tq.kv_batch_put(["k"], "train", tags=[{}, {}]))
    note.raised(lambda: tq.kv_batch_put(["k"], "train", fields=batch(x=torch.ones(2, 1))))


def script(tq) -> list:
    note = Notes()
    samples_that_are_not_ready(tq, note)  # before the first is cleared: the original gives its index again
    keys_of_samples(tq, note)
    samples_one_by_one(tq, note)
    keys_and_tags(tq, note)
    the_client(tq, note)
    batches_of_tasks(tq, note)
    tags_of_all_kinds(tq, note)
    wrong_calls(tq, note)
    return json.loads(json.dumps(note.lines))


def main() -> None:
    tq = importlib.import_module(sys.argv[1])
    if sys.argv[1] == "transfer_queue":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
        tq.init({**POLLING, "backend": {"SimpleStorage": {"num_data_storage_units": 1}}})
    else:
        tq.init(POLLING)
    print("\nANSWERS " + json.dumps(script(tq)))
    tq.close()


if __name__ == "__main__":
    main()
