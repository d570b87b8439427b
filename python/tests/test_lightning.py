"""agent-lightning's store over this one: the same script of calls gives what its own gives, and is there after a restart."""

import asyncio
import logging
import math

import pytest

import forebay

agentlightning = pytest.importorskip("agentlightning")

from agentlightning.store.memory import InMemoryLightningStore  # noqa: E402
from agentlightning.types import (  # noqa: E402
    LLM,
    EnqueueRolloutRequest,
    OtelResource,
    PromptTemplate,
    RolloutConfig,
    Span,
    TraceStatus,
)

from forebay.lightning import LightningStore  # noqa: E402


def span(rollout, number: int, **attributes) -> Span:
    return Span(
        rollout_id=rollout.rollout_id,
        attempt_id=rollout.attempt.attempt_id,
        sequence_id=number,
        trace_id=f"{number:032x}",
        span_id=f"{number:016x}",
        parent_id=None,
        name=f"call {number}",
        status=TraceStatus(status_code="OK"),
        attributes=attributes,
        events=[],
        links=[],
        start_time=float(number),
        end_time=number + 0.5,
        context=None,
        parent=None,
        resource=OtelResource(attributes={}, schema_url=""),
    )


async def script(store, note) -> None:
    """What an algorithm and its runners do, by agent-lightning's own calls."""
    note(await store.get_latest_resources())
    first = await store.add_resources({"main": LLM(endpoint="http://h:1/v1", model="m", sampling_parameters={"t": 1})})
    note(first)
    note(await store.update_resources("mine", {"prompt": PromptTemplate(template="{x}", engine="f-string")}))
    note((await store.get_latest_resources()).resources_id == "mine")
    await store.enqueue_rollout(input={"question": 1}, mode="train", resources_id=first.resources_id)
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, config=config) for n in (2, 3)])
    note(await store.query_rollouts(sort_by="start_time"))
    rollout = await store.dequeue_rollout(worker_id="w1")
    note(rollout)
    numbers = [await store.get_next_span_sequence_id(rollout.rollout_id, rollout.attempt.attempt_id) for _ in range(2)]
    note(numbers)
    tokens = {"prompt_token_ids": [1, 2], "response_token_ids": [3]}
    note(await store.add_span(span(rollout, numbers[0], **tokens)))
    note(await store.add_span(span(rollout, numbers[0], **tokens)))
    note(await store.add_many_spans([span(rollout, numbers[1], **{"agentlightning.reward.0.value": 0.5})]))
    note(await store.get_rollout_by_id(rollout.rollout_id))
    note(await store.query_spans(rollout.rollout_id))
    note(await store.query_spans(rollout.rollout_id, attempt_id="latest", name_contains="call 2"))
    note(await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=0))
    await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
    note(await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=0))
    second = await store.dequeue_rollout(worker_id="w1")
    await store.update_attempt(second.rollout_id, second.attempt.attempt_id, status="failed")
    note((await store.get_rollout_by_id(second.rollout_id)).status)
    note(await store.query_attempts(second.rollout_id))
    await store.update_worker("w1", {"cpu": 0.5})
    note((await store.get_worker_by_id("w1")).heartbeat_stats)
    await store.start_rollout(input="direct", worker_id="w2")
    await store.update_rollout(rollout.rollout_id, metadata={"note": "kept"})


async def rest(store, note) -> None:
    """How it goes on, in the same process or after a restart."""
    note(await store.query_rollouts(sort_by="start_time"))
    note([worker for worker in await store.query_workers(sort_by="worker_id")])
    note(await store.query_resources(sort_by="create_time"))
    note(await store.get_latest_resources())
    third, again = await store.dequeue_rollout(), await store.dequeue_rollout()
    note([third.input, again.input, again.attempt.sequence_id, await store.dequeue_rollout()])
    done = (await store.query_rollouts(status_in=["succeeded"]))[0]
    note(await store.wait_for_rollouts(rollout_ids=[done.rollout_id], timeout=0))
    attempt = await store.get_latest_attempt(done.rollout_id)
    note(await store.get_next_span_sequence_id(done.rollout_id, attempt.attempt_id))
    note(await store.query_spans(done.rollout_id))
    statistics = await store.statistics()
    note({name: statistics[name] for name in statistics if name.startswith("total_") and "bytes" not in name})


