"""Opening, closing, asking, and what is left when a process dies."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import types

import pyarrow as pa
import pytest

import forebay
from conftest import SOLVER, begin, ids
from serving import command


def test_everything_is_found_again_by_its_name(path):
    with forebay.open(path, durability="synced") as store:
        solver = store.create_table("solver", SOLVER)
        store.create_consumer("read", tables=["solver"], kind="task", ready=["response"])
        solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[1, 2]])
        assert store.tables() == ["solver"] and store.consumers() == ["read"] and not store.is_closed
    assert store.is_closed and str(store.path) == str(path)
    with forebay.open(str(path), create=False) as store:
        assert store.table("solver").columns == SOLVER
        with store.consumer("read").claim(size=1, timeout=0) as claim:
            assert claim["response"][0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"durabilty": "logged"}, forebay.InputError, "durabilty"),
        ({"durability": "eternal"}, forebay.InputError, "eternal"),
        ({"lease": -1}, forebay.InputError, "-1"),
        ({"lease": "long"}, forebay.InputError, "long"),
        ({"extent_bytes": (1, 2)}, forebay.InputError, "4096"),
        ({"disk_bytes_max": 1.5}, forebay.InputError, "1.5"),
        ({"create": False}, forebay.StateError, "no Forebay store"),
        ({"read_only": True}, forebay.StateError, "no Forebay store"),
    ],
)
def test_a_wrong_option_is_named(path, options, error, named):
    with pytest.raises(error, match=named):
        forebay.open(path, **options)


def test_every_option_is_taken(path):
    options = {
        "durability": "memory",
        "read_only": False,
        "create": True,
        "lease": float("inf"),
        "sync_interval": 0.5,
        "extent_bytes": (1 << 16, 1 << 20),
        "free_extent_bytes_max": 1 << 20,
        "disk_bytes_max": 1 << 30,
        "memory_bytes_max": 1 << 30,
        "capacity_wait": 1,
        "snapshot_age_max": 60,
        "check_values": True,
        "segment_bytes_max": 1 << 20,
        "checkpoint_records": 1000,
        "object_versions_kept": 3,
        "versions_kept": 4,
        "consumed_kept": 3600.0,
    }
    with forebay.open(path, **options) as store:
        shown = {row["name"]: row["value"] for row in store.sql("select * from system.settings").to_pylist()}
    assert shown["durability"] == "memory" and shown["extent_bytes_max"] == str(1 << 20)


def test_errors_are_of_the_kinds_that_python_knows(store, solver):
    assert issubclass(forebay.InputError, ValueError) and issubclass(forebay.WaitTimeout, TimeoutError)
    kinds = {error.kind for error in forebay.Error.__subclasses__()}
    assert kinds == {"input", "state", "capacity", "retry", "corrupt", "closed"}
    for call, error, named in [
        (lambda: store.table("slover"), forebay.InputError, 'did you mean "solver"'),
        (lambda: store.consumer("x"), forebay.InputError, '"x"'),
        (lambda: store.create_table("solver", SOLVER), forebay.InputError, "exists"),
        (lambda: store.create_table("2", {}), forebay.InputError, '"2"'),
        (lambda: store.create_table("t", {"x": "int23"}), forebay.InputError, 'did you mean "int32"'),
        (lambda: store.create_table("t", {"x": int}), forebay.InputError, "<class 'int'>"),
        (lambda: store.create_table("t", {"x": pa.timestamp("us")}), forebay.InputError, "timestamp"),
        (lambda: store.create_table("t", {"x": "utf8"}, roles={"x": "rewad"}), forebay.InputError, "rewad"),
        (lambda: store.create_table("t", {"x": "utf8"}, shared=["y"]), forebay.InputError, '"y"'),
        (lambda: store.policy_version("x"), forebay.InputError, '"x"'),
        (lambda: solver.insert(policy_version=0, sample_ids="q_0_0"), forebay.InputError, "one text"),
        (lambda: solver.insert(policy_version=0, sample_ids=["q"]), forebay.InputError, '"q"'),
        (lambda: solver.insert(policy_version=0, sample_ids=["q_0_0"], x=[1]), forebay.InputError, '"x"'),
        (lambda: store.sql("select rewrd from solver"), forebay.InputError, "rewrd"),
        (lambda: store.sql("delete from solver"), forebay.InputError, "(?i)delete"),
        (lambda: store.step(rows={"x": 1}), forebay.InputError, '"x"'),
        (lambda: store.step(groups={1: ["q"]}), forebay.InputError, "by name"),
        (lambda: store.backup(""), forebay.InputError, "no name"),
    ]:
        with pytest.raises(error, match=named):
            call()


def test_sql_answers_as_arrow_takes_it(store, solver):
    begin(solver, "q1", "q2")
    answer = store.sql("select input_id, sum(reward) as reward, count(*) as rows from solver group by 1 order by 1")
    assert answer.columns == ["input_id", "reward", "rows"] and len(answer) == 2
    assert answer.to_pylist() == [{"input_id": i, "reward": 1.0, "rows": 2} for i in ("q1", "q2")]
    assert pa.table(answer) == answer.arrow()
    nothing = store.sql("select reward, response from solver where reward > 5")
    assert len(nothing) == 0 and nothing.arrow().schema.names == ["reward", "response"]


def test_sql_answers_become_data_frames(store, solver):
    pytest.importorskip("pandas")
    begin(solver, "q1")
    frame = store.sql("select sample_id, reward, response from solver order by 1").to_pandas()
    assert frame["sample_id"].tolist() == ids("q1") and frame["reward"].sum() == 1.0
    assert frame["response"][0].tolist() == [1, 2, 3]


TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "unk_token": "no", "vocab": {"no": 0, "yes": 1}},
}


def test_sql_reads_tokens_with_the_tokenizers_that_the_store_was_opened_with(path, tmp_path: pathlib.Path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(TOKENIZER))
    with forebay.open(path, tokenizer=file) as store:
        assert store.sql("select detokenise([1, 0]) as text").to_pylist() == [{"text": "yes no"}]
    two = {"one": file, "two": str(file)}
    for tokenizer in (two, types.MappingProxyType(two)):
        with forebay.open(path, tokenizer=tokenizer) as store:
            assert store.sql("select detokenise([1], 'two') as text").to_pylist() == [{"text": "yes"}]
    with forebay.open(path) as store, pytest.raises(forebay.InputError, match="`tokenizer=` of `forebay.open`"):
        store.sql("select detokenise([1])")
    for wrong, named in [(5, "tokenizer.json"), ({"one": 5}, "tokenizer.json")]:
        with pytest.raises(forebay.InputError, match=named):
            forebay.open(path, tokenizer=wrong)
    with forebay.open(path, tokenizer=tmp_path / "nowhere.json") as store:
        with pytest.raises(forebay.InputError, match="nowhere.json"):
            store.sql("select 1")


def six_versions(path, **options):
    """A store whose policy has moved on six times, each time by one row."""
    with forebay.open(path, **options) as store:
        solver = store.create_table("solver", SOLVER)
        store.create_consumer("train", tables=["solver"], kind="trainer", ready=["reward"])
        for version in range(6):
            solver.insert(policy_version=version, sample_ids=[f"q{version}_0_0"], reward=[1.0])
            with store.step(rows={"train": 1}) as step:
                for batch in step.micro_batches("train", size=1, timeout=30.0):
                    batch.accumulated()
                step.commit({"solver": version + 1})


COUNT = "select count(*) as rows from solver"


def test_versions_that_are_over_are_archived_while_a_store_is_open(path, tmp_path: pathlib.Path):
    archive = tmp_path / "archive"
    six_versions(path)
    with forebay.open(path, archive=archive, archive_keep_versions=2) as store:
        until = time.monotonic() + 60
        while not (archive / "_commits/solver/1.1.json").exists():
            assert store.sql(COUNT).to_pylist() == [{"rows": 6}]
            assert time.monotonic() < until, "nothing was archived within a minute"
        assert store.sql(COUNT).to_pylist() == [{"rows": 6}]
    with forebay.open(path) as store:
        assert store.sql(COUNT).to_pylist()[0]["rows"] < 6


def test_sql_reads_what_has_left_the_store_where_it_is_told_of_the_archive(path, tmp_path: pathlib.Path):
    archive = tmp_path / "archive"
    six_versions(path)
    subprocess.run([command(), "archive", "--dir", path, "--to", archive, "--keep-versions", "1"], check=True, capture_output=True)
    with forebay.open(path) as store:
        left = store.sql(COUNT).to_pylist()[0]["rows"]
    assert left < 6, "what is over has left"
    for place in [archive, str(archive), archive.as_uri()]:
        with forebay.open(path, read_only=True, archive=place) as store:
            assert store.sql(COUNT).to_pylist() == [{"rows": 6}]
    with pytest.raises(forebay.InputError, match="no address of an archive"):
        forebay.open(path, archive="gopher://x")
    for wrong in [{"archive_keep_versions": 2}, {"archive": archive, "archive_keep_versions": 0}]:
        with pytest.raises(forebay.InputError, match="archive"):
            forebay.open(path, **wrong)
    with pytest.raises(forebay.InputError, match="read_only"):
        forebay.open(path, read_only=True, archive=archive, archive_keep_versions=1)
    with forebay.open(path, archive=tmp_path / "nowhere") as store:
        with pytest.raises(forebay.StateError, match="there is no archive"):
            store.sql(COUNT)


def test_a_question_ends_within_the_limits_that_the_store_was_opened_with(path):
    endless = "select count(*) from generate_series(1, 1000000000000) where value % 7 = 3"
    with forebay.open(path, query_time_max=0.05) as store, pytest.raises(forebay.CapacityError, match="longer than 50ms"):
        store.sql(endless)
    with forebay.open(path, query_memory_bytes_max=1 << 20) as store:
        with pytest.raises(forebay.CapacityError, match="memory"):
            store.sql("select array_agg(value) from generate_series(1, 3000000)")


def test_a_reader_beside_the_writer_sees_what_comes(path, store, solver):
    with forebay.open(path, read_only=True) as reader:
        assert len(reader.sql("select 1 from solver")) == 0
        begin(solver, "q1")
        assert reader.refresh() > 0 and reader.table("solver").counts()["written"] == 2
        assert len(reader.sql("select 1 from solver")) == 2
        with pytest.raises(forebay.StateError, match="read-only"):
            reader.table("solver").insert(policy_version=0, sample_ids=["q_0_0"])


@pytest.mark.embedded
def test_a_copy_is_a_store_of_its_own(path, tmp_path: pathlib.Path, store, solver):
    begin(solver, "q1")
    store.checkpoint()
    store.sync()
    store.backup(tmp_path / "copy")
    with forebay.open(tmp_path / "copy") as copy:
        assert copy.table("solver").counts()["written"] == 2


def test_a_second_opening_is_refused_and_a_second_close_does_nothing(path):
    store = forebay.open(path)
    with pytest.raises(forebay.StateError, match=str(os.getpid())):
        forebay.open(path)
    store.close()
    store.close()
    forebay.open(path).close()


def test_whatever_variables_are_left_closing_ends_them(path):
    store = forebay.open(path)
    solver = store.create_table("solver", SOLVER)
    train = store.create_consumer(
        "train", tables=["solver"], kind="trainer", ready=["response", "reward"], group=("input_id", 2)
    )
    begin(solver, "q1")
    step = store.step()
    batches = step.micro_batches(train, size=2, timeout=30)
    batch = next(batches)
    store.close()
    for call in [
        lambda: batch["reward"],
        batch.accumulated,
        lambda: next(batches),
        lambda: step.commit({"solver": 1}),
        store.step,
        store.tables,
        train.open_groups,
    ]:
        with pytest.raises(forebay.ClosedError, match="closed"):
            call()
    with forebay.open(path) as again:
        with again.step() as step:
            assert step.number == 1
            assert next(step.micro_batches("train", size=2, timeout=30)).sample_ids == ids("q1")


def run(program: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def test_what_was_acknowledged_outlives_kill_9(path):
    """A writer is killed while it writes; every row that it had reported is there, whole."""
    program = f"""
        import forebay
        store = forebay.open({str(path)!r})
        solver = store.create_table("solver", {{"response": "list<int32>", "reward": "float32"}})
        train = store.create_consumer("train", tables=["solver"], kind="trainer", ready=["reward"])
        step = store.step(rows={{train: 10_000}})
        for number in range(1_000_000):
            rows = solver.insert(policy_version=0, sample_ids=[f"q{{number}}_0_0"], response=[[number] * 100])
            solver.write(rows, reward=[number])
            next(step.micro_batches(train, size=1, timeout=30)).accumulated()
            print(number, flush=True)
    """
    process = run(program)
    last = -1
    while last < 200:
        last = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    reported = process.communicate()[0].splitlines()
    last = max([last, *(int(line) for line in reported[:-1])])
    assert process.returncode == -signal.SIGKILL
    with forebay.open(path) as store:
        answer = store.sql("select reward, response from solver where input_id <> '' order by reward").arrow()
        found = {int(reward): set(response) for reward, response in zip(*(c.to_pylist() for c in answer)) if reward is not None}
        assert set(range(last + 1)) <= set(found)
        assert all(response == {number} for number, response in found.items())
        with store.step(rows={"train": len(found)}) as step:
            assert step.number == 1, "a step that was not committed is begun again"
            again = next(step.micro_batches("train", size=len(found), timeout=30))["reward"]
            assert {int(reward) for reward in again} == set(found), "whether it was killed with the last one claimed or not"


def test_an_orderly_end_keeps_what_the_level_memory_had_in_its_buffer(path):
    program = f"""
        import forebay
        store = forebay.open({str(path)!r}, durability="memory")
        solver = store.create_table("solver", {{"reward": "float32"}})
        solver.insert(policy_version=0, sample_ids=["q_0_0"], reward=[1.0])
    """
    process = run(program)
    assert process.wait() == 0 and process.communicate()
    with forebay.open(path) as store:
        assert store.table("solver").counts()["written"] == 1


def test_a_forked_child_is_refused_and_hurts_nobody(path, store, solver):
    begin(solver, "q1")
    child = os.fork()
    if child == 0:
        try:
            solver.insert(policy_version=0, sample_ids=["q2_0_0"])
        except forebay.StateError as error:
            os._exit(7 if "child" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    begin(solver, "q3")
    assert solver.counts()["written"] == 4
