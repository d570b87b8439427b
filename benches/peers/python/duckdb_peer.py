"""DuckDB: SQL over columns, in this process; from Python, for its crate compiles all of it.

One table a stage, for an update of a row writes all of it anew. A batch is one `INSERT` from an Arrow table that was made
before, which is the bulk path that Python has. What was taken is a number that a taker moves in a transaction: that holds
for one writer that inserts in order, and is far cheaper than a mark a row.
"""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

import harness
from harness import BATCH, MICRO_BATCH

TABLES = """
    CREATE TABLE prompt (id BIGINT, prompt INTEGER[]);
    CREATE TABLE response (id BIGINT, response INTEGER[], logprobs FLOAT[]);
    CREATE TABLE reward (id BIGINT, reward FLOAT);
    CREATE TABLE taken (up_to BIGINT);
    INSERT INTO taken VALUES (0);
"""
READ = """
    SELECT reward.id, prompt, response, logprobs, reward
    FROM reward JOIN response USING (id) JOIN prompt USING (id)
    WHERE reward.id >= $1 AND reward.id < $2 AND response.id >= $1 AND response.id < $2
      AND prompt.id >= $1 AND prompt.id < $2
"""


class DuckDB:
    NAME = "DuckDB"
    LEVEL_NOTES = {
        "memory": "no file; no claims, readiness by arrival order of one writer, the program wakes its taker",
        "synced": "every commit is synced, takes too; no claims, readiness by arrival order of one writer, the program wakes its taker",
    }

    def __init__(self, pool, directory, level):
        self.pool = pool
        path = ":memory:" if level == "memory" else str(Path(directory) / "samples.duckdb")
        self.connection = duckdb.connect(path)
        self.connection.execute("SET checkpoint_threshold = '1GB'")  # else it rewrites blocks every 16 MB of log
        self.connection.execute(TABLES)

    @staticmethod
    def version():
        return duckdb.__version__

    def writer(self, rows):
        stages = [self.stages(samples) for samples in self.pool.batches()]
        cursor = self.connection.cursor()

        def write(first):
            ids = pa.array(np.arange(first, first + BATCH))
            for table, columns in stages[first // BATCH % len(stages)]:
                batch = pa.table({"id": ids, **columns})
                cursor.register("batch", batch)
                cursor.execute(f"INSERT INTO {table} SELECT * FROM batch")

        return write

    def stages(self, samples):
        pool = self.pool
        lists = lambda column: pa.ListArray.from_arrays(
            pa.array(np.cumsum([0] + [len(column[sample]) for sample in samples]), pa.int32()),
            pa.array(np.concatenate([column[sample] for sample in samples])),
        )
        return [
            ("prompt", {"prompt": lists(pool.prompts)}),
            ("response", {"response": lists(pool.responses), "logprobs": lists(pool.logprobs)}),
            ("reward", {"reward": pa.array(pool.rewards[samples.start : samples.stop])}),
        ]

    def taker(self):
        cursor = self.connection.cursor()

        def take():
            cursor.execute("BEGIN")
            (first,) = cursor.execute("SELECT up_to FROM taken").fetchone()
            end = first + MICRO_BATCH
            (ready,) = cursor.execute(
                "SELECT count(*) FROM reward WHERE id >= $1 AND id < $2", [first, end]
            ).fetchone()
            if ready < MICRO_BATCH:
                cursor.execute("ROLLBACK")
                return None
            cursor.execute("UPDATE taken SET up_to = $1", [end])
            cursor.execute("COMMIT")
            table = cursor.sql(READ, params=[first, end]).to_arrow_table().combine_chunks()
            lists = [values(table.column(at).chunk(0).flatten()) for at in (1, 2, 3)]
            return values(table.column(0).chunk(0)), lists, values(table.column(4).chunk(0))

        return take

    def address(self):
        return None  # a file belongs to one process: the taker is a thread

    def close(self):
        self.connection.close()


def values(array):
    return array.to_numpy(zero_copy_only=True)


if __name__ == "__main__":
    harness.main(DuckDB)
