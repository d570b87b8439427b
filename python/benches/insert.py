"""How long an insert of 64 samples of 10 KB takes from Python, embedded, by the form in which its columns are given.

    python python/benches/insert.py [DIRECTORY]

Needs a quiet machine; a wheel of the profile dev will do (see claim.py). Four columns: 512 prompt tokens, 1,024 response tokens with
their log-probabilities, and a reward. The limit is measured in the same run: numpy copies as many bytes into memory that is there.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count

import numpy as np
import pyarrow as pa

import forebay

INSERTS, ROWS, PROMPT, RESPONSE = 300, 64, 512, 1024
TYPES = {"prompt": "list<int32>", "response": "list<int32>", "logprobs": "list<float32>", "reward": "float32"}


def columns() -> dict[str, list[np.ndarray]]:
    return {
        "prompt": [np.arange(PROMPT, dtype=np.int32) for _ in range(ROWS)],
        "response": [np.arange(RESPONSE, dtype=np.int32) for _ in range(ROWS)],
        "logprobs": [np.ones(RESPONSE, np.float32) for _ in range(ROWS)],
    }


def report(name: str, times: int, call: Callable[[], object]) -> None:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    taken.sort()
    middle, late = taken[times // 2], taken[times * 99 // 100]
    print(f"{name:36} p50 {middle * 1e6:7.1f} us   p99 {late * 1e6:7.1f} us   {ROWS / middle:9,.0f} samples/s")


def main(directory: str) -> None:
    given, reward, numbers = columns(), np.ones(ROWS, np.float32), count()
    arrow = {name: pa.array(rows) for name, rows in given.items()}
    lists = {name: [row.tolist() for row in rows] for name, rows in given.items()}
    with forebay.open(directory, durability="logged") as store:
        table = store.create_table("solver", TYPES)

        def ids() -> list[str]:
            number = next(numbers)
            return [f"q{number}_0_{at}" for at in range(ROWS)]

        def staged() -> None:
            rows = table.insert(policy_version=0, sample_ids=ids(), prompt=given["prompt"])
            table.write(rows, response=given["response"], logprobs=given["logprobs"])
            table.write(rows, reward=reward)

        for name, values in [("lists of numpy arrays", given), ("arrays of Arrow", arrow)]:
            report(name, INSERTS, lambda values=values: table.insert(policy_version=0, sample_ids=ids(), reward=reward, **values))
        report("lists of numpy arrays, three stages", INSERTS, staged)
        report("lists of lists", INSERTS // 10, lambda: table.insert(policy_version=0, sample_ids=ids(), reward=reward, **lists))
        report("no columns", INSERTS, lambda: table.insert(policy_version=0, sample_ids=ids()))
    copies = [(np.empty_like(row), row) for rows in given.values() for row in rows]
    report("  limit: numpy copies the arrays", INSERTS, lambda: [np.copyto(into, of) for into, of in copies])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as made:
            main(made)
