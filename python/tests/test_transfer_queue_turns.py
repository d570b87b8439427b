"""TransferQueue over a server: turns that end by themselves, numbers that are given once, and loads that are interrupted."""

import json
import socket

import pytest

import forebay

torch = pytest.importorskip("torch")
pytest.importorskip("tensordict")

import forebay.transfer_queue as tq  # noqa: E402
from forebay.transfer_queue import _checkpoint  # noqa: E402
from forebay.transfer_queue._client import TransferQueueClient  # noqa: E402
from forebay.transfer_queue._partitions import Partitions  # noqa: E402
from serving import Server  # noqa: E402
from transfer_queue_script import batch  # noqa: E402


def client(server, timeout=60.0):
    store = forebay.connect(server.address)
    return TransferQueueClient(Partitions(store, timeout), timeout)


def put(client, key, value, **more):
    return client._kv_put([key], "train", batch(x=torch.tensor([[value]]), **more), [{"of": key}], None)


def rows(given):
    return [row.tolist() for row in given["x"].unbind()]


def seen(client):
    """Keys with their values and tags."""
    listed = client.kv_list().get("train", {})
    found = {}
    for key, tag in listed.items():
        meta = client.kv_retrieve_meta([key], "train")
        found[key] = (rows(client.get_data(meta.select_fields(["x"])))[0][0], tag)
    return found


def before(monkeypatch, log, then):
    """Does something else just before the next row is written to a log."""
    real = log.append

    def append(*arguments, **columns):
        monkeypatch.undo()
        then()
        return real(*arguments, **columns)

    monkeypatch.setattr(log, "append", append)


# What A does in a turn that it no longer has, and what B has done meanwhile: nothing may be lost or mixed up.
LATE = {
    "a put of a new key": lambda a: put(a, "new", 5),
    "a put of a key that is there": lambda a: put(a, "old", 5),
    "a put without keys": lambda a: a.put(batch(x=torch.tensor([[5]])), partition_id="train"),
    "a clearing": lambda a: a.clear_samples(a.kv_retrieve_meta(["old"], "train")),
    "a clearing of all": lambda a: a.clear_partition("train"),
}


def ended_by_a_restart(server, a):
    server.kill()
    server.start()


def ended_by_its_lease(server, a):
    a._partitions.lock._claim.release()


@pytest.mark.parametrize("ends", [ended_by_a_restart, ended_by_its_lease])
@pytest.mark.parametrize("late", LATE)
def test_what_is_changed_in_a_turn_that_has_ended_loses_nothing(server, monkeypatch, late, ends):
    a, b = client(server), client(server)
    put(a, "old", 1)

    def meanwhile():
        ends(server, a)
        put(b, "theirs", 7)
        put(b, "old", 8)

    before(monkeypatch, a._partitions._puts, meanwhile)
    LATE[late](a)
    there = {"old": (8, {"of": "old"}), "theirs": (7, {"of": "theirs"})}
    if late == "a put of a new key":
        there["new"] = (5, {"of": "new"})
    if late == "a put of a key that is there":
        there["old"] = (5, {"of": "old"})
    if late == "a clearing":
        del there["old"]
    if late == "a clearing of all":
        there = {}
    for one in (a, b, client(server)):
        assert seen(one) == there
        samples = one._partitions.samples.get("train", {})
        assert len(samples) == len(there) + (late == "a put without keys")
        assert sorted(samples) == sorted(sample.number for sample in samples.values())


def test_a_sample_is_taken_once_though_the_turn_has_ended(server, monkeypatch):
    a, b = client(server), client(server)
    for key in "abcd":
        put(a, key, 1)
    taken = []

    def meanwhile():
        ended_by_a_restart(server, a)
        taken.extend(b.get_meta(["x"], 2, "train", task_name="t").global_indexes)

    before(monkeypatch, a._partitions._consumption.log, meanwhile)
    assert a.get_meta(["x"], 2, "train", task_name="t").global_indexes == [2, 3] and taken == [0, 1]
    for one in (a, b, client(server)):
        assert one.check_consumption_status("t", "train")
        one.reset_consumption("train", "t")
        assert one.get_consumption_status("t", "train")[1].tolist() == [0, 0, 0, 0]
        assert one.get_meta(["x"], 4, "train", task_name="t").size == 4


def test_who_is_overtaken_each_time_is_told(server, monkeypatch):
    a, b = client(server, timeout=0.0), client(server)
    real = a._partitions._puts.append

    def append(*arguments, **columns):
        ended_by_its_lease(server, a)
        put(b, "theirs", 1)
        return real(*arguments, **columns)

    monkeypatch.setattr(a._partitions._puts, "append", append)
    task = a._partitions.lock._task
    a._partitions.lock._task = type("Patient", (), {"claim": lambda self, size, timeout: task.claim(size=size)})()
    with pytest.raises(forebay.StateError, match="nothing was changed"):
        put(a, "mine", 1)
    assert list(seen(b)) == ["theirs"]


