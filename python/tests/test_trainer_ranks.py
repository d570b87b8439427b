"""Ranks that train one policy together: one gradient whatever their number, and nothing lost when one of them is."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import forebay  # noqa: E402
from forebay.trainer import (  # noqa: E402
    AdamW,
    DirectoryStateStore,
    ParameterChangedError,
    PolicyGradient,
    RankLostError,
    Ranks,
    RanksDifferError,
    TornWeightsError,
)
from forebay.trainer import ranks as module  # noqa: E402
from ranks import begin, logprobs, make, run, share  # noqa: E402
from tiny import difference  # noqa: E402


def bits(trainer) -> dict[str, bytes]:
    """All that a commit depends on, but what is each rank's own."""
    state = trainer.state()
    return {name: payload.memory.numpy().tobytes() for name, payload in state.items() if name.partition(".")[0] != "rng"}


def accumulate(trainer, rank, world) -> None:
    for place, batch in enumerate(share(rank, world)):
        trainer.accumulate(batch, claim=f"{rank}-{place}")


def summed(trainer) -> torch.Tensor:
    out = torch.zeros_like(trainer.cache.flat)
    trainer.ranks.sum(trainer.cache.flat, out)
    return out


def step(rank, world, dtype, chunk_elements):
    """Two steps, and what they come to."""
    module._CHUNK_ELEMENTS = chunk_elements
    trainer = make(seed=rank, dtype=dtype, ranks=Ranks(timeout_s=60))
    sums, updates = [], []
    for _ in range(2):
        accumulate(trainer, rank, world)
        sums.append(summed(trainer))
        updates.append(trainer.commit())
    return {"sums": sums, "updates": updates, "bits": bits(trainer), "fingerprint": trainer.weight_fingerprint()}


@pytest.mark.parametrize(
    "world, chunk_elements, dtype",
    [(1, 1 << 20, torch.float32), (2, 1 << 20, torch.float32), (3, 1000, torch.float32), (2, 999, torch.bfloat16)],
)
def test_ranks_come_to_the_gradient_of_one_and_to_the_same_bits(tmp_path, world, chunk_elements, dtype):
    # FX-29, FX-30: one division by the tokens of all ranks. Of three ranks one has no rows.
    alone = make(seed=0, dtype=dtype)
    wanted, updates = [], []
    for _ in range(2):
        accumulate(alone, 0, 1)
        wanted.append(alone.cache.flat.clone())
        updates.append(alone.commit())
    found, again = (run(tmp_path, world, step, dtype, chunk_elements) for _ in range(2))
    # What a backward pass in bf16 rounds depends on which rows it has; what ranks add to that, in fp32, does not.
    assert difference(found[0]["sums"][0], wanted[0]) < (1e-6 if dtype == torch.float32 else 1e-2)
    for rank in found[1:] + again:
        assert rank["bits"] == found[0]["bits"] and rank["fingerprint"] == found[0]["fingerprint"]
        assert all(torch.equal(one, other) for one, other in zip(rank["sums"], found[0]["sums"]))
        assert rank["updates"] == found[0]["updates"]
    if dtype == torch.float32:
        assert difference(found[0]["sums"][1], wanted[1]) < 1e-4  # of weights that differ in their last bits
    for mine, theirs in zip(updates, found[0]["updates"]):
        assert (mine.version, mine.rows, mine.tokens, mine.denominator) == (theirs.version, theirs.rows, theirs.tokens, theirs.denominator)
        assert theirs.loss == pytest.approx(mine.loss, rel=1e-2 if dtype == torch.bfloat16 else 1e-5)
        assert theirs.metrics == pytest.approx(mine.metrics, rel=1e-2)


