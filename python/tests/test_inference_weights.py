"""Weights to inference servers: a swap is whole, or the instance is out. Tried on stand-ins whose tokens tell which weights made them."""

import concurrent.futures
import threading
import time

import pytest

from forebay.inference import (
    InstanceError,
    InstanceRefusedError,
    InstanceTimeoutError,
    InstanceUnreachableError,
    NoInstanceError,
    Rollouts,
    Rotation,
    Sampling,
    ServerInstance,
    SglangServer,
    VllmServer,
    WrongWeightsError,
)
from publishing import Versions
from standins import PROMPT_OF_CHAT, Sglang, Vllm, token_of

ENGINES = {"vllm": (Vllm, VllmServer), "sglang": (Sglang, SglangServer)}
LOAD = {"vllm": "/collective_rpc", "sglang": "/update_weights_from_disk"}
PAUSE = {"vllm": "/pause", "sglang": "/pause_generation"}
RESUME = {"vllm": "/resume", "sglang": "/continue_generation"}
LABEL = {"vllm": "/weight_info", "sglang": "/model_info"}
GENERATE = {"vllm": "/inference/v1/generate", "sglang": "/generate"}
FOUR = Sampling(max_tokens=4)


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture
def versions(tmp_path):
    return Versions(tmp_path)


@pytest.fixture
def start(engine, versions):
    """Starts stand-ins and gives them with their instances."""
    started = []

    def start(count=1, *, engine=engine, server=None, **instance):
        standin_type, server_type = ENGINES[engine]
        made = []
        for _ in range(count):
            standin = standin_type(versions.template, **(server or {}))
            started.append(standin)
            name = f"{engine}-{len(started)}"
            made.append((standin, ServerInstance(server_type(standin.url, name=name, control_timeout_s=5, load_timeout_s=5), **instance)))
        return ([standin for standin, _ in made], [instance for _, instance in made])

    yield start
    for standin in started:
        standin.stop()


def refuse_other_tokens(standins, versions):
    """Each token that was ever made is one of a version, or of the weights that the server was started with."""
    whole = {token_of(versions.template), *(token_of(publication.directory) for publication in versions.made.values())}
    for standin in standins:
        for tokens in standin.made:
            assert set(tokens) <= whole, (standin.url, tokens)


def check(made, versions):
    """A response's stamp is what made its tokens."""
    assert made.tokens and len(made.logprobs) == len(made.tokens)
    assert made.spans[0].start == 0 and made.spans[-1].end == len(made.tokens)
    for span in made.spans:
        publication = versions[span.version.number]
        assert publication.version == span.version
        assert set(made.tokens[span.start : span.end]) <= {token_of(publication.directory)}
    assert made.stamp == {"policy_version": made.spans[0].version.number, "weights": made.spans[0].version.fingerprint}


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


