"""Servers that speak the control and request routes of vLLM and SGLang, with faults, and with weights that show in what they say.

A stand-in really loads: it reads the files of safetensors in a directory, tensor by tensor, and the tokens that it makes are a hash of
all its tensors and of the weights that its cache was made with. So one token tells which weights made it: `token_of(directory)` is the
only one that a version makes, and weights of which parts are of two versions make another.
"""

import hashlib
import json
import pathlib
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROMPT_OF_CHAT = [101, 102]


def tensors_of(directory) -> dict[str, bytes]:
    """The tensors of a directory, as a reader of the format finds them."""
    found = {}
    for file in sorted(pathlib.Path(directory).glob("*.safetensors")):
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        for name, told in json.loads(content[8 : 8 + length]).items():
            if name != "__metadata__":
                start, end = told["data_offsets"]
                found[name] = content[8 + length + start : 8 + length + end]
    return found


def hash_of(tensors: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + hashlib.sha256(tensors[name]).digest())
    return digest.hexdigest()


def token_of(directory) -> int:
    return int(hash_of(tensors_of(directory))[:7], 16)


class Stopped(Exception):
    """The server died in the middle of a call."""


class StandIn:
    """What both servers share. Faults are a mapping of a path to how often it is to go wrong and how: a status, "die", "slow", "half",
    "stale" (it says that it loaded, and did not), "mislabel"."""

    def __init__(self, directory, *, token_s: float = 0.0, load_s: float = 0.0, dev_mode: bool = True, labels: bool = True):
        self.token_s, self.load_s, self.dev_mode, self.labels = token_s, load_s, dev_mode, labels
        self.tensors, self.weight_version = tensors_of(directory), "default"
        self.cached_with = hash_of(self.tensors)
        self.adapters: dict[str, tuple[str, dict[str, bytes]]] = {}
        self.faults: dict[str, list] = {}
        self.calls: list[tuple[str, dict]] = []
        self.made: list[tuple[int, ...]] = []  # the tokens of every answer
        self.loads = 0
        self.running = 0
        self.mode: str | None = None  # of the pause
        self.lock, self.loader = threading.Condition(), threading.Lock()
        self.port = 0
        self.start()

    # A process

    def start(self) -> "StandIn":
        standin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                split = urllib.parse.urlsplit(self.path)
                query = {name: values[-1] for name, values in urllib.parse.parse_qs(split.query).items()}
                length = int(self.headers.get("Content-Length") or 0)
                text = self.rfile.read(length)
                body = json.loads(text) if text else {}
                try:
                    status, answer = standin.handle(self.command, split.path, query, body)
                except Stopped:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(payload)
                self.close_connection = True

            do_GET = do_POST = handle_one

            def log_message(self, *arguments) -> None:
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            request_queue_size = 128

            def handle_error(self, request, client_address) -> None:
                pass  # a client that has gone, or a server that died

        self.http = Server(("127.0.0.1", self.port), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def restart(self, directory) -> None:
        """A new process on the same port, with the weights that it is started with."""
        self.tensors, self.weight_version, self.mode = tensors_of(directory), "default", None
        self.cached_with, self.adapters = hash_of(self.tensors), {}
        self.start()

    # Faults

    def fail(self, path: str, *how) -> None:
        """The next calls of a route go wrong, one after the other."""
        self.faults.setdefault(path, []).extend(how)

    def fault(self, path: str):
        with self.lock:
            left = self.faults.get(path)
            return left.pop(0) if left else None

    def handle(self, verb: str, path: str, query: dict, body: dict):
        with self.lock:
            self.calls.append((path, {**query, **body}))
        how = self.fault(path)
        if how == "die":
            raise Stopped
        if how == "slow":
            time.sleep(1.0)
            raise Stopped
        if isinstance(how, int):
            return self.error(how, "as the test wants it")
        return self.route(verb, path, query, body, how)

    def error(self, status: int, message: str):
        raise NotImplementedError

    def route(self, verb, path, query, body, how):
        raise NotImplementedError

    def paths(self) -> list[str]:
        return [path for path, _ in self.calls]

    # Weights

    def load(self, directory, how) -> None:
        """Tensor by tensor, as engines do it: who computes meanwhile computes with both. One load follows the other."""
        with self.loader:
            self.load_next(tensors_of(directory), how)

    def load_next(self, new: dict[str, bytes], how) -> None:
        self.loads += 1
        if how == "stale":
            return
        for place, (name, value) in enumerate(new.items()):
            if how in ("half", "half and 500") and place >= len(new) // 2:
                break
            time.sleep(self.load_s / len(new))
            with self.lock:
                self.tensors[name] = value
        if how == "half and 500":
            raise RuntimeError("a worker ran out of memory")

    def checksums(self) -> dict[str, str]:
        return {name: hashlib.sha256(value).hexdigest()[:16] for name, value in self.tensors.items()}

    def drop_cache(self) -> None:
        with self.lock:
            self.cached_with = hash_of(self.tensors)

    # Requests

    def make(self, count: int, adapter: str | None):
        """Tokens, their labels and how it ended, of a request that is counted as running. A label is put on a token when it is made."""
        tokens, labels = [], []
        try:
            while len(tokens) < count:
                with self.lock:
                    while self.is_frozen():
                        self.lock.wait()
                    if self.mode == "abort":
                        return tokens, labels, "abort"
                    tokens.append(self.token(adapter))
                    labels.append(self.weight_version)
                if self.token_s:
                    time.sleep(self.token_s)
            return tokens, labels, "length"
        finally:
            with self.lock:
                self.running -= 1
                self.made.append(tuple(tokens))
                self.lock.notify_all()

    def is_frozen(self) -> bool:
        raise NotImplementedError

    def token(self, adapter: str | None) -> int:
        if adapter is not None:
            return int(hash_of(self.adapters[adapter][1])[:7], 16)
        weights = hash_of(self.tensors)
        stale = "" if self.cached_with == weights else self.cached_with
        return int(hashlib.sha256((weights + stale).encode()).hexdigest()[:7], 16) if stale else int(weights[:7], 16)


def spans(labels: list[str]) -> list[dict]:
    found: list[dict] = []
    for place, label in enumerate(labels):
        if found and found[-1]["version"] == label:
            found[-1]["end"] = place + 1
        else:
            found.append({"version": label, "start": place, "end": place + 1})
    return found
