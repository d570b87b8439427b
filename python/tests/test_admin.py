"""What an operator asks, of a store here and behind a server."""

import threading

import pytest

import forebay
from conftest import SOLVER, begin, ids
from serving import Server


@pytest.fixture
def server(path, tmp_path):
    (tmp_path / "copies").mkdir()
    with Server(path, tmp_path / "fb.sock", "--backup-dir", tmp_path / "copies") as server:
        yield server


@pytest.fixture
def place(way, tmp_path):
    """A place for copies, as each way names it, and where it is."""
    name = "nightly/1"
    at = tmp_path / "copies" / name
    return (at if way == "embedded" else name), at


def test_an_overview_shows_settings_counters_and_depths(store, solver, read):
    solver.insert(policy_version=0, sample_ids=ids("q"), response=[[1], [2]])
    with read.claim(size=1, timeout=30):
        overview = store.admin.overview()
    assert overview["settings"]["durability"] == "logged" and overview["settings"]["disk_bytes_max"] is None
    assert overview["stats"]["commits"] > 0
    (depth,) = overview["depths"]
    expected = {"consumer": "read", "kind": "task", "table": "solver", "ready_rows": 1, "processing_rows": 1}
    assert depth == expected | {"future_rows": 0, "current_version": 0, "group_members": None}
    assert store.admin.depths()[0]["ready_rows"] == 2


def test_rows_are_looked_at_and_none_is_claimed(store, solver, read):
    begin(solver, "a", "b")
    peek = lambda **how: store.admin.peek("solver", columns=["sample_id", "reward"], **how).to_pylist()
    assert peek(rows=1) == [{"sample_id": "a_0_0", "reward": 1.0}]
    assert [row["sample_id"] for row in peek(newest=True, rows=2)] == ["b_0_1", "b_0_0"]
    with read.claim(size=2, timeout=30):
        assert [row["sample_id"] for row in peek(ready_for="read")] == ["b_0_0", "b_0_1"]
    whole = store.admin.peek("solver")
    assert len(whole) == 4 and "response" in whole.columns and len(peek()) == 4
    for call, named in [
        (lambda: store.admin.peek("solvr"), "solver"),
        (lambda: store.admin.peek("solver", columns=["rewrd"]), "reward"),
        (lambda: store.admin.peek("solver", rows=0), "1 to 1000"),
        (lambda: store.admin.peek("solver", ready_for="raed"), "read"),
    ]:
        with pytest.raises(forebay.InputError, match=named):
            call()


@pytest.mark.embedded
def test_what_was_looked_at_keeps_nothing_of_a_store_that_is_closed(path):
    with forebay.open(path) as store:
        solver = store.create_table("solver", SOLVER)
        solver.insert(policy_version=0, sample_ids=["q_0_0"], answer=["long " * 1000])
        seen = store.admin.peek("solver")
    with forebay.open(path):
        assert seen.to_pylist()[0]["answer"] == "long " * 1000


def test_rows_are_evicted_with_a_reason(store, solver):
    (rows,) = begin(solver, "a")
    store.admin.evict(rows[:1], "spoilt")
    assert solver.counts()["excluded"] == {"spoilt": 1}
    with pytest.raises(forebay.InputError):
        store.admin.evict(rows, "")


def test_budgets_change_one_by_one_and_absurd_ones_not_at_all(store):
    admin = store.admin
    assert admin.budgets() == {"memory_bytes_max": None, "disk_bytes_max": None}
    assert admin.set_budgets(disk_bytes_max=1 << 30) == {"memory_bytes_max": None, "disk_bytes_max": 1 << 30}
    both = admin.set_budgets(memory_bytes_max=1 << 31)
    assert both == {"memory_bytes_max": 1 << 31, "disk_bytes_max": 1 << 30}
    for absurd in ({"memory_bytes_max": 0}, {"disk_bytes_max": 0}, {"disk_bytes_max": None, "memory_bytes_max": 1}):
        with pytest.raises(forebay.InputError, match="at least"):
            admin.set_budgets(**absurd)
    for wrong, named in [({"memory": 1}, "memory_bytes_max"), ({"disk_bytes_max": -1}, "-1"), ({"disk_bytes_max": "1"}, "'1'")]:
        with pytest.raises(forebay.InputError, match=named):
            admin.set_budgets(**wrong)
    assert admin.budgets() == both
    assert admin.set_budgets(memory_bytes_max=None)["memory_bytes_max"] is None


@pytest.mark.embedded
def test_a_writer_who_waits_goes_on_when_there_is_room(path):
    with forebay.open(path, disk_bytes_max=300_000, extent_bytes=(4096, 1 << 16), capacity_wait=0) as store:
        solver = store.create_table("solver", SOLVER)
        insert = lambda name, **more: solver.insert(
            policy_version=0, sample_ids=[f"{name}_0_0"], response=[[7] * 5_000], **more
        )
        with pytest.raises(forebay.CapacityError):
            for row in range(100):
                insert(row)
        late = threading.Thread(target=lambda: [insert(f"late{row}", timeout=60) for row in range(3)])
        store.admin.set_budgets(disk_bytes_max=None)
        late.start()
        late.join()
        assert solver.find(policy_version=0, sample_ids=["late2_0_0"])


