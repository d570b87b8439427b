"""Adapters to inference servers: loaded beside the one before, under a name that is the version's."""

import concurrent.futures
import json
import threading

import pytest

from forebay.inference import (
    InstanceRefusedError,
    NoInstanceError,
    RequestError,
    Rollouts,
    Rotation,
    Sampling,
    ServerInstance,
)
from instances import ENGINES, FOUR, GENERATE, LONG, engine, when_it_makes_tokens  # noqa: F401
from publishing import PEFT, Versions, template
from standins import token_of

LOAD = {"vllm": "/v1/load_lora_adapter", "sglang": "/load_lora_adapter"}


@pytest.fixture
def versions(tmp_path):
    return Versions(tmp_path / "adapters", PEFT)


@pytest.fixture
def served(engine, tmp_path):
    standin_type, server_type = ENGINES[engine]
    standin = standin_type(template(tmp_path / "base"), token_s=0.005)
    yield standin, ServerInstance(server_type(standin.url, name="one", control_timeout_s=5, load_timeout_s=5), adapter="solver")
    standin.stop()


def check(made, versions):
    (span,) = made.spans
    assert set(made.tokens) == {token_of(versions[span.version.number].directory)}
    assert made.stamp == {"policy_version": span.version.number, "weights": span.version.fingerprint}


def test_an_adapter_is_written_as_peft_reads_it(versions):
    directory = versions[7].directory
    assert sorted(file.name for file in directory.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    content = (directory / "adapter_model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert set(header) == {"__metadata__", *(f"base_model.model.{name}" for name in PEFT)}
    assert header["__metadata__"] == {"format": "pt", "policy_version": "7", "fingerprint": versions.version(7).fingerprint}


def test_what_is_under_way_ends_with_its_adapter_while_the_next_one_serves(engine, served, versions):
    # PL-B15: what agents share stays as it is; only the adapter is exchanged.
    standin, instance = served
    rotation = Rotation([instance])
    rotation.update(versions[1])
    base = dict(standin.tensors)
    began = when_it_makes_tokens(standin)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(Rollouts(rotation).generate, [1], sampling=LONG)
        assert began.wait(10)
        assert rotation.update(versions[2]) == {"one": None}
        made = Rollouts(rotation).generate([1], sampling=FOUR)
        assert made.version.number == 2 and not asked.done()
        assert len(standin.adapters) == 2  # the old one is still used
        check(made, versions)
        check(asked.result(), versions)
    assert asked.result().version.number == 1 and len(asked.result().tokens) == LONG.max_tokens
    assert rotation.wait_for(lambda: not rotation.states()[0].is_retiring, 10)
    assert list(standin.adapters) == [f"solver-{versions.version(2).label}"]
    assert standin.tensors == base and not {"/pause", "/pause_generation"} & set(standin.paths())


def test_an_adapter_that_cannot_be_loaded_leaves_the_one_before_in_service(engine, served, versions):
    standin, instance = served
    rotation = Rotation([instance], max_lag=1)
    rotation.update(versions[1])
    standin.fail(LOAD[engine], 500)
    error = rotation.update(versions[2])["one"]
    assert isinstance(error, InstanceRefusedError) and error.is_untouched and error.version == versions.version(2).label
    made = Rollouts(rotation).generate([1], sampling=FOUR)
    check(made, versions)
    assert made.version.number == 1
    assert rotation.update(versions[2]) == {"one": None}
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


def test_a_load_whose_answer_was_lost_is_safe_to_repeat(engine, served, versions):
    standin, instance = served
    rotation = Rotation([instance])
    name = f"solver-{versions.version(1).label}"
    standin.adapters[name] = ("somewhere/else", {"other": b"weights"})  # of the same name, and of other files
    assert rotation.update(versions[1]) == {"one": None}
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)
    assert standin.adapters[name][0] == str(versions[1].directory)


def test_a_server_that_lost_its_adapters_is_taken_out_until_they_are_loaded_anew(engine, served, versions):
    standin, instance = served
    rotation = Rotation([instance])
    rotation.update(versions[1])
    standin.adapters.clear()
    with pytest.raises(NoInstanceError, match="is out"):
        Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=0.2)
    assert rotation.update(versions[1]) == {"one": None}
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


def test_an_answer_of_another_adapter_is_refused(served, versions, engine):
    standin, instance = served
    if engine == "sglang":
        pytest.skip("SGLang's answers do not name the adapter")
    rotation = Rotation([instance])
    rotation.update(versions[1])
    original = standin.on_post_inference_v1_generate

    def of_the_base(query, body, how):
        status, answer = original(query, body, how)
        return status, {**answer, "model": "base"}

    standin.on_post_inference_v1_generate = of_the_base
    with pytest.raises(InstanceRefusedError, match="'base' answered"):
        Rollouts(rotation, attempts=1).generate([1], sampling=Sampling(max_tokens=1))


def test_whoever_has_an_answer_does_not_wait_for_the_old_adapter_to_be_unloaded(engine, served, versions):
    standin, instance = served
    rotation = Rotation([instance])
    rotation.update(versions[1])
    began, may_unload = when_it_makes_tokens(standin), threading.Event()
    path = {"vllm": "/v1/unload_lora_adapter", "sglang": "/unload_lora_adapter"}[engine]
    original = standin.route

    def slow(verb, called, query, body, how):
        if called == path:
            assert may_unload.wait(4)  # less than the time of a call
        return original(verb, called, query, body, how)

    standin.route = slow
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(Rollouts(rotation).generate, [1], sampling=LONG)
        assert began.wait(10)
        assert rotation.update(versions[2]) == {"one": None}
        check(asked.result(), versions)
        assert len(standin.adapters) == 2 and not may_unload.is_set() and rotation.states()[0].is_retiring
        may_unload.set()
    assert rotation.wait_for(lambda: not rotation.states()[0].is_retiring, 10)
    assert list(standin.adapters) == [f"solver-{versions.version(2).label}"]


def test_an_adapter_stays_loaded_where_the_request_was_to_blame(engine, served, versions, tmp_path):
    standin_type, server_type = ENGINES[engine]
    other = standin_type(template(tmp_path / "other"))
    rotation = Rotation([served[1], ServerInstance(server_type(other.url, name="two"), adapter="solver")])
    rotation.update(versions[1])
    for standin in (served[0], other):
        standin.fail(GENERATE[engine], 500)
    with pytest.raises(RequestError):
        Rollouts(rotation).generate([1], sampling=FOUR)
    assert all(state.is_in_rotation and not state.is_retiring for state in rotation.states())
    for _ in range(3):
        check(Rollouts(rotation, attempts=1).generate([1], sampling=FOUR), versions)
    assert [len(standin.adapters) for standin in (served[0], other)] == [1, 1]
    other.stop()
