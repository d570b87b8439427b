"""Waits of an event loop: they end as those of threads do, cost no thread, and lose no row when they are cancelled."""

import asyncio
import contextlib
import os
import random
import threading

import pytest

import forebay
from conftest import begin, ids


def put(solver, *input_ids: str):
    return solver.insert(
        policy_version=0, sample_ids=[f"{i}_0_0" for i in input_ids], response=[[1]] * len(input_ids)
    )


async def asleep(count: int) -> None:
    """Until so many waits of this loop are asleep."""
    from forebay import _async

    waits = _async._of_loops
    while len(waits.get(asyncio.get_running_loop(), _async._Waits()).asleep) < count:
        await asyncio.sleep(0)


def test_a_claim_comes_when_its_rows_do_and_the_loop_goes_on_meanwhile(solver, read):
    async def main():
        claim = asyncio.create_task(read.claim_async(size=2, exact=True))
        await asleep(1)
        assert not claim.done()
        writer = threading.Thread(target=put, args=(solver, "q1", "q2"))
        writer.start()
        with await claim as rows:
            assert rows.sample_ids == ["q1_0_0", "q2_0_0"]
            await rows.finish_async(reward=[1.0, 2.0])
        writer.join()

    asyncio.run(main())
    assert solver.counts()["written"] == 2


def test_many_waits_cost_no_thread_and_each_row_goes_to_one(solver, read):
    count = 2000

    async def main():
        before = len(os.listdir("/proc/self/task"))
        claims = [asyncio.create_task(read.claim_async(size=1)) for _ in range(count)]
        await asleep(count)
        assert len(os.listdir("/proc/self/task")) <= before
        put(solver, *(f"q{number}" for number in range(count)))
        return [claim.sample_ids[0] for claim in await asyncio.gather(*claims)]

    assert sorted(asyncio.run(main())) == sorted(f"q{number}_0_0" for number in range(count))


def test_nothing_looks_again_before_it_is_woken(solver, read, monkeypatch):
    from forebay import _async

    looks = []

    class Counted:
        """A wait with its looks counted."""

        def __init__(self, pending):
            self.timeout, self.cancel, self.pending = pending.timeout, pending.cancel, pending

        def poll(self, bell, number):
            looks.append(number)
            return self.pending.poll(bell, number)

    wait = _async.wait
    monkeypatch.setattr(_async, "wait", lambda pending: wait(Counted(pending)))

    async def main():
        claim = asyncio.create_task(read.claim_async(size=2, exact=True))
        await asleep(1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(looks) == 1
        put(solver, "q1", "q2")
        await claim
        assert len(looks) == 2

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(8))
def test_a_cancelled_wait_loses_no_row(solver, read, seed):
    """Waits are cancelled at random while rows come; every row is claimed by one that was not, or is there still."""
    print("seed", seed)
    chance = random.Random(seed)
    count = 60

    async def main():
        claims = [asyncio.create_task(read.claim_async(size=1)) for _ in range(2 * count)]
        await asleep(2 * count)
        writer = threading.Thread(target=lambda: [put(solver, f"q{number}") for number in range(count)])
        writer.start()
        for claim in chance.sample(claims, count):
            claim.cancel()
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        await asyncio.to_thread(writer.join)
        held = [claim async for claim in claimed(claims, count)]
        [claim.cancel() for claim in claims]
        await asyncio.gather(*claims, return_exceptions=True)
        return [claim.sample_ids[0] for claim in held]

    async def claimed(claims, left):
        """What the claims came to that were not cancelled, until there are so many."""
        open_ = set(claims)
        while left:
            done, open_ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            assert done, f"{left} rows went to nobody"
            for claim in done:
                if not claim.cancelled():
                    left -= 1
                    yield claim.result()

    assert sorted(asyncio.run(main())) == sorted(f"q{number}_0_0" for number in range(count))


