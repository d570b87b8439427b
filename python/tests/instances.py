"""What the tests of instances share: servers of both kinds, and what has to hold of every response."""

import threading

import pytest

from forebay.inference import Sampling, ServerInstance, SglangServer, VllmServer
from publishing import Versions
from standin_sglang import Sglang
from standin_vllm import Vllm
from standins import token_of

ENGINES = {"vllm": (Vllm, VllmServer), "sglang": (Sglang, SglangServer)}
LOAD = {"vllm": "/collective_rpc", "sglang": "/update_weights_from_disk"}
PAUSE = {"vllm": "/pause", "sglang": "/pause_generation"}
RESUME = {"vllm": "/resume", "sglang": "/continue_generation"}
LABEL = {"vllm": "/weight_info", "sglang": "/model_info"}
GENERATE = {"vllm": "/inference/v1/generate", "sglang": "/generate"}
FOUR, LONG = Sampling(max_tokens=4), Sampling(max_tokens=40)


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


def when_it_makes_tokens(standin) -> threading.Event:
    """Set once a request is under way."""
    began, token = threading.Event(), standin.token

    def told(adapter):
        began.set()
        return token(adapter)

    standin.token = told
    return began


def failing_at(standin, engine, prompt, how):
    """Has a server fail at requests with this token in their prompt, each time."""
    original = standin.route

    def route(verb, path, query, body, fault):
        status, answer = original(verb, path, query, body, fault)
        if path == GENERATE[engine] and prompt in (*body.get("token_ids", ()), *body.get("input_ids", ())):
            return (200, {}) if how == "answer" else standin.error(how, "as the test wants it")
        return status, answer

    standin.route = route