def test_retention_is_replaced_as_a_whole(store):
    admin = store.admin
    assert admin.retention() == {"versions_kept": None, "consumed_kept": None}
    admin.set_retention(versions_kept=3, consumed_kept=1.5)
    assert admin.retention() == {"versions_kept": 3, "consumed_kept": 1.5}
    admin.set_retention(versions_kept=2)
    assert admin.retention() == {"versions_kept": 2, "consumed_kept": None}
    for wrong in ({"versions_kept": 0}, {"consumed_kept": -1}):
        with pytest.raises(forebay.InputError):
            admin.set_retention(**wrong)
    admin.set_retention()
    assert admin.retention() == {"versions_kept": None, "consumed_kept": None}


def test_a_compaction_says_what_it_gave_back(store, solver):
    rows = [solver.insert(policy_version=0, sample_ids=[f"q{at}_0_0"], response=[[7] * 100_000]) for at in range(3)]
    solver.delete(forebay.Rows.concat(rows[1:]), force=True)
    report = store.admin.compact()
    assert set(report) == {"bytes_before", "bytes_after", "values_moved", "held_back_bytes"}
    assert report["bytes_before"] > 0 and report["bytes_after"] > 0
    assert len(solver.cells(rows[0], "response")[0]) == 100_000


def test_a_copy_is_a_store_of_its_own(store, solver, place):
    begin(solver, "a", "b")
    asked, at = place
    told = []
    report = store.admin.backup(asked, progress=lambda *far: told.append(far))
    assert report["bytes"] > 0 and str(report["to"]).endswith("nightly/1")
    assert told and all(what == "copy" and done <= total for what, done, total in told)
    with forebay.open(at, read_only=True) as copy:
        assert copy.sql("select count(*) as n from solver").to_pylist() == [{"n": 4}]
    with pytest.raises(forebay.StateError, match="nightly/1"):
        store.admin.backup(asked)


def test_a_copy_that_leaves_what_is_allowed_is_refused(server, tmp_path):
    with forebay.connect(server.address) as store:
        for path in ("../beside", "..", ".", tmp_path / "beside"):
            with pytest.raises(forebay.InputError, match="beneath"):
                store.admin.backup(path)
    assert not (tmp_path / "beside").exists()


def test_a_check_says_how_far_it_is_and_what_it_saw(store, solver):
    begin(solver, "a", "b")
    solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[7] * 100_000])
    store.checkpoint()
    told = []
    report = store.admin.verify(progress=lambda *far: told.append(far))
    assert report["sound"] and report["faults"] == [] and report["checked"]["rows"] == 5
    assert {stage for stage, _, _ in told} >= {"checkpoint", "values"}
    assert all(done <= total for _, done, total in told)


def test_what_a_callable_raises_stops_the_call_and_comes_out_of_it(store, solver, place):
    begin(solver, "a", "b")

    class Enough(Exception):
        pass

    def stop(*far):
        raise Enough(far)

    with pytest.raises(Enough):
        store.admin.verify(progress=stop)
    again(lambda: store.admin.verify())
    with pytest.raises(Enough):
        again(lambda: store.admin.backup(place[0], progress=stop))


def test_who_watches_a_call_cannot_close_its_store_and_hears_so_at_once(store, solver, place):
    begin(solver, "a", "b")

    def close(*_):
        store.close()

    for call in (lambda: store.admin.verify(progress=close), lambda: store.admin.backup(place[0], progress=close)):
        with pytest.raises(forebay.StateError, match="from within a call"):
            again(call)
    with pytest.raises(forebay.StateError, match="from within a call"):
        with store:
            again(lambda: store.admin.verify(progress=lambda *_: store.__exit__(None, None, None)))
    assert store.is_closed
    store.close()


def test_who_watches_a_call_may_close_another_store(store, solver, tmp_path):
    begin(solver, "a", "b")
    other = forebay.open(tmp_path / "other")
    assert store.admin.verify(progress=lambda *_: other.close())["sound"]
    assert other.is_closed and not store.is_closed


@pytest.mark.embedded
def test_a_copy_that_is_stopped_at_its_last_byte_is_no_store_and_another_takes_its_place(store, solver, place):
    begin(solver, "a", "b")

    def stop(_, done, total):
        if done == total:
            raise KeyError(done)

    with pytest.raises(KeyError):
        store.admin.backup(place[1], progress=stop)
    assert not [path for path in place[1].rglob("*") if path.is_file()]
    store.admin.backup(place[1])
    with forebay.open(place[1], read_only=True) as copy:
        assert copy.table("solver").counts()["written"] == 4


def again(call):
    """What a call gives once the server has let go of what was stopped."""
    while True:
        try:
            return call()
        except forebay.RetryError:
            continue
