"""Weights to inference servers: a swap is whole, or the instance is out. Tried on stand-ins whose tokens tell which weights made them."""

import concurrent.futures
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from forebay import InputError
from forebay.inference import (
    InstanceError,
    InstanceRefusedError,
    InstanceTimeoutError,
    InstanceUnreachableError,
    NoInstanceError,
    Rollouts,
    Rotation,
    ServerInstance,
    SglangServer,
    VllmServer,
    WrongWeightsError,
)
from instances import FOUR, LABEL, LOAD, PAUSE, RESUME, check, engine, refuse_other_tokens, start, versions  # noqa: F401
from standins import PROMPT_OF_CHAT


def test_an_instance_is_brought_to_a_version_and_its_answers_are_stamped(engine, start, versions):
    standins, instances = start(2)
    rotation = Rotation(instances)
    rollouts = Rollouts(rotation)
    for number in (3, 4):
        assert set(rotation.update(versions[number]).values()) == {None}
        made = rollouts.generate([1, 2, 3], sampling=FOUR)
        check(made, versions)
        assert made.version == versions.version(number) and made.prompt == (1, 2, 3) and made.finish == "length"
        assert made.evidence == "checksum" and made.is_of_one_version
    refuse_other_tokens(standins, versions)
    assert all(standin.mode is None for standin in standins)


def test_a_chat_gives_the_tokens_of_prompt_and_answer_with_their_version(engine, start, versions):
    _, instances = start()
    rotation = Rotation(instances)
    rotation.update(versions[1])
    made = Rollouts(rotation).chat([{"role": "user", "content": "2+2"}], sampling=FOUR, tools=[])
    check(made, versions)
    assert list(made.prompt) == PROMPT_OF_CHAT and made.message["content"].count("t") == 4


def test_calls_come_in_the_order_that_leaves_nothing_to_believe(engine, start, versions):
    # The label is of no version before the first byte is loaded, and the version's only when the checksum was compared.
    (standin,), instances = start()
    Rotation(instances).update(versions[1])
    calls = [(path, said) for path, said in standin.calls if path not in ("/reset_prefix_cache",)]
    paths = [path for path, _ in calls]
    checker = {"vllm": "/weight_checker", "sglang": "/weights_checker"}[engine]
    load = [LOAD[engine], checker]
    assert paths == [PAUSE[engine], "/update_weight_version", *load, *load, "/update_weight_version", LABEL[engine], RESUME[engine]]
    labels = [said["new_version"] for path, said in calls if path == "/update_weight_version"]
    assert labels == [f"loading-{versions.version(1).label}", versions.version(1).label]


def test_the_first_instance_of_a_version_loads_twice_and_the_others_once(engine, start, versions):
    standins, instances = start(3)
    Rotation(instances).update(versions[1], concurrency=1)
    assert [standin.loads for standin in standins] == [2, 1, 1]


NO_LABEL = dict.fromkeys(("vllm", "sglang"), "/update_weight_version")
FAULTS = {
    "pause refused": (PAUSE, 500, InstanceRefusedError, True),
    "dies at the pause": (PAUSE, "die", InstanceUnreachableError, True),
    "no label refused": (NO_LABEL, 500, InstanceRefusedError, True),
    "dies at no label": (NO_LABEL, "die", InstanceUnreachableError, True),
    "load refused": (LOAD, 500, InstanceRefusedError, False),
    "dies in the load": (LOAD, "die", InstanceUnreachableError, False),
    "half loaded and says so": (LOAD, "half and 500", InstanceRefusedError, False),
    "says another version": (LABEL, "mislabel", WrongWeightsError, False),
    "resume refused": (RESUME, 500, InstanceRefusedError, False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_update_leaves_the_old_version_or_takes_the_instance_out_and_no_other(engine, start, versions, fault):
    paths, how, error_type, is_kept = FAULTS[fault]
    standins, instances = start(2)
    rotation = Rotation(instances, max_lag=1)
    rotation.update(versions[1])
    standins[0].fail(paths[engine], how)
    told = rotation.update(versions[2])
    error = told[instances[0].name]
    assert isinstance(error, error_type) and told[instances[1].name] is None
    assert error.instance == instances[0].name and error.version == versions.version(2).label and error.is_untouched == is_kept
    if how != "mislabel":
        assert error.endpoint.endswith(paths[engine]) and error.endpoint in str(error)
    first, second = rotation.states()
    assert second.held.version == versions.version(2)
    assert (first.held.version if first.held else None) == (versions.version(1) if is_kept else None)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(Rollouts(rotation).generate, [1], sampling=FOUR) for _ in range(16)]
        for made in (future.result() for future in asked):
            check(made, versions)
            assert made.version.number == 2 or (is_kept and made.version.number == 1)
    assert rotation.update(versions[2]) == {instance.name: None for instance in instances}  # the same call again
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)
    refuse_other_tokens(standins, versions)


