"""A subscriber keeps instances at the latest version of a key: what is damaged is passed over, what failed is tried again."""

import json
import os
import shutil
import threading

import pytest

from forebay import CorruptError, InputError
from forebay.inference import (
    DirectoryTakenError,
    NoInstanceError,
    PublicationError,
    RequestError,
    Rollouts,
    Rotation,
    ServerInstance,
    SglangServer,
    Subscriber,
    Template,
    Version,
    VllmServer,
    read_publication,
    write_checkpoint,
)
from instances import FOUR, failing_at
from publishing import FROZEN, SHAPES, Memory, MemoryStore, Versions, payloads, template
from standin_sglang import Sglang
from standin_vllm import Vllm
from standins import tensors_of, token_of

TIMEOUT_S = 20


@pytest.fixture
def versions(tmp_path):
    return Versions(tmp_path / "expected")


@pytest.fixture
def standins(versions):
    made = [Vllm(versions.template), Sglang(versions.template)]
    yield made
    for standin in made:
        standin.stop()


@pytest.fixture
def rotation(standins):
    vllm, sglang = standins
    servers = [VllmServer(vllm.url, name="vllm", load_timeout_s=5), SglangServer(sglang.url, name="sglang", load_timeout_s=5)]
    return Rotation([ServerInstance(server) for server in servers])


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def subscriber(store, rotation, versions, tmp_path):
    made = Subscriber(
        store, "solver/weights", rotation, template=versions.template, directory=tmp_path / "served", retry_s=0.05, concurrency=2
    )
    with made:
        yield made


def test_each_version_that_is_published_is_served_by_all(store, rotation, subscriber, versions):
    # PL-08
    for number in (1, 2, 3):
        store.publish(payloads(number))
        subscriber.wait(number, timeout_s=TIMEOUT_S)
        for _ in range(2):
            made = Rollouts(rotation).generate([1], sampling=FOUR)
            assert made.version == versions.version(number) and set(made.tokens) == {token_of(versions[number].directory)}


def test_an_instance_that_fails_is_tried_again_and_the_other_serves(store, rotation, subscriber, standins, versions):
    standins[0].fail("/collective_rpc", 500, "half and 500", "die")
    store.publish(payloads(1))
    subscriber.wait(1, timeout_s=TIMEOUT_S, instances=1)
    assert Rollouts(rotation).generate([1], sampling=FOUR).version.number == 1
    subscriber.wait(1, timeout_s=TIMEOUT_S)


def test_an_instance_that_falls_out_is_brought_back(store, rotation, subscriber, standins, versions):
    store.publish(payloads(1))
    subscriber.wait(1, timeout_s=TIMEOUT_S)
    for standin in standins:
        standin.stop()
        standin.restart(versions.template)
    for _ in range(4):  # the answers of servers that were started anew are found out, and not used
        made = Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=TIMEOUT_S)
        assert set(made.tokens) == {token_of(versions[1].directory)}


def test_a_request_that_is_to_blame_has_nobody_loaded_anew(store, rotation, subscriber, standins):
    store.publish(payloads(1))
    subscriber.wait(1, timeout_s=TIMEOUT_S)
    names = [state.name for state in rotation.states()]
    for standin, engine, other in zip(standins, ("vllm", "sglang"), reversed(names)):
        failing_at(standin, engine, 99, 500)
        at_last(standin, lambda other=other: rotation.wait_for(lambda: rotation._members[other].is_changing, 0.2))
    before = [standin.loads for standin in standins]
    for _ in range(3):
        with pytest.raises(RequestError):
            Rollouts(rotation).generate([1, 99], sampling=FOUR, timeout_s=TIMEOUT_S)
        assert all(state.is_in_rotation for state in rotation.states())
        Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=TIMEOUT_S)
    assert [standin.loads for standin in standins] == before