def test_a_turn_that_cannot_be_given_back_is_taken_again(server, monkeypatch):
    # A wait gives the turn up; what it finds is that the server is another one.
    a, b = client(server), client(server)
    put(a, "k", 1)
    lock = a._partitions.lock
    with lock:
        ended_by_a_restart(server, a)
        assert lock.wait(0.01) and lock._depth == 1 and lock._claim.is_held
    assert lock._depth == 0 and lock._claim is None

    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), lock:
        monkeypatch.setattr(lock, "_give", fails)
        try:
            lock.wait(0.01)
        finally:
            monkeypatch.undo()
            assert lock._depth == 1
    assert lock._depth == 0
    with b._partitions.lock, pytest.raises(forebay.WaitTimeout):
        lock._timeout = 0.1
        put(a, "within another's turn", 2)


def test_what_was_put_is_put_though_the_turn_is_lost_after_it(server, monkeypatch):
    a = client(server)
    log = a._partitions._puts
    monkeypatch.setattr(log, "sweep", lambda: ended_by_a_restart(server, a) or False)
    put(a, "k", 1)
    monkeypatch.undo()
    assert seen(a) == {"k": (1, {"of": "k"})} == seen(client(server))
    put(a, "k", 2)
    assert len(log.read()) == 1


def test_a_number_is_given_once(server, path):
    a, b = client(server), client(server)
    first = a.put(batch(x=torch.tensor([[1], [2]])), partition_id="old")
    assert first.global_indexes == [0, 1]
    b.clear_partition("old")
    a.kv_list()
    assert b.put(batch(x=torch.tensor([[77], [88]])), partition_id="old").global_indexes == [2, 3]
    with pytest.raises(RuntimeError, match="no sample 0 .*cleared"):
        a.get_data(first)
    server.kill()
    server.start()
    b.clear_partition("old")
    assert client(server).put(batch(x=torch.tensor([[9]])), partition_id="new").global_indexes == [4]


def test_a_number_is_given_once_by_a_store_that_is_opened_again(path):
    for life in range(3):
        tq.init({"backend": {"Forebay": {"path": str(path)}}})
        try:
            assert tq.get_client().put(batch(x=torch.tensor([[1]])), partition_id="p").global_indexes == [life]
            tq.get_client().clear_partition("p")
        finally:
            tq.close()


def test_rows_that_somebody_holds_stay_until_they_are_given_back(server):
    a, b = client(server), client(server)
    for value in range(4):
        put(a, f"k{value}", value)
    store = a._partitions.store
    read = store.create_consumer("read", tables=["transfer_queue"], kind="task", ready=["x"])
    claim = read.claim(size=1)
    for value in range(4):
        put(a, f"k{value}", value + 10)
    count = lambda: store.sql("select count(*) as n from transfer_queue").to_pylist()[0]["n"]
    assert count() == 5 and {key: value for key, (value, _) in seen(a).items()} == {f"k{n}": n + 10 for n in range(4)}
    claim.release()
    put(b, "k0", 20)
    assert count() == 4 and seen(a) == seen(b)


def test_who_looks_again_asks_for_no_row_twice(server):
    a, b = client(server), client(server)
    for value in range(20):
        put(a, f"k{value}", value)
    assert len(seen(b)) == 20
    found = []
    real = b._partitions._puts.table
    b._partitions._puts.table = type("Table", (), {
        "__getattr__": lambda self, name: getattr(real, name),
        "find": lambda self, **wanted: found.extend(wanted["sample_ids"]) or real.find(**wanted),
    })()  # fmt: skip
    put(a, "k3", 33)
    assert seen(b)["k3"][0] == 33
    assert len(found) == 1


def test_who_waits_writes_nothing_down(server):
    a = client(server, timeout=1.0)
    put(a, "k", 1)
    claims = lambda: a._partitions.lock._last[1]
    at_first = claims()
    with pytest.raises(TimeoutError):
        a.get_meta(["x"], 2, "train", task_name="t")
    assert claims() - at_first <= 2


# Tokens


SCOPES = {"reads": ["read"], "writes": ["write"], "trains": ["read", "train"], "works": ["read", "write"]}


@pytest.fixture
def granted(path, tmp_path):
    """The address of a server that takes tokens, and a token by its holder."""
    tokens = {holder: f"{holder:x>32}" for holder in [*SCOPES, "sees one table"]}
    tokens = {holder: token.replace(" ", "-") for holder, token in tokens.items()}
    told = [f'[{holder}]\ntoken = "{tokens[holder]}"\nscopes = {json.dumps(scopes)}\n' for holder, scopes in SCOPES.items()]
    told.append(f'["sees one table"]\ntoken = "{tokens["sees one table"]}"\nscopes = ["read", "write"]\ntables = ["other"]\n')
    grants = tmp_path / "grants.toml"
    grants.write_text("".join(told))
    grants.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with Server(path, tmp_path / "fb.sock", "--grpc", address, "--grants", grants, "--readers-without-token"):
        yield f"grpc://{address}", tokens