def test_a_load_that_silently_does_half_is_found_on_the_first_instance(engine, start, versions):
    standins, instances = start(1)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    standins[0].fail(LOAD[engine], "half")
    assert rotation.update(versions[2]) == {instances[0].name: None}
    assert standins[0].loads == 2 + 3  # half, whole, whole
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)
    refuse_other_tokens(standins, versions)


def test_a_load_that_silently_does_half_is_found_by_comparison_and_done_anew(engine, start, versions):
    standins, instances = start(2)
    rotation = Rotation(instances)
    rotation.bring(instances[0].name, versions[1])
    standins[1].fail(LOAD[engine], "half")
    rotation.bring(instances[1].name, versions[1])
    assert standins[1].loads == 2
    standins[1].fail(LOAD[engine], "half", "half", "half")
    rotation.bring(instances[0].name, versions[2])
    with pytest.raises(WrongWeightsError, match="other checksums than on other instances") as caught:
        rotation.bring(instances[1].name, versions[2])
    assert caught.value.instance == instances[1].name
    assert rotation.held(instances[1].name) is None and standins[1].mode is not None
    assert standins[1].weight_version.startswith("loading-")  # whoever else asks it hears that it has no version


def test_a_server_that_says_it_loaded_and_did_not_is_found(engine, start, versions):
    (standin,), instances = start()
    rotation = Rotation(instances)
    rotation.update(versions[1])
    standin.fail(LOAD[engine], "stale")
    told = rotation.update(versions[2])[instances[0].name]
    assert isinstance(told, WrongWeightsError) and f"checksum of {versions.version(1).label}" in str(told)
    with pytest.raises(NoInstanceError, match=f"aiming at {versions.version(2).label}.*is out"):
        Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=0.05)


def test_a_server_without_checksums_is_refused_unless_its_word_is_taken(engine, start, versions):
    if engine == "vllm":
        pytest.skip("without its developer mode vLLM has no routes for weights at all")
    _, instances = start(server={"dev_mode": False})
    told = Rotation(instances).update(versions[1])[instances[0].name]
    assert isinstance(told, WrongWeightsError) and "evidence='label'" in str(told)
    _, instances = start(server={"dev_mode": False}, evidence="label")
    rotation = Rotation(instances)
    assert rotation.update(versions[1]) == {instances[0].name: None}
    made = Rollouts(rotation).generate([1], sampling=FOUR)
    check(made, versions)
    assert made.evidence == "label"


def test_a_slow_call_ends_at_its_time_limit_and_names_it(engine, start, versions):
    (standin,), (instance,) = start()
    instance.engine.control_timeout_s = instance.engine.load_timeout_s = 0.2
    standin.fail(LOAD[engine], "slow")
    began = time.monotonic()
    told = Rotation([instance]).update(versions[1])[instance.name]
    assert isinstance(told, InstanceTimeoutError) and isinstance(told, TimeoutError) and "within 0.2 s" in str(told)
    assert time.monotonic() - began < 5


def test_an_instance_that_holds_a_version_already_is_not_loaded_again(engine, start, versions):
    (standin,), instances = start()
    rotation = Rotation(instances)
    rotation.update(versions[1])
    standin.fail(RESUME[engine], "die")  # the answer to the last call is lost
    rotation.update(versions[2])
    loads = standin.loads
    assert rotation.update(versions[2]) == {instances[0].name: None} and standin.loads == loads
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


