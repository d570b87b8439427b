"""What people do with ADBC, against a server that is given as HOST:PORT. Every line asserts."""

import sys
import threading
import warnings

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow
from adbc_driver_flightsql import DatabaseOptions

warnings.simplefilter("ignore")
URI = f"grpc://{sys.argv[1]}"
TOKEN = {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer sesame"}


def connect(**options):
    return flightsql.connect(URI, db_kwargs=options or TOKEN)


def fails(expected, words, work):
    try:
        work()
    except expected as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(f"{words!r} was expected")


with connect() as connection, connection.cursor() as cursor:
    cursor.execute("SELECT sample_id, reward, prompt, [1, 2] AS tokens FROM solver ORDER BY sample_id")
    table = cursor.fetch_arrow_table()
    assert table.column("sample_id").to_pylist() == ["q1_0_0", "q2_0_0", "q3_0_0"]
    assert table.column("reward").to_pylist() == [1.0, 0.5, None]
    assert table.column("tokens").to_pylist()[0] == [1, 2]
    assert table.schema.field("prompt").type == pyarrow.utf8()

    cursor.execute("SELECT sample_id FROM solver WHERE reward > ? AND policy_version = ?", parameters=(0.7, 0))
    assert cursor.fetchall() == [("q1_0_0",)]
    cursor.execute("SELECT ? AS it", parameters=("text",))
    assert cursor.fetchall() == [("text",)]
    cursor.execute("SELECT value, repeat('x', 10000) AS text FROM generate_series(1, 4000)")
    table = cursor.fetch_arrow_table()
    assert table.num_rows == 4000 and table.nbytes > 40_000_000

    objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    assert [catalog["catalog_name"] for catalog in objects] == ["forebay"]
    schemas = {schema["db_schema_name"]: schema["db_schema_tables"] for schema in objects[0]["catalog_db_schemas"]}
    assert set(schemas) == {"public", "system", "information_schema"}
    (solver,) = schemas["public"]
    columns = [column["column_name"] for column in solver["table_columns"]]
    assert solver["table_name"] == "solver" and "reward_status" in columns
    assert connection.adbc_get_table_schema("solver").field("reward").type == pyarrow.float32()
    assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE"]
    assert connection.adbc_get_info()["vendor_name"] == "Forebay"
    assert cursor.adbc_execute_schema("SELECT sample_id FROM solver").names == ["sample_id"]

    wrong = adbc_driver_manager.ProgrammingError
    fails(wrong, "did you mean reward?", lambda: cursor.execute("SELECT rewrd FROM solver"))
    fails(wrong, "Table::delete", lambda: cursor.execute("DELETE FROM solver"))
    fails(wrong, "Table::insert", lambda: cursor.adbc_ingest("solver", pyarrow.table({"a": [1]}), mode="append"))

with connect() as connection, connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3")
    threading.Timer(0.2, cursor.adbc_cancel).start()
    fails(adbc_driver_manager.Error, "ancel", cursor.fetchall)
    cursor.execute("SELECT 1")
    assert cursor.fetchone() == (1,)

with connect(username="anybody", password="sesame") as connection, connection.cursor() as cursor:
    cursor.execute("SELECT 1")
    assert cursor.fetchone() == (1,)
refused = adbc_driver_manager.Error
fails(refused, "password", lambda: connect(username="anybody", password="wrong"))


def ask_with_wrong_token():
    with connect(**{DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer wrong"}) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")


fails(refused, "token", ask_with_wrong_token)
