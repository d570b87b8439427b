"""What one request fails at: whose fault that is, who goes out for it, and who comes back."""

import pytest

from forebay.inference import (
    Answer,
    AnswerError,
    Held,
    InstanceError,
    InstanceRefusedError,
    InstanceTimeoutError,
    InstanceUnreachableError,
    Publication,
    ReportedSpan,
    RequestError,
    Rollouts,
    Rotation,
    Version,
)
from instances import FOUR, check, engine, failing_at, start, versions  # noqa: F401
from publishing import Versions


@pytest.mark.parametrize("how", ["answer", 500])
def test_a_request_that_two_instances_fail_at_alike_is_refused_and_takes_nobody_out(engine, start, versions, how):
    standins, instances = start(3)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    before = [standin.loads for standin in standins]
    for standin in standins:
        failing_at(standin, engine, 99, how)
    for _ in range(5):
        with pytest.raises(RequestError, match="failed at the same request") as caught:
            Rollouts(rotation).generate([1, 99], sampling=FOUR)
        first, second = caught.value.first, caught.value.__cause__
        assert type(first) is type(second) and {first.instance, second.instance} <= {instance.name for instance in instances}
        assert isinstance(second, InstanceRefusedError) and first.instance != second.instance
        assert isinstance(second, AnswerError) == (how == "answer")
        assert all(state.is_in_rotation and state.requests == 0 for state in rotation.states())
        check(Rollouts(rotation).generate([1], sampling=FOUR), versions)
        check(Rollouts(rotation).generate([1], sampling=FOUR), versions)
    assert [standin.loads for standin in standins] == before


def test_instances_that_fail_at_several_requests_in_a_row_are_out_all_the_same(engine, start, versions):
    standins, instances = start(3)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    for standin in standins[:2]:
        failing_at(standin, engine, 1, "answer")
    for _ in range(3):
        with pytest.raises(RequestError):
            Rollouts(rotation).generate([1], sampling=FOUR)
    for _ in range(4):
        made = Rollouts(rotation).generate([1], sampling=FOUR)
        assert made.instance == instances[2].name
    assert [state.is_in_rotation for state in rotation.states()] == [False, False, True]
    assert all(isinstance(state.error, AnswerError) for state in rotation.states()[:2])


def test_instances_that_are_all_broken_alike_go_out_and_no_request_is_blamed_for_ever(engine, start, versions):
    standins, instances = start(2)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    well = [standin.route for standin in standins]
    for standin in standins:
        failing_at(standin, engine, 1, 500)
    for _ in range(3):
        with pytest.raises(RequestError):
            Rollouts(rotation).generate([1], sampling=FOUR)
    for _ in range(2):  # also when they were brought anew and are no better
        with pytest.raises(InstanceRefusedError) as caught:
            Rollouts(rotation).generate([1], sampling=FOUR)
        assert caught.value.status == 500
        assert [(state.is_in_rotation, state.requests) for state in rotation.states()] == [(False, 0)] * 2
        assert all(isinstance(state.error, InstanceRefusedError) for state in rotation.states())
        rotation.update(versions[1])
    for standin, route in zip(standins, well):
        standin.route = route
    check(Rollouts(rotation).generate([1], sampling=FOUR), versions)


class Retiring:
    """An instance that counts what it was told to let go of."""

    name = "retiring"

    def __init__(self):
        self.retired = []

    def bring(self, publication, before, close, agreement):
        return Held(publication.version, "listing", adapter=publication.version.label)

    def retire(self, held):
        self.retired.append(held.version.number)


def test_an_instance_that_is_doubted_twice_lets_go_of_all_that_it_had(tmp_path):
    versions, instance, failed = Versions(tmp_path), Retiring(), []
    rotation = Rotation([instance])
    for number in (1, 2):
        rotation.update(versions[number])
        with rotation.lease(1) as lease:
            lease.fail(InstanceError("as the test wants it", instance=instance.name), is_doubtful=True)
        failed.append(lease)
    assert instance.retired == []
    for number, lease in enumerate(failed, 1):
        lease.settle()
        assert rotation.wait_for(lambda: not rotation.states()[0].is_retiring, 10)
        assert instance.retired == list(range(1, number + 1))