@pytest.mark.parametrize("holder", ["reads", "writes", "trains", "sees one table"])
def test_a_token_that_is_not_enough_is_refused_at_once(granted, holder):
    address, tokens = granted
    with pytest.raises(forebay.InputError, match="scopes read and write, for all tables"):
        tq.init({"backend": {"Forebay": {"address": address, "token": tokens[holder]}}})
    with pytest.raises(AssertionError, match="tq.init"):
        tq.get_client()


def test_a_queue_needs_to_read_and_to_write(granted):
    address, tokens = granted
    for life in range(2):
        tq.init({"backend": {"Forebay": {"address": address, "token": tokens["works"]}}})
        try:
            for value in range(3):
                tq.kv_put("k", "train", fields={"x": torch.tensor([value])}, tag={"life": life})
            assert rows(tq.kv_batch_get("k", "train")) == [[2]]
            tq.get_client().get_meta(["x"], 1, "train", task_name="t")
            tq.get_client().reset_consumption("train")
            tq.kv_clear("k", "train")
            assert tq.kv_list() == {}
        finally:
            tq.close()


# Loading


@pytest.mark.parametrize("restarts", [True, False])
def test_a_load_that_is_interrupted_changes_nothing(path, tmp_path, monkeypatch, restarts):
    settings = {"backend": {"Forebay": {"path": str(path)}}}
    tq.init(settings)
    try:
        tq.kv_batch_put(["a", "b"], "train", batch(x=torch.tensor([[1], [2]])), [{"n": 1}, {"n": 2}])
        tq.get_client().get_meta(["x"], 1, "train", task_name="t")
        tq.save_checkpoint(tmp_path / "copy")
        tq.kv_clear("a", "train")
        tq.kv_put("d", "train", fields={"x": torch.tensor([4])}, tag={"n": 4})

        def is_as_it_was():
            assert tq.kv_list() == {"train": {"b": {"n": 2}, "d": {"n": 4}}}
            assert rows(tq.kv_batch_get(["b", "d"], "train")) == [[2], [4]]
            assert tq.get_client().get_consumption_status("t", "train")[1].tolist() == [0, 0]

        for steps in range(40):
            left = steps

            def interrupted(real):
                def call(*arguments, **columns):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise KeyboardInterrupt
                    return real(*arguments, **columns)

                return call

            partitions = tq.get_client()._partitions
            for log in (partitions._puts, partitions._consumption.log):
                monkeypatch.setattr(log, "append", interrupted(log.append))
            try:
                tq.load_checkpoint(tmp_path / "copy")
                break
            except KeyboardInterrupt:
                monkeypatch.undo()
            if restarts:
                tq.close()
                tq.init(settings)
            is_as_it_was()
        assert steps == 4  # two samples, what was consumed, and the row that makes it the queue
        for restarted in (False, True):
            if restarted:
                monkeypatch.undo()
                tq.close()
                tq.init(settings)
            assert tq.kv_list() == {"train": {"a": {"n": 1}, "b": {"n": 2}}}
            assert rows(tq.kv_batch_get(["a", "b"], "train")) == [[1], [2]]
            assert tq.get_client().get_consumption_status("t", "train")[1].tolist() == [1, 0]
        tq.kv_put("c", "train", tag={})
        store = forebay.transfer_queue._queue.store
        assert store.sql("select count(*) as n from transfer_queue").to_pylist() == [{"n": 3}]
        assert store.sql("select count(*) as n from transfer_queue_consumed").to_pylist() == [{"n": 1}]
    finally:
        tq.close()


def test_a_load_that_others_overtake_leaves_what_they_have_made(server, tmp_path, monkeypatch):
    with forebay.open(tmp_path / "other") as store:
        saving = TransferQueueClient(Partitions(store), 1.0)
        put(saving, "copied", 1)
        _checkpoint.save(store, tmp_path / "copy", None)
    a, b = client(server), client(server)
    put(a, "there", 2)
    switch = a._partitions.switch

    def late(generation):
        ended_by_its_lease(server, a)
        put(b, "theirs", 3)
        switch(generation)

    monkeypatch.setattr(a._partitions, "switch", late)
    with pytest.raises(forebay.StateError, match="load again"):
        _checkpoint.load(a._partitions, tmp_path / "copy")
    monkeypatch.undo()
    assert set(seen(a)) == set(seen(b)) == {"there", "theirs"}
    _checkpoint.load(a._partitions, tmp_path / "copy")
    assert seen(a) == seen(b) == {"copied": (1, {"of": "copied"})}
