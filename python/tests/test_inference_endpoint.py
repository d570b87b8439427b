"""Calls of a server's routes end in time and say what happened, whatever the server sends."""

import contextlib
import socket
import threading
import time

import pytest

from forebay.inference import InstanceError, InstanceRefusedError, InstanceTimeoutError, InstanceUnreachableError
from forebay.inference import endpoint as module
from forebay.inference.endpoint import Endpoint

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


@contextlib.contextmanager
def answering(*pieces: bytes, pause_s: float = 0.0):
    """A server that sends these pieces to whoever connects, whatever was asked."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause_s)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", name="one")
    finally:
        listener.close()
        thread.join()


CASES = {
    "a body in drops": ([HEAD + b"Content-Length: 100\r\n\r\n", *[b"x"] * 20], 0.1, InstanceTimeoutError),
    "nothing": ([b""], 1.0, InstanceTimeoutError),
    "half a body": ([HEAD + b"Content-Length: 10\r\n\r\nabc"], 0.0, InstanceUnreachableError),
    "no http": ([b"\x00\x01garbage\r\n\r\n"], 0.0, InstanceUnreachableError),
    "a chunk of no length": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc"], 0.0, InstanceUnreachableError),
    "too much": ([HEAD + b"\r\n" + b"x" * 5000], 0.0, InstanceUnreachableError),
}


@pytest.mark.parametrize("case", CASES)
def test_a_call_ends_in_time_with_the_route_in_its_error(case, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_BYTES", 4000)
    pieces, pause_s, error_type = CASES[case]
    with answering(*pieces, pause_s=pause_s) as endpoint:
        began = time.monotonic()
        with pytest.raises(error_type, match="GET /health") as caught:
            endpoint.call("GET", "/health", timeout_s=0.5)
        assert time.monotonic() - began < 5
    assert isinstance(caught.value, InstanceError) and caught.value.instance == "one"


REASONS = {
    b'{"error": {"message": "no room", "code": 400}}': "no room",
    b'{"error": "no room"}': "no room",
    b'{"detail": "no room"}': "no room",
    b'{"success": false, "message": "no room"}': "no room",
    b"no room": "no room",
    b"": "it gives no reason",
    b"[1]": "1",
}


@pytest.mark.parametrize("body", REASONS)
def test_the_reason_is_found_in_every_shape_that_servers_have_for_it(body):
    head = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    with answering(head + body) as endpoint, pytest.raises(InstanceRefusedError, match=REASONS[body]) as caught:
        endpoint.call("POST", "/pause", timeout_s=5)
    assert caught.value.status == 400
    with answering(head + body) as endpoint:
        assert endpoint.call("POST", "/pause", timeout_s=5, allowed=(400,)).text == body.decode()


def test_parameters_go_behind_the_path_as_servers_read_them():
    seen = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection:
            seen.append(connection.recv(1 << 16))
            connection.sendall(HEAD + b"\r\n{}")

    thread = threading.Thread(target=serve)
    thread.start()
    endpoint = Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/behind/a/proxy/", name="one", key="secret")
    reply = endpoint.call("POST", "/pause", timeout_s=5, query={"mode": "keep", "clear_cache": False})
    thread.join()
    listener.close()
    assert reply.json() == {} and b"POST /behind/a/proxy/pause?mode=keep&clear_cache=false HTTP/1.1" in seen[0]
    assert b"Authorization: Bearer secret" in seen[0]