def lost(rank, world, path, when, how, timeout_s):
    """Rank 1 is lost; the others do the step again without it."""
    trainer = make(ranks=Ranks(timeout_s=60))
    module._CHUNK_ELEMENTS = 1000
    accumulate(trainer, rank, world)
    trainer.join(Ranks(timeout_s=timeout_s))
    before, own, fingerprint = bits(trainer), trainer.cache.flat.clone(), trainer.weight_fingerprint()
    if rank == 1:
        lose_at(trainer.ranks, when, how)
        trainer.commit()
        raise AssertionError("it was to be lost")
    began = time.monotonic()
    with pytest.raises(RankLostError) as caught:
        trainer.commit()
    took_s = time.monotonic() - began
    assert bits(trainer) == before and torch.equal(trainer.cache.flat, own) and trainer.weight_fingerprint() == fingerprint
    assert isinstance(caught.value, forebay.RetryError) and "nothing was changed" in str(caught.value)
    torch.distributed.destroy_process_group()
    left = [0, 2].index(rank)
    begin(path / f"again-{when}-{how}", left, 2)
    claims = list(trainer.claims)
    trainer.join(Ranks(timeout_s=60))
    assert trainer.claims == claims  # the weights are those that the cache is of
    for place, batch in enumerate(share(1, 3) if left == 0 else []):
        trainer.accumulate(batch, claim=f"1-{place}")  # what the lost rank had
    update = trainer.commit()
    return took_s, update, bits(trainer)


def lose_at(ranks, when, how):
    """Ends, or stops, this process at a moment of the commit."""

    def end(*_):
        os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)

    original, calls = {"word": ranks.exchange, "sum": ranks._gathered}, []
    if when == "the first word":
        ranks.exchange = end
    elif when == "the sum":
        ranks.sum = lambda flat, out: (setattr(ranks, "_gathered", end), type(ranks).sum(ranks, flat, out))
    else:
        ranks.exchange = lambda told: (calls.append(told), end() if len(calls) == 2 else None, original["word"](told))[-1]


@pytest.mark.parametrize(
    "when, how, timeout_s",
    [
        ("the first word", "killed", 60.0), ("the sum", "killed", 60.0), ("the last word", "killed", 60.0),
        ("the sum", "stopped", 3.0), ("the last word", "stopped", 3.0),
    ],
)  # fmt: skip
def test_a_rank_that_is_lost_leaves_the_others_as_they_were_and_the_step_can_be_done_again(tmp_path, when, how, timeout_s):
    # FX-57: the gradient cache outlives what happens to others.
    first, _, third = run(tmp_path, 3, lost, tmp_path, when, how, timeout_s, lost=(1,))
    for took_s, *_ in (first, third):
        assert took_s < (10.0 if how == "killed" else timeout_s + 10.0)
    assert first[1] == third[1]
    alone = make()
    accumulate(alone, 0, 1)
    wanted = alone.commit()
    assert (first[1].rows, first[1].tokens) == (wanted.rows, wanted.tokens) == (8, wanted.tokens)
    assert first[1].gradient_norm == pytest.approx(wanted.gradient_norm, rel=1e-5)


def cannot_commit(rank, world):
    trainer = make(ranks=Ranks(timeout_s=60))
    with pytest.raises(forebay.StateError, match="nothing to commit: 0 micro-batches"):
        trainer.commit()
    accumulate(trainer, rank, world)
    before = trainer.cache.flat.clone()
    if rank == 1:
        with torch.no_grad():
            trainer.model.head.bias.add_(1.0)
    error_type, message = (ParameterChangedError, "head.bias") if rank == 1 else (forebay.StateError, "rank 1 cannot commit.*head.bias")
    with pytest.raises(error_type, match=message):
        trainer.commit()
    assert torch.equal(trainer.cache.flat, before) and trainer.version == 0
    if rank == 1:
        trainer.drop()
        trainer.adopt()
    trainer.join(trainer.ranks)  # with the weights of rank 0, of which rank 1 has no gradients any more
    return trainer.commit(), trainer.weight_fingerprint()


def test_what_keeps_one_rank_from_a_commit_keeps_all(tmp_path):
    found = run(tmp_path, 2, cannot_commit)
    assert found[0] == found[1] and found[0][0].rows == 5