def test_a_claim_that_nobody_took_goes_back(solver, read):
    """The task has its rows and is dropped before anybody looks at what it came to."""

    async def main():
        task = asyncio.create_task(read.claim_async(size=1))
        await asleep(1)
        put(solver, "q1")
        await task
        del task

    asyncio.run(main())
    assert read.claim(size=1, timeout=0).sample_ids == ["q1_0_0"]


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_wait_that_is_too_long_raises(solver, read, timeout):
    async def main():
        with pytest.raises(forebay.WaitTimeout, match='"read" in'):
            await read.claim_async(size=1, timeout=timeout)
        put(solver, "q1")
        assert len(await read.claim_async(size=1, timeout=timeout)) == 1

    asyncio.run(main())


def test_wait_for_of_asyncio_gives_a_wait_up(solver, read):
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read.claim_async(size=1), 0.01)
        put(solver, "q1")
        assert len(await asyncio.wait_for(read.claim_async(size=1), 60)) == 1

    asyncio.run(main())


def test_a_wrong_call_raises_at_once(store, solver, read, train):
    async def main():
        with pytest.raises(forebay.InputError, match="size is 0"):
            read.claim_async(size=0)
        with pytest.raises(forebay.StateError, match="begin a step"):
            await train.claim_async(size=1)
        with pytest.raises(forebay.InputError, match="slover|No table|not found"):
            await store.sql_async("select * from slover")

    asyncio.run(main())


def test_closing_the_store_ends_every_wait(path):
    store = forebay.open(path)
    solver = store.create_table("solver", {"response": "list<int32>", "reward": "float32"})
    read = store.create_consumer("read", tables=["solver"], kind="task", ready=["response"])
    train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["reward"])

    async def main():
        step = store.step(rows={train: 1})
        waits = [read.claim_async(size=1), read.claim_async(size=1, timeout=60)]
        waits += [anext(step.micro_batches(train, size=1)), anext(step.micro_batches(train, size=1, rank=0, world=2))]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        await asleep(len(tasks))
        await asyncio.to_thread(store.close)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [forebay.ClosedError] * len(tasks), outcomes

    asyncio.run(main())
    forebay.open(path).close()  # nothing that waited keeps the directory


def test_micro_batches_are_an_asynchronous_iterator(store, solver, train):
    begin(solver, "q1")
    late = solver.insert(policy_version=0, sample_ids=ids("q2"), response=[[1], [2]])

    async def main():
        seen = []
        with store.step() as step:
            async for batch in step.micro_batches(train, size=2, timeout=60):
                seen.append(batch.sample_ids)
                batch.accumulated()
                if len(seen) == 1:
                    await solver.write_async(late, reward=[1.0, 2.0])
            assert await step.commit_async({"solver": 1}) == 4
        return seen

    assert asyncio.run(main()) == [ids("q1"), ids("q2")]


@contextlib.contextmanager
def taken(*pools):
    """Every thread of these pools has something to do."""
    free = threading.Event()
    calls = [pool.submit(free.wait, 60) for pool in pools for _ in range(pool._max_workers)]
    try:
        yield
    finally:
        free.set()
        [call.result() for call in calls]


def test_what_is_said_of_what_is_held_waits_for_no_writer_and_no_commit(store, solver, read, train):
    from forebay import _async

    begin(solver, "q1")

    async def main():
        async with await read.claim_async(size=2, timeout=60) as claim:
            assert await claim.extend_async(600) > 0
        claim = await read.claim_async(size=2, timeout=60)
        await claim.release_async()
        with pytest.raises(forebay.StateError, match="released"):
            await claim.extend_async(600)
        step, cache = await store.step_async(), []
        async for batch in step.micro_batches(train, size=2, timeout=60):
            async with batch:
                await batch.accumulated_async(cache)
        assert [record["sequence"] for record in cache] == [0] and step.is_complete(train)
        step.abandon()
        async with await store.snapshot_async() as snapshot:
            assert await snapshot.extend_async(120) == snapshot.deadline
        with pytest.raises(forebay.StateError, match="closed"):
            snapshot.table("solver")

    with taken(_async._writers, _async._committers):
        asyncio.run(main())