def at_last(standin, call):
    """Does something before each request with the token 99 is answered."""
    original = standin.route

    def route(verb, path, query, body, fault):
        if 99 in (*body.get("token_ids", ()), *body.get("input_ids", ())):
            call()
        return original(verb, path, query, body, fault)

    standin.route = route


def test_where_nobody_else_serves_who_may_be_to_blame_is_brought_back_at_once(store, standins, versions, tmp_path):
    standin = standins[0]
    rotation = Rotation([ServerInstance(VllmServer(standin.url, name="vllm", load_timeout_s=5))])
    with Subscriber(store, "solver/weights", rotation, template=versions.template, directory=tmp_path / "one") as subscriber:
        store.publish(payloads(1))
        subscriber.wait(1, timeout_s=TIMEOUT_S)
        standin.fail("/inference/v1/generate", 500)
        assert Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=TIMEOUT_S).version.number == 1


def test_a_newer_version_overtakes_one_that_an_instance_could_not_take(store, rotation, subscriber, standins):
    standins[0].fail("/collective_rpc", *[500] * 3)
    subscriber.retry_s = 3600.0  # nothing but a newer version wakes it
    store.publish(payloads(1))
    subscriber.wait(1, timeout_s=TIMEOUT_S, instances=1)
    assert rotation.wait_for(lambda: rotation._members["vllm"].error is not None, TIMEOUT_S)
    standins[0].faults.clear()
    store.publish(payloads(2))
    subscriber.wait(2, timeout_s=TIMEOUT_S)


def damaged(number):
    found = payloads(number)
    found["weights.float32"].memory[17] ^= 1
    return found


def of_another_manifest(number):
    return {**payloads(number), "manifest": payloads(number + 1)["manifest"]}


def told(number, **change):
    found = payloads(number)
    manifest = json.loads(bytes(found["manifest"].memory)) | change
    memory = bytearray(json.dumps(manifest).encode())
    return {**found, "manifest": Memory("uint8", (len(memory),), memory)}


