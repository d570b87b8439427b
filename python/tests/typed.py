"""A program as its author's type checker reads it. Nothing here is run."""

import forebay
import forebay.reports


def rollouts(store: forebay.Store) -> forebay.Rows:
    columns: dict[str, str] = {"prompt": "list<int32>", "response": "list<int32>", "reward": "float32"}
    solver = store.create_table("solver", columns)
    rows = solver.insert(policy_version=3, sample_ids=["q1_0_0", "q1_0_1"], prompt=[[1, 2], [3]])
    solver.write(rows, response=[[4], [5]])
    solver.write(rows[:1], reward=[1.0])
    with store.changes(durability="synced") as changes:
        more = changes.insert(solver, policy_version=3, sample_ids=["q2_0_?"], rollouts=8)
        changes.exclude(rows, "too long")
    return more


def train(store: forebay.Store) -> int:
    consumer = store.create_consumer(
        "train", tables=["solver"], kind="trainer", ready=["response", "reward"], group=("input_id", 8)
    )
    tokens = 0
    with store.step() as step:
        for batch in step.micro_batches(consumer, size=16, timeout=30.0):
            tokens += sum(map(len, batch["response"]))
            batch.accumulated()
        step.commit({"solver": 4})
    return tokens


def look(store: forebay.Store) -> list[str]:
    batches: list[forebay.reports.TrainedBatch] = store.replay(1)
    shown: forebay.reports.RowShown | None = store.table("solver").get(policy_version=3, sample_id="q1_0_0")
    names = [batch["gradient"]["name"] for batch in batches]
    return names + ([shown["sample_id"]] if shown else [])


async def judge(store: forebay.Store) -> None:
    async for claim in store.consumer("judge").subscribe(size=16, outstanding=2):
        claim.finish(reward=[1.0] * len(claim))
    async with await store.snapshot_async(["solver"]) as snapshot:
        until: float = await snapshot.extend_async(60.0)
        async for batch in snapshot.table("solver").batches(["reward"]):
            print(batch.num_rows, until)


async def train_beside_others(store: forebay.Store, consumer: forebay.Consumer) -> int:
    async with await store.step_async(rows={consumer: 16}) as step:
        async for batch in step.micro_batches(consumer, size=16):
            async with batch:
                until: float = await batch.extend_async(60.0)
                await (batch.accumulated_async() if until else batch.release_async())
        return await step.commit_async({"solver": 4})


def caught(path: str) -> str:
    try:
        with forebay.open(path, durability="logged", check_values=True) as store:
            return str(store.path)
    except forebay.RetryError as error:
        return error.cause
