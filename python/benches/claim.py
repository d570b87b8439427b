"""How long a claim of 16 samples takes from Python, embedded, with numpy views of two ragged columns.

    python python/benches/claim.py [DIRECTORY]

Needs a quiet machine; a wheel of the profile dev will do, since the store and the binding are optimised in it, too. Beside it:
the same without views, the same from an event loop, and an insert of 64 samples of 10 KB. The first has a goal, and the exit
status says whether it was met. Two of them have a limit that is measured in the same run: making as many views of memory that is
there, and copying as many bytes into memory that is there.
"""

import asyncio
import sys
import tempfile
import time

import numpy as np

import forebay

CLAIMS, ROWS, TOKENS = 2000, 16, 1280
GOAL_MICROSECONDS = 60.0


def percentile(times: list[float], share: float) -> str:
    return f"{sorted(times)[int(len(times) * share)] * 1e6:7.1f}"


def report(name: str, times: list[float]) -> None:
    print(f"{name:42} p50 {percentile(times, 0.5)} us   p99 {percentile(times, 0.99)} us   n {len(times)}")


def claim_all(store: forebay.Store) -> dict[str, list[float]]:
    """The times of claims, by consumer."""
    claims: dict[str, list[float]] = {"views": [], "bare": []}
    for name, times in claims.items():
        consumer = store.consumer(name)
        for _ in range(CLAIMS):
            start = time.perf_counter()
            claim = consumer.claim(ROWS, exact=True)
            rows = (claim["response"], claim["logprobs"]) if name == "views" else ()
            times.append(time.perf_counter() - start)
            assert all(len(column) == ROWS for column in rows)
            claim.finish()
    return claims


async def claim_from_a_loop(store: forebay.Store) -> list[float]:
    consumer, times = store.consumer("loop"), []
    for _ in range(CLAIMS):
        start = time.perf_counter()
        claim = await consumer.claim_async(ROWS, exact=True)
        times.append(time.perf_counter() - start)
        claim.finish()
    return times


def bare_views() -> list[float]:
    """The times in which numpy makes as many arrays as a claim has, over memory that is there."""
    memory, times = [memoryview(bytes(TOKENS * 4)) for _ in range(2 * ROWS)], []
    for _ in range(CLAIMS):
        start = time.perf_counter()
        views = [np.frombuffer(one, np.int32) for one in memory]
        times.append(time.perf_counter() - start)
        assert len(views) == 2 * ROWS
    return times


def bare_copies(columns: tuple[np.ndarray, ...]) -> list[float]:
    """The times in which the columns of an insert are copied into memory that is there."""
    into, times = [np.ones_like(column) for column in columns], []
    for _ in range(CLAIMS * ROWS // 64):
        start = time.perf_counter()
        for to, column in zip(into, columns):
            np.copyto(to, column)
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        with forebay.open(f"{directory}/store") as store:
            table = store.create_table("solver", {"response": "list<int32>", "logprobs": "list<float32>"})
            for name in ("views", "bare", "loop"):
                store.create_consumer(name, tables=["solver"], kind="task", ready=["response", "logprobs"])
            tokens, logprobs = np.full((64, TOKENS), 7, np.int32), np.full((64, TOKENS), 0.5, np.float32)
            inserts = []
            for batch in range(CLAIMS * ROWS // 64):
                samples = [f"q{batch}_0_{row}" for row in range(64)]
                start = time.perf_counter()
                table.insert(policy_version=0, sample_ids=samples, response=tokens, logprobs=logprobs)
                inserts.append(time.perf_counter() - start)
            claims = claim_all(store)
            loop = asyncio.run(claim_from_a_loop(store))
    report("claim of 16, views of two columns", claims["views"])
    report("  limit: 32 views by numpy", bare_views())
    report("claim of 16", claims["bare"])
    report("claim of 16, awaited", loop)
    report("insert of 64 x 10 KB, two arrays", inserts)
    report("  limit: numpy copies the two arrays", bare_copies((tokens, logprobs)))
    found = float(percentile(claims["views"], 0.5))
    met = found <= GOAL_MICROSECONDS
    print(f"goal: claim of 16 with views, p50 at most {GOAL_MICROSECONDS} us: {found} us, {'met' if met else 'MISSED'}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