DAMAGED = {
    "a bit is wrong": lambda: damaged(2),
    "the manifest of other weights": lambda: of_another_manifest(2),
    "no manifest": lambda: {"weights.float32": payloads(2)["weights.float32"]},
    "no json": lambda: {**payloads(2), "manifest": Memory("uint8", (1,), bytearray(b"{"))},
    "no tensors": lambda: told(2, tensors=None),
    "another layout": lambda: told(2, layout="0" * 64),
    "beyond the end": lambda: told(2, tensors=[{"name": "a", "dtype": "float32", "shape": [1 << 40], "offset": 0}]),
    "before the beginning": lambda: told(2, tensors=[{"name": "a", "dtype": "float32", "shape": [8], "offset": -8}]),
    "a shape of texts": lambda: told(2, tensors=[{"name": "a", "dtype": "float32", "shape": ["8"], "offset": 0}]),
    "an offset that is none": lambda: told(2, tensors=[{"name": "a", "dtype": "float32", "shape": [8], "offset": None}]),
    "a type that is a list": lambda: told(2, tensors=[{"name": "a", "dtype": ["float32"], "shape": [8], "offset": 0}]),
    "another type": lambda: told(2, tensors=[{"name": "a", "dtype": "int8", "shape": [8], "offset": 0}]),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_not_what_it_says_makes_no_publication(case):
    assert read_publication(payloads(2)).version.number == 2
    with pytest.raises(PublicationError):
        read_publication(DAMAGED[case]())


def test_a_damaged_version_is_passed_over_and_the_one_before_serves(store, rotation, subscriber, versions):
    store.publish(payloads(1))
    subscriber.wait(1, timeout_s=TIMEOUT_S)
    store.publish(damaged(2))
    assert rotation.wait_for(lambda: isinstance(subscriber.failure, PublicationError), TIMEOUT_S)
    assert Rollouts(rotation).generate([1], sampling=FOUR).version.number == 1
    with pytest.raises(NoInstanceError, match="was not taken.*fingerprint"):
        subscriber.wait(2, timeout_s=0.1)
    store.publish(payloads(3))
    subscriber.wait(3, timeout_s=TIMEOUT_S)
    assert subscriber.failure is None


def test_whatever_a_store_brings_about_is_counted_and_the_next_version_is_served(store, rotation, subscriber):
    original, asked = store.get, []

    def get(key, version=None):
        asked.append(version)
        if len(asked) == 1:
            raise TypeError("unsupported operand")
        return original(key, version)

    store.get = get
    store.publish(payloads(1))
    assert rotation.wait_for(lambda: isinstance(subscriber.failure, TypeError), TIMEOUT_S)
    store.publish(payloads(2))
    subscriber.wait(2, timeout_s=TIMEOUT_S)
    assert subscriber.failures == 1 and subscriber.failure is None and asked == [1, 2]


def written(directory):
    """The versions in a directory, and whatever else is there but its lock."""
    return sorted(path.name for path in directory.iterdir() if path.name != ".lock")


def test_a_directory_is_the_same_by_another_name(store, rotation, subscriber, versions, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "linked"
    other.symlink_to(subscriber.directory)
    with pytest.raises(DirectoryTakenError):
        Subscriber(store, "checker/weights", rotation, template=versions.template, directory=other).start()


def test_a_directory_has_one_subscriber_and_the_next_one_when_that_has_ended(store, rotation, subscriber, versions, tmp_path):
    options = dict(template=versions.template, directory=subscriber.directory, retry_s=0.05)
    store.publish(payloads(1))
    subscriber.wait(1, timeout_s=TIMEOUT_S)
    with pytest.raises(DirectoryTakenError, match=f"process {os.getpid()}"):
        Subscriber(store, "checker/weights", rotation, **options).start()
    assert written(subscriber.directory) == [versions.version(1).label]  # nothing of it was removed
    subscriber.close()
    with Subscriber(store, "solver/weights", rotation, **options) as next_one:
        store.publish(payloads(2))
        next_one.wait(2, timeout_s=TIMEOUT_S)


def test_what_a_killed_subscriber_had_begun_to_write_is_removed(store, rotation, versions, tmp_path):
    directory = tmp_path / "left"
    (directory / ".writing-abc").mkdir(parents=True)
    (directory / ".writing-abc" / "model.safetensors").write_bytes(b"half")
    with Subscriber(store, "solver/weights", rotation, template=versions.template, directory=directory) as subscriber:
        store.publish(payloads(1))
        subscriber.wait(1, timeout_s=TIMEOUT_S)
        assert written(directory) == [versions.version(1).label]


def test_old_versions_are_removed_from_the_directory(store, subscriber, versions):
    for number in range(1, 6):
        store.publish(payloads(number))
        subscriber.wait(number, timeout_s=TIMEOUT_S)
    there = lambda: sorted(Version.of_label(name).number for name in written(subscriber.directory))
    assert subscriber.rotation.wait_for(lambda: there() == [4, 5], TIMEOUT_S), there()


# Files


def test_a_directory_has_what_is_published_what_is_frozen_and_what_goes_beside(versions):
    publication = versions[1]
    assert sorted(file.name for file in publication.directory.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    found, begun = tensors_of(publication.directory), tensors_of(versions.template)
    assert found.keys() == {*SHAPES, *FROZEN}
    assert all(found[name] == begun[name] for name in FROZEN)
    assert all(found[name] == bytes(publication.memory(publication.tensors[name])) for name in SHAPES)


def test_the_stock_reader_reads_what_is_written(versions):
    safetensors = pytest.importorskip("safetensors.numpy")
    read = safetensors.load_file(versions[1].directory / "model.safetensors")
    assert {name: value.tobytes() for name, value in read.items()} == tensors_of(versions[1].directory)


def test_a_directory_that_is_there_is_taken_and_one_of_other_weights_is_refused(versions, tmp_path):
    publication, where = read_publication(payloads(1)), tmp_path / "there"
    made = write_checkpoint(publication, Template(versions.template), where)
    before = (where / "model.safetensors").stat().st_mtime_ns
    assert write_checkpoint(publication, Template(versions.template), where) == made
    assert (where / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(CorruptError, match="remove it"):
        write_checkpoint(read_publication(payloads(2)), Template(versions.template), where)


def test_nothing_is_there_when_writing_fails(versions, tmp_path, monkeypatch):
    publication, where = read_publication(payloads(1)), tmp_path / "there"
    monkeypatch.setattr(shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(publication, Template(versions.template), where)
    assert not where.exists() and [path.name for path in tmp_path.iterdir() if path.name.startswith(".writing")] == []


def test_what_the_servers_would_not_load_is_refused(tmp_path):
    publication = read_publication(payloads(1))
    shapes = dict(list(SHAPES.items())[1:])
    with pytest.raises(InputError, match="no tensor 'embed.weight'"):
        write_checkpoint(publication, Template(template(tmp_path / "fewer", shapes)), tmp_path / "out")
    with pytest.raises(InputError, match=r"has the shape \[8, 4\]"):
        write_checkpoint(publication, Template(template(tmp_path / "other", SHAPES | {"embed.weight": (8, 4)})), tmp_path / "out")
    with pytest.raises(InputError, match="config.json"):
        Template(tmp_path)


HEADERS = {
    "a length of many bytes": lambda content: (1 << 62).to_bytes(8, "little") + content[8:],
    "no json": lambda content: content[:8] + b"x" + content[9:],
    "offsets beyond the end": lambda content: content[:-1],
    "nothing": lambda content: b"",
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_template_that_is_damaged_is_refused(case, tmp_path):
    made = template(tmp_path / "template")
    file = made / "model-00001-of-00002.safetensors"
    file.write_bytes(HEADERS[case](file.read_bytes()))
    with pytest.raises(CorruptError, match="model-00001"):
        Template(made)


def test_an_instance_is_not_changed_by_two_at_once(rotation, versions, standins):
    standins[0].load_s = 0.3
    started = threading.Event()
    original = standins[0].load
    standins[0].load = lambda *arguments: (started.set(), original(*arguments))
    thread = threading.Thread(target=rotation.bring, args=("vllm", versions[1]))
    thread.start()
    assert started.wait(10)
    with pytest.raises(RuntimeError, match="being changed"):
        rotation.bring("vllm", versions[2])
    thread.join()
    assert rotation.held("vllm").version.number == 1


def test_servers_need_files_and_say_so(store, rotation, versions, tmp_path):
    with pytest.raises(InputError, match="go together"):
        Subscriber(store, "solver/weights", rotation, template=versions.template)
    store.publish(payloads(1))
    with Subscriber(store, "solver/weights", rotation, retry_s=0.05) as without_files:
        assert rotation.wait_for(lambda: isinstance(without_files.failure, InputError), TIMEOUT_S)
        with pytest.raises(NoInstanceError, match="write_checkpoint"):
            without_files.wait(1, timeout_s=0.05)


def test_no_more_instances_load_at_once_than_is_said(store, versions, tmp_path):
    standins = [Vllm(versions.template, load_s=0.05) for _ in range(4)]
    loading, most, lock = [], [], threading.Lock()

    def counted(load):
        def counting(*arguments):
            with lock:
                loading.append(1)
                most.append(len(loading))
            load(*arguments)
            with lock:
                loading.pop()

        return counting

    for standin in standins:
        standin.load = counted(standin.load)
    rotation = Rotation([ServerInstance(VllmServer(standin.url, load_timeout_s=20)) for standin in standins])
    options = dict(template=versions.template, directory=tmp_path / "served", concurrency=2)
    with Subscriber(store, "solver/weights", rotation, **options) as subscriber:
        store.publish(payloads(1))
        subscriber.wait(1, timeout_s=TIMEOUT_S)
    assert max(most) == 2
    [standin.stop() for standin in standins]