def test_an_instance_that_lags_is_not_asked_for_what_it_does_not_have(engine, start, versions):
    standins, instances = start(2)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    standins[0].fail(LOAD[engine], 500)
    rotation.update(versions[2])
    before = len(standins[0].made)
    for _ in range(6):
        assert Rollouts(rotation).generate([1], sampling=FOUR).instance == instances[1].name
    assert len(standins[0].made) == before
    rotation.aim_at(versions.version(3))  # nobody has it
    with pytest.raises(NoInstanceError, match=versions.version(3).label) as caught:
        Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=0.05)
    assert isinstance(caught.value, TimeoutError)


def test_a_version_of_the_same_number_and_other_weights_is_another_version(start, versions):
    _, instances = start()
    rotation = Rotation(instances, max_lag=3)
    rotation.update(versions[1])
    rotation.aim_at(type(versions.version(1))(1, "0" * 32))
    with pytest.raises(NoInstanceError):
        Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=0.05)


def test_addresses_and_options_that_are_none_are_refused():
    cases = [
        lambda: VllmServer("gpu-1:8000"), lambda: SglangServer("unix:///tmp/x"), lambda: Rotation([]),
        lambda: ServerInstance(VllmServer("http://a"), in_flight="drop"), lambda: ServerInstance(VllmServer("http://a"), evidence="none"),
        lambda: Rotation([ServerInstance(VllmServer("http://a"))] * 2),
        lambda: Rollouts(Rotation([ServerInstance(VllmServer("http://a"))])).generate([]),
        lambda: Rollouts(Rotation([ServerInstance(VllmServer("http://a"))])).generate([1], on_abort="wait"),
        lambda: Rollouts(Rotation([ServerInstance(VllmServer("http://a"))])).chat([], on_abort="continue"),
        lambda: Rollouts(Rotation([ServerInstance(VllmServer("http://a"))]), attempts=0),
    ]  # fmt: skip
    for case in cases:
        with pytest.raises(InputError):
            case()


class Broken:
    """An instance of somebody's own that raises what it likes."""

    name = "broken"

    def bring(self, publication, before, close, agreement):
        raise MemoryError("no room")


def test_an_instance_that_raises_anything_is_out_and_the_others_serve(engine, start, versions):
    _, instances = start()
    rotation = Rotation([Broken(), *instances])
    told = rotation.update(versions[1])
    assert type(told["broken"]) is InstanceError and "MemoryError: no room" in str(told["broken"]) and told[instances[0].name] is None
    assert rotation.held("broken") is None
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


def test_a_publication_that_is_in_no_directory_changes_nothing(engine, start, versions):
    _, instances = start()
    rotation = Rotation(instances)
    rotation.update(versions[1])
    with pytest.raises(InputError, match="write_checkpoint"):
        rotation.bring(instances[0].name, dataclasses.replace(versions[2], directory=None))
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


def test_a_publisher_that_is_killed_in_the_middle_leaves_nothing_to_believe(engine, start, versions):
    (standin,), (instance,) = start()
    Rotation([instance]).update(versions[1])
    loading, may_end, original = threading.Event(), threading.Event(), standin.load_next
    standin.load_next = lambda *arguments: (loading.set(), may_end.wait(60), original(*arguments))
    program = f"""
        from forebay.inference import Rotation, ServerInstance, {type(instance.engine).__name__}
        from publishing import SHAPES, Versions
        class There(Versions):
            def __init__(self, root):
                self.root, self.shapes, self.made = root, SHAPES, {{}}
                self.template = root / "template"
        import pathlib
        engine = {type(instance.engine).__name__}({standin.url!r})
        Rotation([ServerInstance(engine)]).update(There(pathlib.Path({str(versions.root)!r}))[2])
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    publisher = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], env=environment)
    assert loading.wait(60)
    publisher.kill()
    assert publisher.wait() == -signal.SIGKILL
    assert instance.label() == f"loading-{versions.version(2).label}" and standin.mode is not None
    may_end.set()  # the server goes on with what it was told, and with what it is told next after that
    rotation = Rotation([instance])  # another process, that knows of nothing
    with pytest.raises(NoInstanceError):
        Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=0.05)
    assert rotation.update(versions[3]) == {instance.name: None}
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)
    refuse_other_tokens([standin], versions)