def not_a_number(rank, world):
    trainer = make(ranks=Ranks(timeout_s=60))
    accumulate(trainer, rank, world)
    if rank == 1:
        trainer.cache.flat[3] = float("nan")
    fingerprint = trainer.weight_fingerprint()
    with pytest.raises(forebay.StateError, match="no numbers"):
        trainer.commit()
    assert trainer.weight_fingerprint() == fingerprint and trainer.version == 0
    return True


def test_a_gradient_that_is_no_number_changes_nothing_on_any_rank(tmp_path):
    assert run(tmp_path, 2, not_a_number) == [True, True]


def joined(rank, world):
    told = []
    with pytest.raises(RanksDifferError, match="settings"):
        make(seed=rank, optimizer=AdamW(lr=0.01 * (1 + rank)), ranks=Ranks(timeout_s=60))
    trainer = make(seed=rank, dtype=torch.bfloat16, ranks=Ranks(timeout_s=60))
    told.append(trainer.weight_fingerprint())
    accumulate(trainer, rank, world)
    if rank == 1:  # it heard the last word, and the other did not
        ranks, trainer.ranks = trainer.ranks, None
        trainer.commit()
        trainer.ranks = ranks
        accumulate(trainer, rank, world)
    with pytest.raises(RanksDifferError, match="version 1" if rank == 0 else "version 0"):
        trainer.commit()
    trainer.join(trainer.ranks, source=1)
    assert (len(trainer.claims) > 0) == (rank == 1) and trainer.version == trainer.updates == 1
    told.append(bits(trainer)["master"])
    told.append(bits(trainer)["exp_avg"])
    accumulate(trainer, rank, world) if rank == 0 else None
    told.append(trainer.commit())
    told.append(trainer.weight_fingerprint())
    return told


def test_joining_makes_ranks_equal_and_keeps_no_gradient_of_other_weights(tmp_path):
    found = run(tmp_path, 2, joined)
    assert found[0] == found[1] and found[0][3].version == 2 and found[0][3].rows == 8


class Fading:
    """The ranks as rank 1 of two sees them, of which the other one is lost when some of its buffers have come."""

    rank, world = 1, 2

    def __init__(self, other, buffers, error=RankLostError("another rank has died")):
        self.other, self.left, self.error = other, buffers, error

    def exchange(self, told):
        own = {"version": self.other.version, "updates": self.other.updates, "weights": self.other.weight_fingerprint()}
        return [{**told, "own": own}, told]

    def broadcast(self, tensor, source):
        if not self.left:
            raise self.error
        self.left -= 1
        name = sorted(name for name in self.other._buffers() if name != "gradient")[self.count]
        tensor.copy_(self.other._buffers()[name])
        self.count += 1

    count = 0


@pytest.mark.parametrize("error", [RankLostError("another rank has died"), KeyboardInterrupt()])
def test_a_rank_whose_joining_is_interrupted_is_torn_and_trains_and_publishes_nothing(tmp_path, error):
    states = DirectoryStateStore(tmp_path)
    other, trainer = make(seed=1), make(seed=2)
    batch = share(0, 2)[0]
    other.accumulate(batch, claim="a")
    other.commit()
    trainer.restore(whole := {name: payload for name, payload in make(seed=3).state().items()})
    with pytest.raises(type(error)):
        trainer.join(Fading(other, 2, error))
    calls = [
        lambda: trainer.publish(states, "weights"), trainer.commit, lambda: trainer.accumulate(batch, claim="b"), trainer.state,
        lambda: trainer.add(torch.zeros((), requires_grad=True), 1.0), trainer.weights, trainer.weight_fingerprint, trainer.adopt,
        lambda: trainer.suspend(states, "state"), lambda: trainer.save_pretrained(tmp_path / "saved"), lambda: trainer.load(tmp_path),
        lambda: trainer.logprobs(batch),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TornWeightsError, match="torn"):
            call()
    assert not list(tmp_path.iterdir())
    trainer.join(Fading(other, 100))  # with whole weights of another rank it is whole
    assert bits(trainer) == {**bits(other), **{name: bits(trainer)[name] for name in ("gradient", "counters")}}
    with pytest.raises(type(error)):
        trainer.join(Fading(make(seed=4), 2, error))
    trainer.restore(whole)  # and with a state
    assert trainer.weight_fingerprint() == make(seed=3).weight_fingerprint() and trainer.ranks is not None


