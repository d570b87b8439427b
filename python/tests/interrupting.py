"""Programs that wait until they are interrupted."""

import textwrap

import pytest

WAITS = {
    "claim": "store.consumer('read').claim(size=1)",
    "subscription": "next(store.consumer('read').subscribe(size=1))",
    "micro-batch": "next(step.micro_batches(train, size=1))",
    "rank": "next(step.micro_batches(train, size=1, rank=0, world=2))",
    "sql": "store.sql('select sum(a.turn + b.turn + c.turn + d.turn) from solver a, solver b, solver c, solver d')",
    "silent sql": "store.sql('select 1 from solver a, solver b, solver c, solver d, solver e where a.turn + e.turn > b.turn + 3')",
}

every_wait = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())


def waiting(store: str, wait: str) -> str:
    """A program that opens a store so, says `waiting`, waits, and says `interrupted` when it was."""
    return textwrap.dedent(
        f"""
        import forebay, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may have it ignored
        store = {store}
        solver = store.create_table("solver", {{"response": "list<int32>"}})
        store.create_consumer("read", tables=["solver"], kind="task", ready=["response"])
        train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["response"])
        step = store.step(rows={{train: 1}})
        solver.insert(policy_version=0, sample_ids=[f"q_0_{{n}}" for n in range(300)])
        try:
            print("waiting", flush=True)
            {wait}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