def test_leaving_a_claim_by_async_with_gives_it_back_and_hides_no_error(solver, read):
    begin(solver, "q1")

    async def main():
        with pytest.raises(ZeroDivisionError):
            async with await read.claim_async(size=2, timeout=60) as claim:
                1 / 0
        assert not claim.is_held
        return (await read.claim_async(size=2, timeout=0)).sample_ids

    assert asyncio.run(main()) == ids("q1")


async def over(step, train) -> None:
    """Until a step was committed or given up."""
    while True:
        try:
            step.is_complete(train)
        except forebay.StateError:
            return
        await asyncio.sleep(0)


@pytest.mark.parametrize("version, made", [(1, 1), (7, 0)], ids=["made", "refused"])
@pytest.mark.parametrize("is_cancelled_again", [False, True], ids=["cancelled", "cancelled again as it leaves"])
def test_a_step_is_left_behind_a_commit_whose_task_was_cancelled(store, solver, train, version, made, is_cancelled_again):
    from forebay import _async

    begin(solver, "q1")
    begun = []

    async def one_step():
        async with await store.step_async() as step:
            begun.append(step)
            async for batch in step.micro_batches(train, size=2, timeout=60):
                await batch.accumulated_async()
            await step.commit_async({"solver": version})

    async def main():
        with taken(_async._committers):  # so the commit stays to be made, and the loop goes on
            task = asyncio.create_task(one_step())
            while not begun or begun[0] not in _async._commits:
                await asyncio.sleep(0)
            task.cancel()
            while begun[0] in _async._commits:
                await asyncio.sleep(0)
            assert not task.done() and begun[0].is_complete(train)
            if is_cancelled_again:
                task.cancel()
                await asyncio.wait([task], timeout=60)
                assert task.cancelled() and begun[0].is_complete(train)
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()
        await asyncio.wait_for(over(begun[0], train), 60)

    asyncio.run(main())
    assert store.policy_version("solver") == made


def test_a_step_that_is_left_without_a_commit_gives_its_rows_back(store, solver, train):
    begin(solver, "q1")

    async def main():
        async with await store.step_async() as step:
            batch = await anext(step.micro_batches(train, size=2, timeout=60))
            await batch.accumulated_async()
        async with await store.step_async() as again:
            assert again.number == step.number
            assert (await anext(again.micro_batches(train, size=2, timeout=60))).sample_ids == ids("q1")

    asyncio.run(main())
    assert store.policy_version("solver") == 0


def test_a_micro_batch_that_was_forgotten_is_named(store, solver, train):
    begin(solver, "q1", "q2")

    async def main():
        with store.step() as step:
            batches = step.micro_batches(train, size=2, timeout=60)
            await anext(batches)
            with pytest.raises(forebay.StateError, match="micro-batch 0 of step 1"):
                await anext(batches)

    asyncio.run(main())


def test_ranks_may_be_tasks_of_one_loop(store, solver, train):
    begin(solver, "q1")
    late = [solver.insert(policy_version=0, sample_ids=ids(q), response=[[1], [2]]) for q in ("q2", "q3")]

    async def rank(step, number):
        seen = []
        batches = step.micro_batches(train, size=2, timeout=60, rank=number, world=2, split="balanced")
        async for batch in batches:
            seen.append((batch.sequence, batch.sample_ids))
            batch.accumulated()
        return seen

    async def main():
        with store.step() as step:
            ranks = [asyncio.create_task(rank(step, number)) for number in range(2)]
            await asleep(2)
            for rows in late:
                await solver.write_async(rows, reward=[1.0, 2.0])
            seen = await asyncio.gather(*ranks)
            await step.commit_async({"solver": 1})
        return seen

    first, second = asyncio.run(main())
    assert [sequence for sequence, _ in first] == [sequence for sequence, _ in second] == [0, 1, 2]
    both = sorted(sample for part in (first, second) for _, samples in part for sample in samples)
    assert both == ids("q1") + ids("q2") + ids("q3")


@pytest.mark.parametrize("options", [{}, {"rank": 0, "world": 2}], ids=["alone", "rank"])
def test_a_step_that_is_given_up_ends_the_waits_in_it(store, solver, train, options):
    solver.insert(policy_version=0, sample_ids=ids("q1"), response=[[1], [2]])

    async def main():
        step = store.step()
        batches = step.micro_batches(train, size=2, **options)
        wait = asyncio.ensure_future(anext(batches))
        await asleep(1)
        step.abandon()
        with pytest.raises(forebay.StateError):
            await wait

    asyncio.run(main())