class Notes:
    """What calls gave, with names and times that are drawn replaced by the order in which they came."""

    DRAWN = ("rollout_id", "attempt_id", "resources_id", "current_rollout_id", "current_attempt_id")

    def __init__(self):
        self.names, self.lines = {}, []

    def __call__(self, given) -> None:
        self.lines.append(self.plain(given))

    def plain(self, given, name=""):
        if hasattr(given, "model_dump"):
            given = given.model_dump()
        elif hasattr(given, "items") and not isinstance(given, dict):
            given = list(given)
        if isinstance(given, dict):
            return {key: self.plain(value, key) for key, value in given.items()}
        if isinstance(given, (list, tuple)):
            return [self.plain(value) for value in given]
        if name in self.DRAWN and given is not None:
            return self.names.setdefault(given, f"{name} {len(self.names)}")
        if name.endswith("_time") and isinstance(given, float) and given > 1e6:
            return "a time"
        return given


def kept(path, options=None):
    return LightningStore(forebay.open(path), scan_debounce_seconds=0, **(options or {}))


@pytest.mark.parametrize("options", [{}, {"thread_safe": True}], ids=["asyncio", "threads"])
@pytest.mark.parametrize("is_reopened", [False, True], ids=["in one life", "over a restart"])
def test_a_script_of_calls_gives_what_agent_lightning_s_own_store_gives(path, options, is_reopened):
    theirs, ours = Notes(), Notes()
    memory = InMemoryLightningStore(scan_debounce_seconds=0, **options)
    asyncio.run(script(memory, theirs))
    asyncio.run(rest(memory, theirs))
    store = kept(path, options)
    asyncio.run(script(store, ours))
    if is_reopened:
        store.store.close()
        store = kept(path, options)
    asyncio.run(rest(store, ours))
    assert len(ours.lines) == len(theirs.lines) > 20
    for number, (our, their) in enumerate(zip(ours.lines, theirs.lines)):
        assert our == their, number
    store.store.close()


def test_spans_are_rows_that_a_consumer_claims_and_sql_sees(path):
    store = kept(path)
    asyncio.run(script(store, lambda _: None))
    trained = store.store.create_consumer(
        "tokens", tables=["lightning_spans"], kind="task", ready=["response_token_ids"]
    )
    with trained.claim(size=1, timeout=0) as claim:
        assert [row.tolist() for row in claim["prompt_token_ids"] + claim["response_token_ids"]] == [[1, 2], [3]]
        claim.finish()
    question = "select name, reward from lightning_spans order by sequence_id"
    assert store.store.sql(question).to_pylist() == [
        {"name": "call 1", "reward": None},
        {"name": "call 2", "reward": 0.5},
    ]
    store.store.close()


def test_rows_that_were_replaced_are_gone(path):
    store = kept(path)

    async def beat():
        for number in range(50):
            await store.update_worker("w", {"beat": number})

    asyncio.run(beat())
    assert store.store.sql("select count(*) as rows from lightning").to_pylist() == [{"rows": 1}]
    store.store.close()


def test_what_cannot_be_written_is_not_there_in_memory_either(path):
    store = kept(path)

    async def main():
        rollout = await store.enqueue_rollout(input="kept")
        store.store.close()
        with pytest.raises(forebay.ClosedError):
            await store.enqueue_rollout(input="lost")
        with pytest.raises(forebay.ClosedError):
            await store.update_rollout(rollout.rollout_id, metadata={"lost": True})
        return [(found.input, found.metadata or {}) for found in await store.query_rollouts()]

    assert asyncio.run(main()) == [("kept", {})]