FAULTS = {
    "pause refused": (PAUSE, 500, InstanceRefusedError, True),
    "dies at the pause": (PAUSE, "die", InstanceUnreachableError, True),
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


def when_it_makes_tokens(standin) -> threading.Event:
    """Set once a request is under way."""
    began, token = threading.Event(), standin.token

    def told(adapter):
        began.set()
        return token(adapter)

    standin.token = told
    return began


def asked_during_an_update(standins, instances, versions, sampling, **options):
    """A response that is under way when version 2 comes."""
    rotation = Rotation(instances)
    rotation.update(versions[1])
    rollouts = Rollouts(rotation)
    began = when_it_makes_tokens(standins[0])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(rollouts.generate, [1, 2], sampling=sampling, **options)
        assert began.wait(10)
        assert rotation.update(versions[2]) == {instances[0].name: None}
        made = asked.result(timeout=30)
    after = rollouts.generate([1], sampling=FOUR)
    assert after.version.number == 2
    check(made, versions)
    check(after, versions)
    refuse_other_tokens(standins, versions)
    return made


LONG = Sampling(max_tokens=40)


def test_what_is_under_way_finishes_with_the_weights_that_it_began_with(engine, start, versions):
    made = asked_during_an_update(*start(server={"token_s": 0.01}), versions, LONG)
    assert made.version.number == 1 and made.is_of_one_version and len(made.tokens) == 40


@pytest.mark.parametrize("labels", [True, False])
def test_what_is_aborted_is_made_anew_by_the_new_weights(engine, start, versions, labels):
    made = asked_during_an_update(*start(server={"token_s": 0.01, "labels": labels}, in_flight="abort"), versions, LONG)
    assert made.version.number == 2 and made.is_of_one_version and len(made.tokens) == 40


def test_what_is_aborted_can_be_had_as_far_as_it_came(engine, start, versions):
    made = asked_during_an_update(*start(server={"token_s": 0.01}, in_flight="abort"), versions, LONG, on_abort="return")
    assert made.finish == "abort" and made.version.number == 1 and 0 < len(made.tokens) < 40


def test_the_rest_of_what_is_aborted_can_be_made_by_the_new_weights(engine, start, versions):
    standins, instances = start(server={"token_s": 0.01}, in_flight="abort")
    made = asked_during_an_update(standins, instances, versions, LONG, on_abort="continue")
    assert [span.version.number for span in made.spans] == [1, 2] and len(made.tokens) == len(made.logprobs) == 40
    assert made.version.number == 1 and made.prompt == (1, 2)


def test_what_goes_on_with_the_new_weights_has_a_span_of_each(engine, start, versions):
    made = asked_during_an_update(*start(server={"token_s": 0.01}, in_flight="continue"), versions, LONG)
    assert [span.version.number for span in made.spans] == [1, 2] and not made.is_of_one_version and len(made.tokens) == 40


def test_an_answer_that_crosses_an_update_and_has_no_versions_is_not_used(engine, start, versions):
    made = asked_during_an_update(*start(server={"token_s": 0.01, "labels": False}, in_flight="continue"), versions, LONG)
    assert made.version.number == 2 and made.is_of_one_version


def test_requests_that_do_not_end_keep_the_old_version(engine, start, versions):
    (standin,), instances = start(server={"token_s": 0.02})
    rotation = Rotation(instances, max_lag=1, drain_timeout_s=0.1)
    rotation.update(versions[1])
    began = when_it_makes_tokens(standin)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(Rollouts(rotation).generate, [1], sampling=LONG)
        assert began.wait(10)
        told = rotation.update(versions[2])[instances[0].name]
        assert isinstance(told, InstanceTimeoutError) and told.is_untouched and "1 requests did not end" in str(told)
        check(asked.result(), versions)
    made = Rollouts(rotation).generate([1], sampling=FOUR)
    check(made, versions)
    assert made.version.number == 1


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


@pytest.mark.parametrize("labels", [True, False])
def test_a_server_that_was_started_anew_is_taken_out_and_its_answer_is_not_used(engine, start, versions, labels):
    standins, instances = start(2, server={"labels": labels})
    rotation = Rotation(instances)
    rotation.update(versions[1])
    standins[0].stop()
    standins[0].restart(versions.template)
    for _ in range(4):
        made = Rollouts(rotation).generate([1], sampling=FOUR)
        check(made, versions)
        assert made.instance == instances[1].name
    first, _ = rotation.states()
    assert first.held is None and isinstance(first.error, WrongWeightsError) and "'default'" in str(first.error)
    assert rotation.update(versions[1]) == {instance.name: None for instance in instances}


def test_a_server_that_is_gone_is_replaced_by_the_others(engine, start, versions):
    standins, instances = start(2)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    standins[0].stop()
    for _ in range(4):
        assert Rollouts(rotation).generate([1], sampling=FOUR).instance == instances[1].name
    standins[1].fail(GENERATE[engine], "die", 503)
    with pytest.raises(NoInstanceError, match="is out"):
        Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=0.1)
    standins[0].start()


def test_what_is_wrong_with_a_request_is_told_and_takes_nobody_out(engine, start, versions):
    (standin,), instances = start()
    rotation = Rotation(instances)
    rotation.update(versions[1])
    standin.fail(GENERATE[engine], 400)
    with pytest.raises(InstanceRefusedError, match="as the test wants it") as caught:
        Rollouts(rotation).generate([1], sampling=FOUR)
    assert caught.value.status == 400 and isinstance(caught.value, InstanceError)
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


def test_under_many_requests_and_updates_each_answer_is_of_the_version_it_says(engine, start, versions):
    standins, instances = start(3, server={"token_s": 0.001, "load_s": 0.02})
    rotation = Rotation(instances)
    rotation.update(versions[1])
    stop, made = threading.Event(), []

    def ask():
        while not stop.is_set():
            made.append(Rollouts(rotation).generate([1], sampling=FOUR, timeout_s=30))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    [thread.start() for thread in threads]
    for number in range(2, 7):
        standins[number % 3].fail(LOAD[engine], "half")
        assert set(rotation.update(versions[number]).values()) == {None}
    stop.set()
    [thread.join() for thread in threads]
    assert {answer.version.number for answer in made} >= {2, 6}
    for answer in made:
        check(answer, versions)
        assert answer.is_of_one_version
    refuse_other_tokens(standins, versions)
