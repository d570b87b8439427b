"""Responses and the versions on them: with updates under way, of servers that were started anew, and of answers that are wrong."""

import concurrent.futures
import threading

import pytest

from forebay.inference import (
    Answer,
    Held,
    InstanceError,
    InstanceRefusedError,
    InstanceTimeoutError,
    NoInstanceError,
    Rollouts,
    Rotation,
    StampError,
    WrongWeightsError,
)
from instances import FOUR, GENERATE, LOAD, LONG, check, engine, refuse_other_tokens, start, versions, when_it_makes_tokens  # noqa: F401
from publishing import Versions
from standins import tensors_of


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
    try:
        for number in range(2, 7):
            standins[number % 3].fail(LOAD[engine], "half")
            assert set(rotation.update(versions[number]).values()) == {None}
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert {answer.version.number for answer in made} >= {2, 6}
    for answer in made:
        check(answer, versions)
        assert answer.is_of_one_version
    refuse_other_tokens(standins, versions)


def test_a_server_that_somebody_else_set_back_is_found_though_it_knows_the_version(engine, start, versions):
    (standin,), instances = start()
    rotation = Rotation(instances)
    for number in (1, 2):
        rotation.update(versions[number])
    standin.weight_version, standin.tensors = versions.version(1).label, tensors_of(versions[1].directory)
    with pytest.raises(WrongWeightsError, match=f"answered with '{versions.version(1).label}'"):
        Rollouts(rotation, attempts=1).generate([1], sampling=FOUR)
    assert rotation.held(instances[0].name) is None
    assert rotation.update(versions[2]) == {instances[0].name: None}
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


class Changing:
    """An instance without labels on its answers, that is brought to another version and back while it answers."""

    name = "changing"

    def __init__(self, versions):
        self.versions, self.rotation, self.now = versions, None, None

    def bring(self, publication, before, close, agreement):
        self.now = publication.version
        return Held(publication.version, "label")

    def answer(self, request, held):
        for number in (2, 1):
            self.rotation.bring(self.name, self.versions[number])
        return Answer(request.tokens, (5,), (-0.5,), "length", None)

    def label(self):
        return self.now.label

    def retire(self, held):
        pass


def test_an_answer_is_not_believed_because_the_label_is_the_same_before_and_after(tmp_path):
    versions = Versions(tmp_path)
    instance = Changing(versions)
    rotation = instance.rotation = Rotation([instance])
    rotation.update(versions[1])
    with pytest.raises(StampError, match="was changed while it answered"):
        Rollouts(rotation, attempts=2).generate([1], sampling=FOUR)


WRONG_ANSWERS = {
    "fewer log-probabilities": lambda choice: choice["logprobs"]["content"].pop(),
    "no number": lambda choice: choice["logprobs"]["content"][0].update(logprob=float("nan")),
    "no tokens": lambda choice: choice.pop("token_ids"),
    "a gap": lambda choice: choice["weight_versions"][0].update(start=1),
    "fewer tokens than spans": lambda choice: choice["weight_versions"][0].update(end=9),
    "a span without a version": lambda choice: choice["weight_versions"][0].pop("version"),
    "spans that are none": lambda choice: choice.update(weight_versions=7),
}


@pytest.mark.parametrize("case", WRONG_ANSWERS)
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_an_answer_that_is_not_as_documented_is_not_used(start, versions, case):
    (standin, other), instances = start(2)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    original = standin.choice

    def wrong(*arguments):
        choice = original(*arguments)
        WRONG_ANSWERS[case](choice)
        return choice

    standin.choice = wrong
    for _ in range(2):
        made = Rollouts(rotation).generate([1], sampling=FOUR)
        assert made.instance == instances[1].name
        check(made, versions)
    assert isinstance(rotation.states()[0].error, InstanceRefusedError)
