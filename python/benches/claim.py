"""How long a claim of 16 samples takes from Python, embedded, with numpy views of two ragged columns.

    python python/benches/claim.py [DIRECTORY]

Needs the optimised wheel (`pip install ./python`) and a quiet machine. The limit is a p50 of 60 us. Beside it: the same without
views, and an insert of 64 samples of 10 KB.
"""

import sys
import tempfile
import time

import numpy as np

import forebay

CLAIMS, ROWS, TOKENS = 2000, 16, 1280


def percentile(times: list[float], share: float) -> str:
    return f"{sorted(times)[int(len(times) * share)] * 1e6:7.1f}"


def report(name: str, times: list[float]) -> None:
    print(f"{name:42} p50 {percentile(times, 0.5)} us   p99 {percentile(times, 0.99)} us   n {len(times)}")


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        with forebay.open(f"{directory}/store") as store:
            table = store.create_table("solver", {"response": "list<int32>", "logprobs": "list<float32>"})
            for name in ("views", "bare"):
                store.create_consumer(name, tables=["solver"], kind="task", ready=["response", "logprobs"])
            tokens, logprobs = np.zeros((64, TOKENS), np.int32), np.zeros((64, TOKENS), np.float32)
            inserts = []
            for batch in range(CLAIMS * ROWS // 64):
                samples = [f"q{batch}_0_{row}" for row in range(64)]
                start = time.perf_counter()
                table.insert(policy_version=0, sample_ids=samples, response=tokens, logprobs=logprobs)
                inserts.append(time.perf_counter() - start)
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
    report("claim of 16, views of two columns", claims["views"])
    report("claim of 16", claims["bare"])
    report("insert of 64 x 10 KB, two arrays", inserts)


if __name__ == "__main__":
    main()