@pytest.mark.parametrize("worker", [None, "w1"])
@pytest.mark.parametrize("many", [False, True])
def test_what_could_not_be_begun_is_still_in_the_queue(path, monkeypatch, many, worker):
    store = kept(path)

    async def main():
        for number in range(4):
            await store.enqueue_rollout(input=number)
        attempts, room = store.collections._attempts, [1]
        insert = attempts.insert

        async def with_room_for_one(items):
            if not room:
                raise forebay.CapacityError("no room")
            room.pop()
            return await insert(items)

        async def without_room(items, update_fields=None):
            raise forebay.CapacityError("no room")

        monkeypatch.setattr(attempts, "insert", with_room_for_one)
        monkeypatch.setattr(store.collections._workers, "upsert", without_room)
        if many:
            begun = await store.dequeue_many_rollouts(limit=3, worker_id=worker)
        else:
            begun = [await store.dequeue_rollout(worker_id=worker)]
        with pytest.raises(forebay.CapacityError):
            await store.dequeue_rollout()
        monkeypatch.undo()
        while rollout := await store.dequeue_rollout():
            begun.append(rollout)
        return [rollout.input for rollout in begun]

    assert asyncio.run(main()) == [0, 1, 2, 3]
    store.store.close()


BEGINNINGS = {
    "dequeued": lambda store, rollout: store.dequeue_rollout(),
    "dequeued with others": lambda store, rollout: store.dequeue_many_rollouts(limit=2),
    "attempted": lambda store, rollout: store.start_attempt(rollout.rollout_id),
    "started": lambda store, rollout: store.start_rollout(input="at once"),
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_an_attempt_whose_rollout_could_not_be_written_is_not_there_either(path, monkeypatch, beginning):
    store = kept(path)
    attempts = "select count(*) as rows from lightning where input_id = 'attempts'"

    async def without_room(items, update_fields=None):
        raise forebay.CapacityError("no room")

    async def main():
        rollout = await store.enqueue_rollout(input="asked")
        for change in ("insert", "update"):
            monkeypatch.setattr(store.collections._rollouts, change, without_room)
        with pytest.raises(forebay.CapacityError):
            await BEGINNINGS[beginning](store, rollout)
        monkeypatch.undo()
        assert store.store.sql(attempts).to_pylist() == [{"rows": 0}]
        return await store.dequeue_rollout()

    begun = asyncio.run(main())
    assert begun.input == "asked" and begun.attempt.sequence_id == 1
    assert store.store.sql(attempts).to_pylist() == [{"rows": 1}]
    store.store.close()


class Full:
    """A table without room."""

    def __init__(self, table):
        self.name = table.name

    def insert(self, **_):
        raise forebay.CapacityError("no room")


def test_a_call_that_finds_no_room_changes_none_of_what_it_would_have_changed(path, monkeypatch):
    store = kept(path)

    async def main():
        begun = await store.start_rollout(input="begun")
        for collection in (store.collections._rollouts, store.collections._attempts):
            monkeypatch.setattr(collection.journal, "table", Full(collection.journal.table))
        with pytest.raises(forebay.CapacityError):
            await store.update_attempt(begun.rollout_id, begun.attempt.attempt_id, status="succeeded")
        with pytest.raises(forebay.CapacityError):
            await store.enqueue_rollout(input="lost")
        monkeypatch.undo()
        found = await store.get_rollout_by_id(begun.rollout_id)
        return found.status, found.attempt.status, len(store.collections.rollout_queue._items)

    assert asyncio.run(main()) == ("preparing", "preparing", 0)
    store.store.close()


def test_the_health_of_rollouts_is_looked_at_once_for_all_that_a_call_begins(path, monkeypatch):
    store = kept(path)
    look, looks = store._scan_for_unhealthy_rollouts, []

    async def counted():
        looks.append(1)
        await look()

    async def main():
        for number in range(3):
            await store.enqueue_rollout(input=number)
        monkeypatch.setattr(store, "_scan_for_unhealthy_rollouts", counted)
        return [rollout.input for rollout in await store.dequeue_many_rollouts(limit=3)]

    assert (asyncio.run(main()), looks) == ([0, 1, 2], [1])
    store.store.close()


def test_tables_of_somebody_else_are_refused(path):
    with forebay.open(path) as store:
        store.create_table("lightning", {"x": "int32"})
        with pytest.raises(forebay.InputError, match="lightning"):
            LightningStore(store)


NUMBERS = {"agentlightning.reward.0.value": math.nan, "loss": math.inf, "norms": [1.0, -math.inf]}


async def traced(store) -> tuple:
    """A rollout, and its only span with numbers that are not finite."""
    rollout = await store.start_rollout(input="diverged")
    await store.add_span(span(rollout, 1, **NUMBERS))
    return rollout, (await store.query_spans(rollout.rollout_id))[0]


def test_numbers_that_are_not_finite_are_there_after_a_restart(path):
    store = kept(path)
    rollout, _ = asyncio.run(traced(store))
    store.store.close()
    store = kept(path)
    (found,) = asyncio.run(store.query_spans(rollout.rollout_id))
    reward, loss, norms = (found.attributes[name] for name in NUMBERS)
    assert math.isnan(reward) and loss == math.inf and list(norms) == [1.0, -math.inf]
    (reward,) = [row["reward"] for row in store.store.sql("select reward from lightning_spans").to_pylist()]
    assert math.isnan(reward)
    store.store.close()


def damage(path, is_newer: bool) -> str:
    """Writes the only span as a row that cannot be read, in place of the row that can be or beside it; gives its sample id."""
    with forebay.open(path) as store:
        spans = store.table("lightning_spans")
        (row,) = store.sql("select sample_id, key, item from lightning_spans").to_pylist()
        item = row["item"].replace("NaN", "null").replace("-Infinity", "null").replace("Infinity", "null")
        if not is_newer:
            spans.delete(spans.find(policy_version=0, sample_ids=[row["sample_id"]]))
        spans.insert(policy_version=0, sample_ids=["spans_0_?"], key=[row["key"]], item=[item])
        shown = store.sql("select sample_id from lightning_spans order by trajectory_id desc limit 1").to_pylist()
        return shown[0]["sample_id"]


@pytest.mark.parametrize("is_newer", [False, True], ids=["alone", "newer"])
def test_a_row_that_cannot_be_read_is_named_and_left_out(path, caplog, is_newer):
    store = kept(path)
    rollout, given = asyncio.run(traced(store))
    store.store.close()
    sample = damage(path, is_newer)
    with caplog.at_level(logging.WARNING, logger="forebay.lightning"):
        store = kept(path)
    assert [sample in record.getMessage() and "lightning_spans" in record.getMessage() for record in caplog.records] == [True]
    spans = asyncio.run(store.query_spans(rollout.rollout_id))
    assert [found.span_id for found in spans] == ([given.span_id] if is_newer else [])
    assert [found.input for found in asyncio.run(store.query_rollouts())] == ["diverged"]
    store.store.close()


def test_a_row_that_cannot_be_read_goes_when_its_item_is_written_anew(path, caplog):
    store = kept(path)
    rollout, given = asyncio.run(traced(store))
    store.store.close()
    damage(path, is_newer=False)
    store = kept(path)
    asyncio.run(store.add_span(given))
    assert store.store.sql("select count(*) as rows from lightning_spans").to_pylist() == [{"rows": 1}]
    store.store.close()
    caplog.clear()
    store = kept(path)
    assert [found.span_id for found in asyncio.run(store.query_spans(rollout.rollout_id))] == [given.span_id]
    assert not caplog.records
    store.store.close()
