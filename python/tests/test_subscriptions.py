"""Subscriptions: claims come by themselves, no more of them than are asked for, and what nobody takes goes back."""

import asyncio
import threading

import pytest

import forebay
from conftest import ids


@pytest.fixture
def reward(store, solver):
    return store.create_consumer("reward", tables=["solver"], kind="task", ready=["response"])


def put(solver, *input_ids: str):
    return solver.insert(
        policy_version=0, sample_ids=[f"{i}_0_0" for i in input_ids], response=[[1, 2]] * len(input_ids)
    )


def finish(claim) -> list[str]:
    claim.finish(reward=[float(len(row)) for row in claim["response"]])
    return claim.sample_ids


def test_claims_come_as_rows_become_ready_and_no_more_than_are_asked_for(solver, reward):
    with reward.subscribe(size=1, outstanding=2, columns=["response"], timeout=0.05) as claims:
        put(solver, "q1", "q2", "q3")
        first, second = (next_within(claims) for _ in range(2))
        with pytest.raises(forebay.WaitTimeout, match="reward"):
            next(claims)
        seen = finish(first) + finish(second) + finish(next_within(claims))
    assert sorted(seen) == ["q1_0_0", "q2_0_0", "q3_0_0"]
    assert list(claims) == [], "it is closed"


def next_within(claims):
    """The next claim, however often its brief wait is over before it has come."""
    while True:
        try:
            return next(claims)
        except forebay.WaitTimeout:
            pass


def test_what_nobody_took_goes_back_when_it_is_closed_and_what_is_held_stays(solver, reward):
    put(solver, "q1", "q2", "q3")
    with reward.subscribe(size=1, outstanding=3) as claims:
        held = next(claims)
    others = [reward.claim(size=1, timeout=30) for _ in range(2)]
    assert len({batch.sample_ids[0] for batch in [held, *others]}) == 3
    finish(held)


def test_a_loop_takes_claims_and_is_woken_by_the_end(solver, reward):
    async def main():
        seen = []
        claims = reward.subscribe(size=1, outstanding=4)

        async def work():
            async for claim in claims:
                seen.extend(claim.sample_ids)
                await claim.finish_async(reward=[1.0])
                if len(seen) == 4:
                    all_seen.set()

        all_seen = asyncio.Event()
        worker = asyncio.create_task(work())
        await solver.insert_async(policy_version=0, sample_ids=ids("q1", 4), response=[[1]] * 4)
        await asyncio.wait_for(all_seen.wait(), 30)
        claims.close()
        await asyncio.wait_for(worker, 30)
        return seen

    assert sorted(asyncio.run(main())) == ids("q1", 4)


def test_a_wait_of_a_loop_that_is_cancelled_loses_no_claim(solver, reward):
    async def main():
        with reward.subscribe(size=1) as claims:
            for number in range(20):
                waiting = asyncio.ensure_future(anext(claims))
                await asyncio.sleep(0)
                waiting.cancel()
                put(solver, f"q{number}")
                claim = await asyncio.wait_for(anext(claims), 30)
                assert finish(claim) == [f"q{number}_0_0"]

    asyncio.run(main())


def test_closing_ends_the_wait_of_another_thread(reward):
    claims, outcome = reward.subscribe(size=1), []
    waiter = threading.Thread(target=lambda: outcome.append(next(claims, None)))
    waiter.start()
    claims.close()
    waiter.join(30)
    assert outcome == [None]


def test_closing_the_store_ends_a_subscription(store, reward):
    claims = reward.subscribe(size=1)
    store.close()
    with pytest.raises(forebay.ClosedError):
        next(claims)


def test_what_no_subscription_can_be_is_refused_by_its_name(store, solver, reward):
    train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["reward"])
    with pytest.raises(forebay.StateError, match="begin a step"):
        train.subscribe(size=1)
    for wrong, match in [
        ({"size": 1, "outstanding": 0}, "outstanding"),
        ({"size": 1, "outstanding": "two"}, "outstanding is a whole number of claims"),
        ({"size": 0}, "at least one row"),
        ({"size": 1, "columns": 3}, "columns is a list"),
        ({}, "give size="),
    ]:
        with pytest.raises(forebay.InputError, match=match):
            reward.subscribe(**wrong)
