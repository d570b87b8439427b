"""Snapshots: one instant of tables, read again and again while others write."""

import asyncio
import threading
import time

import pytest

import forebay
from conftest import ids


def put(solver, input_id: str, version: int = 0, count: int = 2):
    return solver.insert(
        policy_version=version, sample_ids=ids(input_id, count), response=[[1, 2]] * count, answer=[input_id] * count
    )


def test_a_snapshot_shows_one_instant_whatever_is_written_later(store, solver):
    put(solver, "q1"), put(solver, "q2", version=1)
    with store.snapshot() as snapshot:
        assert snapshot.tables == ["solver"] and snapshot.commit > 0
        table = snapshot.table("solver")
        before = table.arrow(["sample_id", "answer", "response"])
        put(solver, "late")
        solver.delete(all=True, force=True)
        assert table.arrow(["sample_id", "answer", "response"]) == before and len(table) == 4
        assert before["sample_id"].to_pylist() == ids("q1") + ids("q2")
        assert before["response"].to_pylist() == [[1, 2]] * 4
        assert table.versions() == {0: 2, 1: 2}
        assert table.arrow(["sample_id"], version=1)["sample_id"].to_pylist() == ids("q2")
        assert (table.name, table.policy, table.current_version) == ("solver", "solver", 0)
    with store.snapshot(["solver"]) as later:
        none = later.table("solver").arrow()
        assert none.num_rows == 0 and "response" in none.column_names


def test_rows_are_read_batch_by_batch_in_either_order(store, solver):
    for name in ("q9", "q3", "q7"):
        put(solver, name, count=1)
    with store.snapshot() as snapshot:
        table = snapshot.table("solver")
        for size, by_arrival, order in [(1, False, ["q3", "q7", "q9"]), (2, True, ["q9", "q3", "q7"])]:
            batches = list(table.batches(["sample_id"], size=size, by_arrival=by_arrival))
            assert all(batch.num_rows <= size for batch in batches)
            seen = [sample for batch in batches for sample in batch["sample_id"].to_pylist()]
            assert seen == [f"{name}_0_0" for name in order]


def test_a_snapshot_is_over_when_it_is_closed_or_its_deadline_has_come(store, solver):
    put(solver, "q1")
    with store.snapshot(owner="the evaluation") as snapshot:
        owners = store.sql("select owner from system.pins").arrow()["owner"].to_pylist()
        assert "snapshot of the evaluation" in owners
        table, reader = snapshot.table("solver"), snapshot.table("solver").batches(size=1)
        kept = next(reader)
        assert snapshot.extend(120) >= time.time() + 100
    for read in (table.arrow, table.versions, lambda: next(reader), lambda: snapshot.deadline, lambda: snapshot.extend(1)):
        with pytest.raises(forebay.StateError, match="closed"):
            read()
    assert kept.num_rows == 1, "what was read stays"
    brief = store.snapshot(seconds=0.05)
    while time.time() <= brief.deadline:
        pass
    with pytest.raises(forebay.StateError, match="is over"):
        brief.table("solver").arrow()


def test_what_no_snapshot_shows_is_refused_by_its_name(store, solver):
    with pytest.raises(forebay.InputError, match="solver"):
        store.snapshot(["slover"])
    with store.snapshot() as snapshot:
        with pytest.raises(forebay.InputError, match="checker"):
            snapshot.table("checker")
        with pytest.raises(forebay.InputError, match="response"):
            snapshot.table("solver").arrow(["reponse"])
    for wrong, match in [({"tables": 3}, "tables is a list"), ({"seconds": "long"}, "seconds is a number")]:
        with pytest.raises(forebay.InputError, match=match):
            store.snapshot(**wrong)
    held = [store.snapshot() for _ in range(16)]
    with pytest.raises(forebay.CapacityError, match="16 snapshots"):
        store.snapshot()
    del held
    store.snapshot().close()


def test_closing_the_store_ends_its_snapshots(store, solver):
    put(solver, "q1")
    snapshot = store.snapshot()
    table = snapshot.table("solver")
    store.close()
    with pytest.raises(forebay.Error):
        table.arrow()


@pytest.mark.tcp
def test_an_event_loop_reads_a_snapshot(store, solver):
    put(solver, "q1"), put(solver, "q2", version=1)

    async def main():
        with await store.snapshot_async(["solver"], seconds=60) as snapshot:
            table = snapshot.table("solver")
            assert await table.versions_async() == {0: 2, 1: 2}
            whole = await table.arrow_async(["sample_id"], version=1)
            seen = [sample async for batch in table.batches(["sample_id"], size=1) for sample in batch["sample_id"].to_pylist()]
            reader = table.batches(["sample_id"], size=3)
            begun = await anext(reader)
        with pytest.raises(forebay.StateError, match="closed"):
            await anext(reader)
        with pytest.raises(forebay.InputError, match="tables is a list"):
            await store.snapshot_async(3)
        return whole, seen, begun

    whole, seen, begun = asyncio.run(main())
    assert whole["sample_id"].to_pylist() == ids("q2") and seen == ids("q1") + ids("q2") and begun.num_rows == 3


def test_an_event_loop_reads_while_every_thread_for_writes_waits(store, solver):
    rows = put(solver, "q1")

    async def main():
        from forebay import _async

        blocked, release = threading.Barrier(_async.WRITERS + 1), threading.Event()
        write = lambda: (blocked.wait(), release.wait())
        writes = [asyncio.ensure_future(_async.in_thread(write, (), None)) for _ in range(_async.WRITERS)]
        await asyncio.to_thread(blocked.wait)
        try:
            shown, snapshot = await solver.show_async(rows), await store.snapshot_async()
            with snapshot:
                return [row["sample_id"] for row in shown], await snapshot.table("solver").arrow_async(["sample_id"])
        finally:
            release.set()
            await asyncio.gather(*writes)

    shown, read = asyncio.run(main())
    assert shown == read["sample_id"].to_pylist() == ids("q1")


def test_a_batch_that_a_cancelled_task_waited_for_is_the_next_one(store, solver, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    from forebay import _async

    put(solver, "q1", count=4)
    begun, read = threading.Event(), threading.Event()

    class Slow(ThreadPoolExecutor):
        def submit(self, call, *arguments):
            return super().submit(lambda: (begun.set(), read.wait(), call(*arguments))[-1])

    async def main():
        with store.snapshot() as snapshot:
            reader = snapshot.table("solver").batches(["sample_id"], size=1)
            cancelled = asyncio.ensure_future(anext(reader))
            await asyncio.to_thread(begun.wait)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            read.set()
            return [sample async for batch in reader for sample in batch["sample_id"].to_pylist()]

    with Slow(1) as pool:
        monkeypatch.setattr(_async, "_readers", pool)
        assert asyncio.run(main()) == ids("q1", 4)
    assert not _async._untaken