def test_an_update_that_is_interrupted_leaves_weights_that_are_not_published(tmp_path, monkeypatch):
    trainer = make()
    accumulate(trainer, 0, 1)
    kept = {name: type(payload)(payload.dtype, payload.shape, payload.memory.clone()) for name, payload in trainer.state().items()}
    step = trainer.optimizer.step
    monkeypatch.setattr(trainer.optimizer, "step", lambda *arguments: (step(*arguments), (_ for _ in ()).throw(KeyboardInterrupt()))[0])
    with pytest.raises(KeyboardInterrupt):
        trainer.commit()
    with pytest.raises(TornWeightsError, match="an update"):
        trainer.publish(DirectoryStateStore(tmp_path), "weights")
    monkeypatch.undo()
    trainer.restore(kept)
    again = make()
    accumulate(again, 0, 1)
    assert trainer.commit() == again.commit() and bits(trainer) == bits(again)


def torn(rank, world):
    """A rank that cannot commit says so to the other, instead of letting it wait."""
    trainer = make(ranks=Ranks(timeout_s=60))
    accumulate(trainer, rank, world)
    if rank == 1:
        trainer._torn = "a test tore them"
    began = time.monotonic()
    with pytest.raises(TornWeightsError if rank == 1 else forebay.StateError, match="torn"):
        trainer.commit()
    with pytest.raises(forebay.StateError, match="torn.*take a rank whose weights are whole"):
        trainer.join(trainer.ranks, source=1)
    trainer.join(trainer.ranks)
    return time.monotonic() - began, trainer.weight_fingerprint(), len(trainer.claims)


def test_a_rank_that_cannot_commit_keeps_no_other_waiting_and_gives_nobody_its_weights(tmp_path):
    first, second = run(tmp_path, 2, torn)
    assert first[1] == second[1] and first[0] < 30 and second[0] < 30
    assert first[2] > 0 and second[2] == 0


def suspended_alone(rank, world, path):
    trainer = make(ranks=Ranks(timeout_s=60))
    accumulate(trainer, rank, world)
    if rank == 1:
        trainer.suspend(DirectoryStateStore(path), "state")
    began = time.monotonic()
    with pytest.raises(forebay.StateError, match="suspended"):
        trainer.commit()
    return time.monotonic() - began


def test_a_suspended_rank_says_so_to_those_that_commit(tmp_path):
    assert max(run(tmp_path, 2, suspended_alone, tmp_path / "states")) < 30


def suspended(rank, world, path, is_suspended):
    states = DirectoryStateStore(path)
    trainer = make(ranks=Ranks(timeout_s=60))
    accumulate(trainer, rank, world)
    trainer.commit()
    parts = share(rank, world)
    if parts:
        trainer.accumulate(parts[0], claim=f"{rank}-0")
    if is_suspended:
        key = trainer.ranks.key("solver/trainer")
        trainer.suspend(states, key)
        with pytest.raises(forebay.StateError, match="suspended"):
            trainer.join(trainer.ranks)
        trainer = make(seed=99)  # another process
        trainer.resume(states, key)
        trainer.join(Ranks(timeout_s=60))
    accumulate(trainer, rank, world)  # what is in the cache already is not computed again
    return trainer.commit(), bits(trainer)


def test_ranks_that_are_suspended_and_resumed_come_to_the_same_bits(tmp_path):
    # FX-57, FX-58
    going, resumed = (run(tmp_path, 3, suspended, tmp_path / "states", is_suspended) for is_suspended in (False, True))
    assert going == resumed and going[0] == going[1] == going[2]
    assert DirectoryStateStore(tmp_path / "states").versions("solver/trainer/rank-2-of-3") == [1]


