"""A trainer on the micro-batches of a store: what columns become, what is refused, and whose gradient counts once."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import AdamW, Columns, DirectoryStateStore, PolicyGradient, SpoiledCacheError, Trainer  # noqa: E402
from forebay.trainer.staging import Staging  # noqa: E402
from tiny import VOCABULARY, difference, micro_batch, qwen, unchanged  # noqa: E402

TABLE = {
    "prompt": "list<int32>",
    "response": "list<int32>",
    "logprobs": "list<float32>",
    "mask": "list<uint8>",
    "advantage": "float32",
}
NAMES = Columns(behaviour_logprobs="logprobs", old_logprobs="logprobs", mask="mask")
GROUP = 2


@pytest.fixture
def rows():
    """Four groups of rows, as a table takes them."""
    random = np.random.default_rng(5)
    lengths = random.integers(1, 9, 4 * GROUP)
    return {
        "prompt": [random.integers(0, VOCABULARY, 2 + row // GROUP).tolist() for row in range(4 * GROUP)],
        "response": [random.integers(0, VOCABULARY, length).tolist() for length in lengths],
        "logprobs": [random.uniform(-4, -3, length).astype(np.float32).tolist() for length in lengths],
        "mask": [[1] * int(length - 1) + [row % 2] for row, length in enumerate(lengths)],
        "advantage": random.normal(size=4 * GROUP).astype(np.float32).tolist(),
    }


@pytest.fixture
def solver(store, rows):
    table = store.create_table("solver", TABLE)
    samples = [f"q{row // GROUP}_0_{row % GROUP}" for row in range(4 * GROUP)]
    table.insert(policy_version=0, sample_ids=samples, **rows)
    return table


@pytest.fixture
def train(store, solver):
    ready = ["response", "logprobs", "advantage"]
    return store.create_consumer("train", tables=["solver"], kind="trainer", ready=ready, group=("input_id", GROUP))


def trainer(**options):
    settings = dict(optimizer=AdamW(lr=0.01), columns=NAMES, objective=PolicyGradient(importance_cap=2.0))
    return Trainer(qwen(), **{**settings, **options})


@pytest.mark.parametrize("size, rows_per_pass", [(2, None), (4, 3), (8, None)])
def test_a_step_of_a_store_gives_the_update_of_its_rows_at_once(store, solver, train, rows, size, rows_per_pass):
    # FX-29, FX-30
    fed = trainer(rows_per_pass=rows_per_pass)
    before = fed.weight_fingerprint()
    with store.step() as step:
        for batch in step.micro_batches(train, size=size, timeout=60):
            added = fed.accumulate(batch)
            assert added.is_new and added.rows == len(batch) and not batch.is_held
            assert fed.weight_fingerprint() == before
        assert [claim["sequence"] for claim in fed.claims] == list(range(8 // size))
        cache = fed.cache.flat.clone()
        update = fed.commit()
        assert step.commit({"solver": fed.version}) == update.rows == 8
    assert store.policy_version("solver") == update.version == 1
    at_once = trainer()
    samples = [f"q{row // GROUP}_0_{row % GROUP}" for row in range(8)]
    (table,) = NAMES.tables({**rows, "sample_ids": samples})
    at_once.accumulate(table)
    assert difference(cache, at_once.cache.flat) < 1e-6
    assert update.tokens == table.tokens == sum(map(sum, rows["mask"]))


def test_columns_stand_where_their_tokens_stand(rows):
    samples = [f"q{row}" for row in range(8)]
    (table,) = NAMES.tables({**rows, "sample_ids": samples})
    assert table.rows == 8 and table.input_ids.dtype == torch.int64
    for row in range(8):
        prompt, response = rows["prompt"][row], rows["response"][row]
        begin, end = len(prompt), len(prompt) + len(response)
        assert table.input_ids[row, :end].tolist() == prompt + response and not table.input_ids[row, end:].any()
        assert table.attention_mask[row].tolist() == [1] * end + [0] * (table.input_ids.shape[1] - end)
        assert table.loss_mask[row].nonzero().flatten().tolist() == [begin + t for t, on in enumerate(rows["mask"][row]) if on]
        assert np.allclose(table.behaviour_logprobs[row, begin:end], rows["logprobs"][row])
        assert not table.behaviour_logprobs[row, :begin].any() and not table.behaviour_logprobs[row, end:].any()
        assert float(table.advantages[row, 0]) == pytest.approx(rows["advantage"][row])


def test_advantages_may_be_one_a_token_and_rows_may_have_no_prompt():
    columns = Columns(prompt=None, mask="mask")
    values = {"response": [[5, 6, 7]], "mask": [[0, 1, 1]], "advantage": [[0.0, 2.0, 3.0]], "sample_ids": ["q"]}
    (table,) = columns.tables(values)
    assert table.advantages.tolist() == [[0.0, 2.0, 3.0]] and table.loss_mask.tolist() == [[0.0, 1.0, 1.0]]


WRONG = {
    "short logprobs": ({"logprobs": [[0.1], [0.1]]}, "logprobs of b has 1 values, and its response 2 tokens"),
    "nan advantage": ({"advantage": [0.0, float("nan")]}, "advantage of b has the value nan"),
    "infinite logprob": ({"logprobs": [[0.1], [0.1, float("-inf")]]}, "logprobs of b has the value -inf"),
    "no response": ({"response": [[3], None]}, "response of b has no value"),
    "unknown token": ({"response": [[3], [4, 32]]}, "token 3 of b is 32, and the model knows 32"),
    "negative token": ({"prompt": [[-1], [1, 2]]}, "token 0 of a is -1"),
    "no prompt": ({"prompt": [[], [1, 2]]}, "first token of a is to be trained on"),
    "two dimensions": ({"response": [[3], [[4], [5]]]}, r"response of b has the shape \[2, 1\]"),
    "masked advantage": ({"advantage": np.ma.array([0.0, 1.0], mask=[False, True])}, "advantage of b has no value"),
}


@pytest.mark.parametrize("case", WRONG)
def test_values_that_make_no_gradient_are_refused_with_their_sample(case):
    change, message = WRONG[case]
    right = {
        "prompt": [[1], [1, 2]], "response": [[3], [4, 5]], "logprobs": [[0.1], [0.1, 0.2]], "mask": [[1], [1, 1]],
        "advantage": [0.0, 1.0], "sample_ids": ["a", "b"],
    }  # fmt: skip
    columns = Columns(behaviour_logprobs="logprobs", vocabulary=VOCABULARY)
    assert next(columns.tables(right)).tokens == 3
    message = message.replace("logprobs of", "behaviour_logprobs of")
    with pytest.raises(forebay.InputError, match=message):
        list(columns.tables({**right, **change}))


@pytest.mark.parametrize("rows_per_pass", [None, 1])
def test_a_row_that_is_refused_leaves_the_micro_batches_before_it_alone(rows, rows_per_pass):
    fed = trainer(rows_per_pass=rows_per_pass)
    fed.accumulate(next(NAMES.tables({**rows, "sample_ids": [f"q{row}" for row in range(8)]})))
    bad = {**rows, "advantage": [0.5, 0.5, float("nan"), *rows["advantage"][3:]]}

    class Claimed:
        table, consumer, step, sequence, epoch = "solver", "train", 1, 0, (1, 1)
        sample_ids = [f"r{row}" for row in range(8)]
        accumulated = staticmethod(lambda: pytest.fail("it was refused"))
        __getitem__ = staticmethod({**bad, "policy_version": [0] * 8, "group_key": ["r"] * 8}.__getitem__)

    with unchanged(fed), pytest.raises(forebay.InputError, match="advantage of r2 has the value nan"):
        fed.accumulate(Claimed())
    assert fed.commit().rows == 8


@pytest.mark.parametrize("rows_per_pass", [None, 1])
def test_a_micro_batch_that_is_refused_goes_back_and_leaves_the_cache_alone(store, solver, train, rows, rows_per_pass):
    wrong = trainer(columns=Columns(vocabulary=3), rows_per_pass=rows_per_pass)
    with unchanged(wrong), store.step() as step:
        for batch in step.micro_batches(train, size=2, timeout=60):
            with pytest.raises(forebay.InputError, match="the model knows 3"), batch:
                wrong.accumulate(batch)
            assert not batch.is_held
            break
    assert solver.counts()["consumed"] == 0


def test_a_micro_batch_whose_claim_was_lost_spoils_the_cache(store, solver, train):
    fed = trainer()
    with store.step() as step:
        for batch in step.micro_batches(train, size=2, timeout=60):
            columns = {name: batch[name] for name in (*TABLE, "policy_version", "group_key")}
            batch.release()  # somebody else will have these rows

            class Lost:
                table, consumer, step, sequence, epoch = "solver", "train", 1, 0, (1, 1)
                sample_ids, accumulated = batch.sample_ids, batch.accumulated
                __getitem__ = staticmethod(columns.__getitem__)

            with pytest.raises(forebay.StateError):
                fed.accumulate(Lost())
            break
    assert fed.claims == [] and fed.cache.denominator == 0
    with pytest.raises(SpoiledCacheError, match="drop"):
        fed.commit()
    fed.drop()


def test_rows_that_come_again_after_a_restart_count_once(store, solver, train, tmp_path):
    # FX-57: the cache is part of the state; a store that was given up hands its rows out again.
    states, whole = DirectoryStateStore(tmp_path / "states"), trainer()
    with store.step() as step:
        for batch in step.micro_batches(train, size=2, timeout=60):
            whole.accumulate(batch)
    first = trainer()
    with store.step() as step:
        for place, batch in enumerate(step.micro_batches(train, size=2, timeout=60)):
            first.accumulate(batch)
            if place == 1:
                break
        first.suspend(states, "solver/trainer")
    again = trainer()
    again.resume(states, "solver/trainer")
    with store.step() as step:
        added = [again.accumulate(batch).is_new for batch in step.micro_batches(train, size=2, timeout=60)]
        assert sorted(added) == [False, False, True, True]
        assert torch.equal(again.cache.flat, whole.cache.flat)
        assert step.commit({"solver": again.commit().version}) == 8


def test_rows_that_come_again_in_other_micro_batches_are_refused(store, solver, train, tmp_path):
    fed = trainer()
    with store.step() as step:
        for batch in step.micro_batches(train, size=2, timeout=60):
            fed.accumulate(batch)
            break
    with store.step() as step:
        for batch in step.micro_batches(train, size=8, timeout=60):
            with unchanged(fed):
                with pytest.raises(forebay.StateError, match="q0_0_0 .version 0. and 2 of 8 rows.*drop"), batch:
                    fed.accumulate(batch)
            break


# Staging


def test_staged_tables_are_what_they_were_and_keep_their_order():
    tables = [micro_batch(rows=1 + seed, seed=seed) for seed in range(5)]
    staged = list(Staging(torch.device("cpu")).stage(iter(tables)))
    assert [table.rows for table in staged] == [1, 2, 3, 4, 5]
    for before, after in zip(tables, staged):
        assert all(torch.equal(tensor, after.tensors()[name]) for name, tensor in before.tensors().items())


class Event:
    """Stands in for the end of a copy: nobody may write to a block before it was waited for."""

    def __init__(self):
        self.is_over = False

    def record(self, stream):
        pass

    def synchronize(self):
        self.is_over = True


class Stream:
    def wait_event(self, event):
        event.is_waited_for = True


def test_tables_are_packed_into_blocks_that_are_used_again_when_their_copy_is_over(monkeypatch):
    """The way over pinned memory, with a stand-in for streams and events: all but the device itself."""
    from contextlib import nullcontext

    from forebay.trainer import staging as module

    pinned = []
    monkeypatch.setattr(module, "_pinned", lambda length: pinned.append(length) or torch.full((length,), 7, dtype=torch.uint8))
    monkeypatch.setattr(module.torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(module.torch.cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(module.torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(Staging, "_is_there", lambda *_: False)
    staging, events, tables = Staging(torch.device("cpu"), depth=3), [], []
    staging._stream = Stream()

    def made():
        for number in range(12):
            events.append([block.copied for block in staging._blocks])
            tables.append(micro_batch(rows=6, seed=number))
            yield tables[-1]

    for place, after in enumerate(staging.stage(made())):
        assert len(tables) == min(place + 3, 12)  # two copies are under way while this one is computed on
        before = tables[place].tensors()
        assert after.tensors().keys() == before.keys() and (after.rows, after.tokens) == (6, tables[place].tokens)
        for name, tensor in after.tensors().items():
            assert torch.equal(tensor, before[name]) and tensor.dtype == before[name].dtype
    assert len(pinned) == 3 and staging.pinned_bytes == sum(pinned)
    used = {id(event): event for row in events for event in row if event is not None}
    assert sum(event.is_over for event in used.values()) >= 12 - 3 - 1  # each block was waited for before it was used again
    assert all(getattr(event, "is_waited_for", False) for event in used.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tables_go_to_a_device_through_pinned_blocks_that_are_kept():
    staging = Staging(torch.device("cuda:0"))
    tables = [micro_batch(rows=6, seed=seed) for seed in range(20)]
    pinned = set()
    for before, after in zip(tables, staging.stage(iter(tables))):
        pinned.add(staging.pinned_bytes)
        for name, tensor in before.tensors().items():
            assert after.tensors()[name].device.type == "cuda" and torch.equal(after.tensors()[name].cpu(), tensor)
    assert len(pinned) == 1


# The example, and the documentation


def test_the_program_of_the_documentation_runs(tmp_path):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    (program,) = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    subprocess.run([sys.executable, "-c", program.replace("run/", f"{tmp_path}/")], check=True)
    assert (tmp_path / "weights-1" / "config.json").exists()


@pytest.mark.parametrize("options", [[], ["--adapter"]])
def test_the_example_trains(path, options):
    example = pathlib.Path(__file__).parent.parent / "examples" / "grpo_transformers.py"
    steps = ["--steps", "12" if not options else "16"]
    command = [sys.executable, str(example), str(path), *steps, *options]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "suspended with 2 micro-batches in the cache: 0 bytes held" in result.stdout
    first, last = map(float, re.search(r"reward: (\S+) at first, (\S+) after", result.stdout).groups())
    assert last > first, result.stdout
    assert sorted(file.name for file in (path / "trained").iterdir() if file.suffix == ".safetensors") == [
        "adapter_model.safetensors" if options else "model.safetensors"
    ]