def test_questions_are_answered_beside_the_loop(store, solver):
    begin(solver, "q1", "q2")

    async def main():
        counts = [store.sql_async("select count(*) as rows from solver") for _ in range(4)]
        answers = [answer.to_pylist() for answer in await asyncio.gather(*counts)]
        endless = "select sum(a.turn + b.turn + c.turn + d.turn) from solver a, solver b, solver c, solver d"
        question = asyncio.ensure_future(store.sql_async(endless))
        await asyncio.sleep(0)
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        return answers

    assert asyncio.run(main()) == [[{"rows": 4}]] * 4


def test_writes_and_syncs_may_be_awaited(store, solver):
    async def main():
        rows = await solver.insert_async(policy_version=0, sample_ids=ids("q1"), response=[[1], [2]])
        await solver.write_async(rows, reward=[1.0, 2.0])
        await store.sync_async()
        with pytest.raises(forebay.InputError, match="reward"):
            await solver.write_async(rows, rewrd=[1.0, 2.0])
        return await store.sql_async("select sum(reward) as total from solver")

    assert asyncio.run(main()).to_pylist() == [{"total": 3.0}]


async def held_back(solver, count: int) -> list[asyncio.Future]:
    """So many inserts of a row under way, of which a rate limiter has let the first go on."""
    inserts = [
        asyncio.ensure_future(solver.insert_async(policy_version=0, sample_ids=[f"q{n}_0_0"], timeout=60))
        for n in range(count)
    ]
    await asyncio.wait(inserts, return_when=asyncio.FIRST_COMPLETED)
    return inserts


def test_writers_that_wait_leave_room_for_who_ends_their_wait(store, solver):
    """Every thread of writers waits for a rate limiter that only claims let go on."""
    from forebay import _async

    slow = store.create_consumer("slow", tables=["solver"], kind="task", rate_limiter=(1.0, 1, 1.0))
    count = 3 * _async.WRITERS

    async def main():
        inserts = await held_back(solver, count)
        await store.sync_async()
        claims = [await slow.claim_async(size=1, timeout=60) for _ in range(count)]
        await asyncio.gather(*inserts)
        return sorted(claim.sample_ids[0] for claim in claims)

    assert asyncio.run(main()) == sorted(f"q{n}_0_0" for n in range(count))


def test_a_write_whose_task_is_cancelled_before_a_thread_has_come_to_it_is_made(store, solver):
    from forebay import _async

    slow = store.create_consumer("slow", tables=["solver"], kind="task", rate_limiter=(1.0, 1, 1.0))
    count = 2 * _async.WRITERS

    async def main():
        inserts = await held_back(solver, count)
        inserts[-1].cancel()
        claims = [await slow.claim_async(size=1, timeout=60) for _ in range(count)]
        await asyncio.wait(inserts)  # claims that find their rows at once leave the loop no turn
        assert [insert.cancelled() for insert in inserts] == [False] * (count - 1) + [True]
        return sorted(claim.sample_ids[0] for claim in claims)

    assert asyncio.run(main()) == sorted(f"q{n}_0_0" for n in range(count))


def test_a_forked_child_awaits_calls_on_threads_of_its_own(server, tmp_path):
    with forebay.connect(server.address) as store:
        solver = store.create_table("solver", {"reward": "float32"})

        async def insert(table, sample: str):
            await table.insert_async(policy_version=0, sample_ids=[sample], reward=[1.0])

        async def main():
            await insert(solver, "q_0_0")
            await store.sync_async()

        async def in_child():
            with forebay.connect(server.address) as mine:
                await asyncio.wait_for(insert(mine.table("solver"), "q_0_1"), 20)
                await asyncio.wait_for(mine.sync_async(), 20)

        asyncio.run(main())  # from now on there are threads that the child does not have
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(in_child())
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert solver.counts()["written"] == 2
