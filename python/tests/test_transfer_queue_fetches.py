"""Fetches of TransferQueue's calls on an event loop: they take no thread of others, and one that is cancelled has taken nothing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tensordict")

from forebay.transfer_queue._client import TransferQueueClient  # noqa: E402
from forebay.transfer_queue._fetch import fetched  # noqa: E402
from forebay.transfer_queue._partitions import Partitions  # noqa: E402
from transfer_queue_script import batch  # noqa: E402


@pytest.fixture
def client(store):
    return TransferQueueClient(Partitions(store, 20.0), 20.0)


def put(client, *keys):
    client._kv_put(list(keys), "train", batch(x=torch.ones(len(keys), 1)), None, None)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "forebay-fetch"]


def join_threads():
    """Until no fetch is left, nor anything that gives back."""
    while left := threads():
        left[0].join(30)
        assert not left[0].is_alive()


async def waiting(client, count):
    while len(client._partitions.lock._changed._waiters) < count:
        await asyncio.sleep(0)


def taken(client):
    return client.get_consumption_status("t", "train")[1].tolist()


def test_fetches_that_wait_leave_the_threads_of_their_loop_to_who_puts(client):
    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        fetches = [asyncio.create_task(client.async_get_meta(["x"], 1, "train", task_name="t")) for _ in range(8)]
        for number in range(8):
            await asyncio.wait_for(client.async_put(batch(x=torch.ones(1, 1)), partition_id="train"), 10)
        return [(await fetch).global_indexes for fetch in fetches]

    assert sorted(asyncio.run(main())) == [[number] for number in range(8)]


def test_a_fetch_that_is_cancelled_while_it_waits_takes_nothing_and_ends(client):
    async def main():
        fetch = asyncio.create_task(client.async_get_meta(["x"], 2, "train", task_name="t"))
        await waiting(client, 1)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        put(client, "a", "b")

    asyncio.run(main())
    join_threads()
    assert taken(client) == [0, 0]
    assert client.get_meta(["x"], 2, "train", task_name="t").size == 2


def test_wait_for_of_asyncio_gives_a_fetch_up(client):
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.async_get_meta(["x"], 1, "train", task_name="t"), 0.01)
        put(client, "a")
        return await asyncio.wait_for(client.async_get_meta(["x"], 1, "train", task_name="t"), 20)

    assert asyncio.run(main()).size == 1


def test_what_was_taken_for_a_task_that_was_cancelled_meanwhile_goes_back(store, client):
    put(client, "a", "b", "c")
    assert client.get_meta(["x"], 1, "train", task_name="t").global_indexes == [0]
    real = client._get_meta

    async def main():
        def too_late(*asked):
            meta = real(*asked)
            loop.call_soon_threadsafe(fetch.cancel)
            while not asked[-1]():
                pass
            return meta

        loop, client._get_meta = asyncio.get_running_loop(), too_late
        fetch = asyncio.create_task(client.async_get_meta(["x"], 2, "train", task_name="t"))
        with pytest.raises(asyncio.CancelledError):
            await fetch

    asyncio.run(main())
    join_threads()
    assert taken(client) == [1, 0, 0] == taken(TransferQueueClient(Partitions(store, 20.0), 20.0))
    client._get_meta = real
    assert client.get_meta(["x"], 2, "train", task_name="t").global_indexes == [1, 2]
    put(client, "d")  # what is over is deleted with it: the row of a, b and c once, the give-back and what it took the place of
    left = store.sql("select numbers from transfer_queue_consumed order by put").to_pylist()
    assert [row["numbers"] for row in left] == [[0], [1, 2]]


def test_what_came_to_a_task_that_was_cancelled_before_it_went_on_goes_back():
    gave_back = []

    async def main():
        fetch = asyncio.create_task(fetched(lambda is_over: "samples", gave_back.append))
        await asyncio.sleep(0)
        join_threads()  # the loop has not looked yet
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch

    asyncio.run(main())
    join_threads()
    assert gave_back == ["samples"]


def test_a_fetch_that_fails_raises_and_gives_nothing_back():
    def fails(is_over):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fetched(fails, lambda given: pytest.fail(f"{given} came back")))