def test_an_instance_that_was_put_out_for_a_request_and_is_not_well_stays_out(engine, start, versions):
    standins, instances = start(2)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    for standin in standins:
        failing_at(standin, engine, 99, "answer")
    original = standins[1].route

    def stopping(*arguments):
        standins[0].weight_version = "default"  # the first was started anew meanwhile
        return original(*arguments)

    standins[1].route = stopping
    with pytest.raises(RequestError):
        Rollouts(rotation).generate([1, 99], sampling=FOUR)
    assert [state.is_in_rotation for state in rotation.states()] == [False, True]


@pytest.mark.parametrize("status", [502, 503])
def test_servers_that_are_overloaded_are_out_and_the_request_is_not_to_blame(engine, start, versions, status):
    standins, instances = start(3)
    rotation = Rotation(instances)
    rotation.update(versions[1])
    for standin in standins[:2]:
        failing_at(standin, engine, 99, status)
    assert Rollouts(rotation).generate([1, 99], sampling=FOUR).instance == instances[2].name


class Hanging:
    """An instance that answers nothing in time while it hangs. It may still say what it has."""

    def __init__(self, name, hangs, *, says_label=False):
        self.name, self.hangs, self.says_label, self.calls, self.now = name, hangs, says_label, 0, None

    def bring(self, publication, before, close, agreement):
        self.now = publication.version
        return Held(publication.version, "label")

    def answer(self, request, held):
        self.calls += 1
        if self.hangs:
            raise InstanceTimeoutError("no answer", instance=self.name)
        return Answer(request.tokens, (1,), (-0.1,), "stop", (ReportedSpan(0, 1, held.version.label),))

    def label(self):
        if self.hangs and not self.says_label:
            raise InstanceUnreachableError("no label", instance=self.name)
        return self.now.label

    def retire(self, held):
        pass


def of_version(number, letter="a"):
    return Publication(Version(number, letter * 32), {}, {})


def outcomes(rollouts, requests):
    found = []
    for _ in range(requests):
        try:
            found.append(rollouts.generate([1, 2], timeout_s=10).instance)
        except InstanceTimeoutError:
            found.append(None)
    return found


def test_an_instance_that_hangs_does_not_take_the_requests_that_another_would_answer():
    hung, well = Hanging("a", True), Hanging("b", False)
    rotation = Rotation([hung, well])
    rotation.update(of_version(1))
    assert outcomes(Rollouts(rotation), 10) == [None] + ["b"] * 9 and hung.calls == 1
    hung.hangs = False
    with rotation.lease(0):  # it is asked again when the other has as much to do, and one answer makes it well
        assert Rollouts(rotation).generate([1]).instance == "a"
    assert outcomes(Rollouts(rotation), 2) == ["a", "a"]


@pytest.mark.parametrize("says_label", [False, True])
def test_an_instance_that_times_out_in_a_row_is_out_unless_it_still_says_what_it_has(says_label):
    instance, asked = Hanging("a", True, says_label=says_label), []
    rotation = Rotation([instance])
    rotation.update(of_version(1))
    label = instance.label
    instance.label = lambda: asked.append(None) or rotation.ring() or label()
    assert outcomes(Rollouts(rotation), 3) == [None] * 3
    assert rotation.wait_for(lambda: bool(asked), 10)
    if not says_label:
        assert rotation.wait_for(lambda: rotation.states()[0].held is None, 10)
        assert isinstance(rotation.states()[0].error, InstanceTimeoutError)
    else:
        assert rotation.states()[0].is_in_rotation


BRANCHES = {
    "behind": ([8, 9], 8, True),
    "too far behind": ([7, 8, 9], 7, False),
    "of a branch that was rewound": ([8, (7, "b"), (9, "c")], 8, False),
    "of the number that came again": ([8, (8, "b"), (9, "c")], 8, False),
    "rewound and not above": ([8, (7, "b")], 8, False),
    "of before both branches": ([7, 8, (8, "b")], 7, True),
    "never aimed at": ([9], 8, False),
}


@pytest.mark.parametrize("case", BRANCHES)
def test_max_lag_allows_older_versions_of_the_same_branch_alone(case):
    aims, held, is_allowed = BRANCHES[case]
    instance = Hanging("a", False)
    rotation = Rotation([instance], max_lag=1)
    rotation.bring("a", of_version(held))
    for aim in aims:
        rotation.aim_at(of_version(*(aim if isinstance(aim, tuple) else (aim,))).version)
    assert rotation.states()[0].is_in_rotation == is_allowed
