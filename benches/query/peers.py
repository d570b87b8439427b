"""Engines that are Python packages, asked by lines of JSON on standard input; see src/python.rs."""
import glob
import json
import os
import sys
import time


def numbers(rows):
    return sum(float(value) for row in rows for value in row if isinstance(value, (int, float)) and not isinstance(value, bool))


class DuckDB:
    def __init__(self, directory, own_tables):
        import duckdb

        self.directory, self.own_tables = directory, own_tables
        self.connection = duckdb.connect(os.path.join(directory, "peer.duckdb") if own_tables else ":memory:")
        self.connection.execute(f"SET threads = {os.cpu_count()}")
        for table in ("solver", "checker"):
            kind = "TABLE" if own_tables else "VIEW"
            source = f"read_parquet('{directory}/{table}-*.parquet')"
            self.connection.execute(f"CREATE {kind} {table} AS SELECT * FROM {source}")

    def add(self, file):
        if self.own_tables:
            self.connection.execute(f"INSERT INTO solver SELECT * FROM read_parquet('{file}')")

    def ask(self, request):
        start = time.perf_counter()
        table = self.connection.sql(request["duckdb"]).to_arrow_table()
        return time.perf_counter() - start, table


class Polars:
    def __init__(self, directory):
        import polars

        self.polars = polars
        read = lambda table: polars.read_parquet(f"{directory}/{table}-*.parquet")
        self.solver, self.checker = read("solver"), read("checker")

    def add(self, file):
        self.solver = self.polars.concat([self.solver, self.polars.read_parquet(file)])

    def ask(self, request):
        c, when = self.polars.col, time.perf_counter
        solver = self.solver.lazy()
        name = request["name"]
        if name.startswith("reward mean"):
            asked = solver.group_by("policy_version", "agent").agg(
                c("reward").cast(self.polars.Float64).mean().alias("mean"),
                c("reward").cast(self.polars.Float64).std(ddof=0).alias("deviation"),
                self.polars.len().alias("n"),
            )
        elif name.startswith("the 20"):
            asked = (
                solver.filter(c("reward").is_not_null())
                .sort("reward", "sample_id", "policy_version")
                .head(20)
                .select("reward", c("prompt").str.len_chars().alias("characters"), "prompt")
            )
        elif name.startswith("counts"):
            asked = solver.group_by("reward_status", "response_status").agg(self.polars.len().alias("n"))
        elif name.startswith("groups"):
            asked = (
                solver.group_by("policy_version", "group_key")
                .agg(self.polars.len().alias("n"), c("reward").min().alias("low"), c("reward").max().alias("high"))
                .filter(c("low") == c("high"))
                .select("policy_version", "group_key", "n")
            )
        elif name.startswith("length"):
            lengths = c("response").list.len().cast(self.polars.Float64)
            asked = solver.group_by("policy_version").agg(
                lengths.quantile(0.5, "linear").alias("p50"), lengths.quantile(0.95, "linear").alias("p95")
            )
        else:
            asked = solver.join(self.checker.lazy(), on="input_id").select(
                self.polars.len().alias("n"),
                (c("reward") - c("reward_right")).cast(self.polars.Float64).mean().alias("gain"),
            )
        start = when()
        frame = asked.collect()
        return when() - start, frame.to_arrow()


def main():
    engines, said = {}, []
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "load" in request:
                directory = request["load"]
                wanted = {
                    "DuckDB, own tables": lambda: DuckDB(directory, True),
                    "DuckDB on Parquet": lambda: DuckDB(directory, False),
                    "polars in memory": lambda: Polars(directory),
                }
                for name, make in wanted.items():
                    start = time.perf_counter()
                    try:
                        engines[name] = make()
                        said.append(f"{name}: imported and loaded in {time.perf_counter() - start:.1f} s")
                    except ImportError as error:
                        said.append(f"{name}: not there ({error})")
                reply = {"engines": list(engines), "said": said}
            elif "add" in request:
                engines[request["engine"]].add(request["add"])
                reply = {}
            else:
                seconds, table = engines[request["engine"]].ask(request)
                columns = [column.to_pylist() for column in table.columns]
                reply = {"seconds": seconds, "rows": table.num_rows, "sum": numbers(columns)}
        except Exception as error:
            reply = {"error": f"{request}: {type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
