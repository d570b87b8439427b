"""Answers questions by DuckDB: `answers.py DIRECTORY`, with DIRECTORY/*.parquet as tables.

Reads one JSON list of statements from standard input, writes one JSON list of answers (lists of rows) to standard output.
"""
import datetime
import json
import math
import pathlib
import sys

import duckdb


def plain(value):
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else str(number)  # JSON has no word for it


directory = pathlib.Path(sys.argv[1])
connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
for file in sorted(directory.glob("*.parquet")):
    connection.execute(f"CREATE TABLE {file.stem} AS SELECT * FROM read_parquet('{file}')")
answers = []
for statement in json.load(sys.stdin):
    try:
        answers.append([plain(list(row)) for row in connection.execute(statement).fetchall()])
    except Exception as error:
        sys.exit(f"{statement}\n{error}")
json.dump(answers, sys.stdout)
