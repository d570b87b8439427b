"""Ctrl-C at every line of the package, while an update is applied, a state restored, or ranks join: what is gone on with is right, or refused."""

import sys
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import forebay  # noqa: E402
from forebay.trainer import AdamW, DirectoryStateStore, Payload, Trainer  # noqa: E402

ROWS = torch.arange(12.0).view(4, 3)


def made(**options):
    torch.manual_seed(0)
    return Trainer(torch.nn.Linear(3, 2), optimizer=AdamW(lr=0.1, weight_decay=0.0), **options)


def fill(trainer, claim="c", scale=1.0):
    trainer.add((scale * trainer.model(ROWS)).pow(2).sum(), 4.0, claim=claim)


def told(trainer):
    """All that the next commit depends on."""
    buffers = {name: tensor.clone() for name, tensor in trainer._buffers().items()}
    cache = trainer.cache
    counts = (trainer.version, trainer.updates, cache.claims, cache.denominator, float(cache.numerator), trainer.applied.tell())
    return buffers, counts


def same(one, other) -> bool:
    return one[1] == other[1] and all(torch.equal(tensor, other[0][name]) for name, tensor in one[0].items())


@contextmanager
def interrupted(at: int):
    """Raises KeyboardInterrupt at the so many-th line of the package. Gives where, once it has."""
    count, where = 0, []

    def trace(frame, event, argument):
        nonlocal count
        if "forebay/trainer" not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        if event == "line":
            count += 1
            if count == at + 1:
                where.append(f"{frame.f_code.co_filename.rsplit('/', 1)[1]}:{frame.f_lineno}")
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield where
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)


def each_line(begin, call, go_on):
    """Interrupts a call at each of its lines, and goes on: begin() gives a trainer, call(trainer) is interrupted, go_on(trainer, where)
    looks at what is left."""
    for at in range(5000):
        trainer = begin()
        with interrupted(at) as where:
            call(trainer)
        if not where:
            assert at > 20
            return
        go_on(trainer, where[0])
    raise AssertionError("it has no end")


def updated():
    trainer = made()
    fill(trainer)
    return trainer


@pytest.fixture
def state():
    """A state of another version, with a gradient in its cache, and what a trainer that has it holds."""
    source = updated()
    source.commit()
    fill(source, "s", 2.0)
    payloads = {name: Payload.of(payload.tensor().clone()) for name, payload in source.state().items()}
    return payloads, told(source)


def test_an_update_is_applied_once_wherever_it_is_interrupted(state):
    whole = updated()
    update = whole.commit()
    right = told(whole)
    refused = []

    def go_on(trainer, where):
        try:
            # The loop goes round: of the rows of a store they would be passed over; of one's own, commit says that they were.
            if trainer.version == 0:
                assert trainer.commit() == update, where
            assert trainer.weights() and same(told(trainer), right), where
        except forebay.StateError:
            refused.append(where)
            trainer.restore(state[0])  # the way out
            assert same(told(trainer), state[1]), where
            fill(trainer, "t")
            assert trainer.commit().version == 2

    each_line(updated, Trainer.commit, go_on)
    assert refused


def test_a_drop_that_is_interrupted_leaves_no_half_gradient():
    def go_on(trainer, where):
        try:
            trainer.cache.refuse_spoiled()
        except forebay.StateError:
            trainer.drop()
        whole = updated()
        if trainer.cache.is_empty:
            fill(trainer)
        assert same(told(trainer), told(whole)), where

    seen = []
    for at in range(5000):
        trainer = updated()
        with interrupted(at) as where:
            trainer.drop()
        if not where:
            break
        seen += where
        go_on(trainer, where[0])
    assert len(seen) > 5


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_state_is_restored_whole_or_torn(state, tmp_path, is_suspended):
    payloads, right = state
    states = DirectoryStateStore(tmp_path)

    def begin():
        trainer = made()
        fill(trainer, "mine")
        if is_suspended:
            trainer.suspend(states, "t")
        return trainer

    trainer = made()
    fill(trainer, "mine")
    before = told(trainer)

    def go_on(trainer, where):
        try:
            trainer.weights()
        except forebay.StateError:
            trainer.restore(payloads)
        now = told(trainer)
        assert same(now, right) or same(now, before), where
        if same(now, right):
            fill(trainer, "t")
            whole = made()
            whole.restore(payloads)
            fill(whole, "t")
            assert trainer.commit() == whole.commit() and same(told(trainer), told(whole)), where

    each_line(begin, lambda trainer: trainer.restore(payloads), go_on)


class Pair:
    """What a trainer sees of the ranks when it joins another one that is ahead."""

    rank, world = 1, 2

    def __init__(self, other):
        self.other = other
        self.buffers = iter(buffer for name, buffer in sorted(other._buffers().items()) if name != "gradient")

    def exchange(self, told):
        other = self.other
        own = {"version": other.version, "updates": other.updates, "weights": other.weight_fingerprint()}
        return [{**told, "own": own, **other.applied.tell()}, told]

    def broadcast(self, buffer, source):
        buffer.copy_(next(self.buffers))


def test_a_rank_joins_whole_or_torn():
    other = updated()
    other.commit()

    def begin():
        trainer = made()
        fill(trainer, "mine", 3.0)
        return trainer

    def same_weights(one, two):
        return (one.version, one.weight_fingerprint()) == (two.version, two.weight_fingerprint())

    def go_on(trainer, where):
        try:
            trainer.weights()
        except forebay.StateError:
            trainer.join(Pair(other))
        if trainer.ranks is None:
            assert same_weights(trainer, made()) and len(trainer.claims) == 1, where
            trainer.join(Pair(other))
        assert same_weights(trainer, other) and not trainer.claims and trainer.cache.is_empty, where
        assert trainer.applied.tell() == other.applied.tell(), where

    each_line(begin, lambda trainer: trainer.join(Pair(other)), go_on)