def exchanged(rank, world):
    ranks = Ranks(timeout_s=60)
    return [ranks.exchange({"rank": rank, "text": "x" * rank * 1000, "none": None}), ranks.exchange([rank]), ranks.key("a/b")]


def test_what_ranks_tell_each_other_may_be_of_any_length(tmp_path):
    found = run(tmp_path, 3, exchanged)
    for rank, (first, second, key) in enumerate(found):
        assert [(told["rank"], len(told["text"])) for told in first] == [(0, 0), (1, 1000), (2, 2000)]
        assert second == [[0], [1], [2]] and key == f"a/b/rank-{rank}-of-3"


def test_without_a_process_group_there_are_no_ranks():
    with pytest.raises(forebay.InputError, match="init_process_group"):
        Ranks()


def test_the_example_trains_with_two_processes_through_a_server(server, tmp_path):
    pytest.importorskip("transformers")
    example = pathlib.Path(__file__).parent.parent / "examples" / "data_parallel.py"
    command = [sys.executable, str(example), server.address, "--steps", "2", "--directory", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert result.returncode == 0, result.stderr
    rewards = [float(reward) for reward in result.stdout.split("by step: ")[1].splitlines()[0].split()]
    assert len(rewards) == 2 and rewards[-1] > rewards[0], rewards
    with forebay.connect(server.address) as store:
        assert store.policy_version("solver") == 2
        stamps = store.sql("select distinct policy_version, weights from solver").to_pylist()
        assert len(stamps) == 2 and all(len(stamp["weights"]) == 32 for stamp in stamps)
        assert store.sql("select count(*) as rows from solver").to_pylist() == [{"rows": 2 * 64}]


# What ranks agree on, and what they have applied


LOSSES = [PolicyGradient(form="grpo", forward=logprobs), PolicyGradient(form="dr_grpo", length=9, forward=logprobs)]


def of_another_loss(rank, world, when):
    objective = LOSSES[0] if rank else PolicyGradient(forward=logprobs)
    trainer = make(objective=objective if when == "join" else LOSSES[1])
    if when == "join":
        with pytest.raises(RanksDifferError, match="has objective .*PolicyGradient.form='(grpo|dapo)'"):
            trainer.join(Ranks(timeout_s=60))
        return True
    trainer.join(Ranks(timeout_s=60))
    trainer.objective = objective
    accumulate(trainer, rank, world)
    with pytest.raises(RanksDifferError, match="has objective"):
        trainer.commit()
    return trainer.version == 0


@pytest.mark.parametrize("when", ["join", "commit"])
def test_ranks_of_another_loss_are_refused(tmp_path, when):
    assert run(tmp_path, 2, of_another_loss, when) == [True, True]


def claimed(number: int):
    """A claim of two rows, as a store hands it out."""
    columns = {"prompt": [[7, 8]] * 2, "response": [[1 + number, 2], [3]], "advantage": [1.0, -0.5], "policy_version": [0] * 2, "group_key": ["q"] * 2}

    class Claimed:
        table, consumer, step, sequence, epoch = "solver", "train", 1, number, (1, 1)
        sample_ids = [f"q{number}_0_{row}" for row in range(2)]
        accumulated = staticmethod(lambda: None)
        __getitem__ = staticmethod(columns.__getitem__)

    return Claimed()


def applied_by_another(rank, world):
    trainer = make(ranks=Ranks(timeout_s=60))
    trainer.accumulate(claimed(rank))
    update, weights = trainer.commit(), trainer.weight_fingerprint()
    added = trainer.accumulate(claimed(world - 1 - rank)).is_new  # the store hands out again, and the shares are others
    again = trainer.commit()
    return added, again == update, update.version, trainer.version, weights == trainer.weight_fingerprint()


def test_rows_that_come_again_to_another_rank_are_not_trained_twice(tmp_path):
    # FX-57
    assert run(tmp_path, 2, applied_by_another) == [(False, True, 1, 1, True)] * 2
