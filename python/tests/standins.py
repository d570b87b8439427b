"""Servers that speak the control and request routes of vLLM and SGLang, with faults, and with weights that show in what they say.

A stand-in really loads: it reads the files of safetensors in a directory, tensor by tensor, and the tokens that it makes are a hash of
all its tensors and of the weights that its cache was made with. So one token tells which weights made it: `token_of(directory)` is the only one that a
version makes, and weights of which parts are of two versions make another.
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
        self.lock = threading.Condition()
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
        """Tensor by tensor, as engines do it: who computes meanwhile computes with both."""
        new = tensors_of(directory)
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


class Vllm(StandIn):
    """vLLM 0.33. With `dev_mode=False` the routes for weights are not there; with `labels=False` answers carry no versions."""

    DEV = ("/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/weight_checker", "/weight_info", "/sleep")

    def error(self, status, message):
        return status, {"error": {"message": message, "type": "Error", "param": None, "code": status}}

    def is_frozen(self):
        return self.mode == "keep"

    def route(self, verb, path, query, body, how):
        if path in self.DEV and not self.dev_mode:
            return 404, {"detail": "Not Found"}
        name = path.strip("/").replace("/", "_")
        handler = getattr(self, f"on_{verb.lower()}_{name}", None)
        return handler(query, body, how) if handler else (404, {"detail": "Not Found"})

    def on_post_pause(self, query, body, how):
        mode = query.get("mode", "abort")  # what stands in the body is not read
        with self.lock:
            self.mode = mode
            self.lock.notify_all()
            self.lock.wait_for(lambda: mode == "keep" or not self.running)
        if query.get("clear_cache", "true") == "true":
            self.drop_cache()
        return 200, {"status": "paused"}

    def on_post_resume(self, query, body, how):
        with self.lock:
            self.mode = None
            self.lock.notify_all()
        return 200, {"status": "resumed"}

    def on_get_weight_info(self, query, body, how):
        return 200, {"weight_version": "v1-00000000" if how == "mislabel" else self.weight_version}

    def on_post_update_weight_version(self, query, body, how):
        with self.lock:
            self.weight_version = body["new_version"]
        return 200, {"success": True, "new_version": self.weight_version}

    def on_post_collective_rpc(self, query, body, how):
        if "method" not in body:
            return self.error(400, "Missing 'method' in request body")
        assert body["method"] == "reload_weights"
        try:
            self.load(body["kwargs"]["weights_path"], how)
        except (RuntimeError, OSError) as error:
            return self.error(500, str(error))
        return 200, {"results": [None]}

    def on_post_reset_prefix_cache(self, query, body, how):
        if self.running and query.get("reset_running_requests", "false") != "true":
            return 200, {"success": False}
        self.drop_cache()
        return 200, {"success": True}

    def on_post_weight_checker(self, query, body, how):
        assert body["action"] == "checksum"
        return 200, {"checksums": self.checksums()}

    def on_get_v1_models(self, query, body, how):
        base = {"id": "base", "object": "model", "root": "models/base", "parent": None}
        adapters = [{"id": name, "object": "model", "root": path, "parent": "base"} for name, (path, _) in self.adapters.items()]
        return 200, {"object": "list", "data": [base, *adapters]}

    def on_post_v1_load_lora_adapter(self, query, body, how):
        name = body["lora_name"]
        if name in self.adapters and not body.get("load_inplace"):
            return self.error(400, f"The lora adapter '{name}' has already been loaded.")
        try:
            self.adapters[name] = (body["lora_path"], tensors_of(body["lora_path"]))
        except OSError as error:
            return self.error(404, str(error))
        return 200, b"Success: LoRA adapter added successfully."

    def on_post_v1_unload_lora_adapter(self, query, body, how):
        if self.adapters.pop(body["lora_name"], None) is None:
            return self.error(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
        return 200, b"Success: LoRA adapter removed successfully."

    def accepted(self, body):
        """The adapter of a request, or an error."""
        with self.lock:
            if self.mode in ("abort", "wait"):
                return None, self.error(503, "The engine is paused")
            if body["model"] != "base" and body["model"] not in self.adapters:
                return None, self.error(404, f"The model `{body['model']}` does not exist.")
            self.running += 1
        return (None if body["model"] == "base" else body["model"]), None

    def on_post_inference_v1_generate(self, query, body, how):
        adapter, refused = self.accepted(body)
        if refused:
            return refused
        assert body["token_ids"] and body["sampling_params"]["logprobs"] == 1
        tokens, labels, finish = self.make(body["sampling_params"]["max_tokens"], adapter)
        content = [{"token_id": token, "logprob": -0.5, "rank": 1, "top_logprobs": []} for token in tokens]
        return 200, {"request_id": "r", "model": body["model"], "choices": [self.choice(body, tokens, labels, finish, content)]}

    def on_post_v1_chat_completions(self, query, body, how):
        adapter, refused = self.accepted(body)
        if refused:
            return refused
        tokens, labels, finish = self.make(body["max_tokens"], adapter)
        content = [{"token": f"t{token}", "logprob": -0.5, "bytes": None, "top_logprobs": []} for token in tokens]
        choice = self.choice(body, tokens, labels, finish, content)
        choice["message"] = {"role": "assistant", "content": "".join(f"t{token}" for token in tokens)}
        return 200, {"object": "chat.completion", "model": body["model"], "prompt_token_ids": PROMPT_OF_CHAT, "choices": [choice]}

    def choice(self, body, tokens, labels, finish, content):
        made = {"index": 0, "finish_reason": finish, "stop_reason": None, "token_ids": tokens, "logprobs": {"content": content}}
        return {**made, "weight_versions": spans(labels)} if self.labels and body.get("return_weight_versions") else made


class Sglang(StandIn):
    """SGLang 0.5.23. With `dev_mode=False` it is one without a checksum and with the older name of the model's route."""

    def error(self, status, message):
        return status, {"success": False, "object": "error", "message": message, "type": "BadRequest", "param": None, "code": status}

    def is_frozen(self):
        return self.mode in ("retract", "in_place")

    def route(self, verb, path, query, body, how):
        name = path.strip("/").replace("/", "_")
        handler = getattr(self, f"on_{name}", None)
        return handler(query, body, how) if handler else (404, {"detail": "Not Found"})

    def on_pause_generation(self, query, body, how):
        with self.lock:
            self.mode = body.get("mode", "abort")
            self.lock.notify_all()
            self.lock.wait_for(lambda: self.mode != "abort" or not self.running)
        return 200, {"message": "Generation paused successfully.", "status": "ok"}

    def on_continue_generation(self, query, body, how):
        with self.lock:
            self.mode = None
            self.lock.notify_all()
        return 200, {"message": "Generation continued successfully.", "status": "ok"}

    def on_update_weights_from_disk(self, query, body, how):
        if self.running and self.mode == "in_place" and body.get("flush_cache", True):
            return 400, {"success": False, "message": "Cache flush failed after updating weights", "num_paused_requests": 0}
        try:
            self.load(body["model_path"], how)
        except (RuntimeError, OSError) as error:
            return 400, {"success": False, "message": str(error), "num_paused_requests": 0}
        if body.get("weight_version"):
            self.weight_version = body["weight_version"]
        if body.get("flush_cache", True):
            self.drop_cache()
        if not body.get("keep_pause", False):
            self.on_continue_generation({}, {}, None)
        return 200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}

    def on_update_weight_version(self, query, body, how):
        with self.lock:
            if body.get("abort_all_requests", True) and self.running:
                self.mode = "abort"
            self.weight_version = body["new_version"]
        return 200, {"success": True, "message": "Weight version updated", "new_version": self.weight_version}

    def on_model_info(self, query, body, how):
        if not self.dev_mode:
            return 404, {"detail": "Not Found"}
        return self.on_get_model_info(query, body, how)

    def on_get_model_info(self, query, body, how):
        said = "v1-00000000" if how == "mislabel" else self.weight_version
        return 200, {"model_path": "models/base", "is_generation": True, "weight_version": said}

    def on_weights_checker(self, query, body, how):
        if not self.dev_mode:
            return 404, {"detail": "Not Found"}
        ranks = [{"checksums": self.checksums(), "parallelism_info": {"tp_rank": 0, "tp_size": 1}}]
        return 200, {"success": True, "message": "Success.", "payload": {"ranks": ranks}}

    def on_load_lora_adapter(self, query, body, how):
        name = body["lora_name"]
        if name in self.adapters:
            return 400, {"success": False, "error_message": f"LoRA adapter with name {name} already exists"}
        try:
            self.adapters[name] = (body["lora_path"], tensors_of(body["lora_path"]))
        except OSError as error:
            return 400, {"success": False, "error_message": str(error)}
        return 200, {"success": True, "loaded_adapters": {name: path for name, (path, _) in self.adapters.items()}}

    def on_unload_lora_adapter(self, query, body, how):
        if self.adapters.pop(body["lora_name"], None) is None:
            return 400, {"success": False, "error_message": f"LoRA adapter with name {body['lora_name']} does not exist"}
        return 200, {"success": True, "loaded_adapters": {}}

    def refused(self, body):
        adapter = body.get("lora_path")
        if adapter is not None and adapter not in self.adapters:
            return self.error(400, f"Got LoRA adapter that has never been loaded: {adapter}")
        return None

    def queue(self):
        """New requests wait while it is paused."""
        with self.lock:
            self.lock.wait_for(lambda: self.mode is None)
            self.running += 1

    def on_generate(self, query, body, how):
        if refused := self.refused(body):
            return refused
        self.queue()
        tokens, labels, finish = self.make(body["sampling_params"]["max_new_tokens"], body.get("lora_path"))
        told = {"id": "r", "finish_reason": {"type": finish}, "prompt_tokens": len(body["input_ids"]), **self.versions(labels)}
        if tokens and body.get("return_logprob"):
            told["output_token_logprobs"] = [[-0.5, token, None] for token in tokens]
        return 200, {"text": "", "output_ids": tokens, "meta_info": told}

    def on_v1_chat_completions(self, query, body, how):
        if refused := self.refused(body):
            return refused
        self.queue()
        tokens, labels, finish = self.make(body["max_tokens"], body.get("lora_path"))
        content = [{"token": f"t{token}", "logprob": -0.5, "bytes": None, "top_logprobs": []} for token in tokens]
        choice = {
            "index": 0, "finish_reason": finish, "matched_stop": None, "logprobs": {"content": content},
            "prompt_token_ids": PROMPT_OF_CHAT, "response_token_ids": tokens,
            "message": {"role": "assistant", "content": "".join(f"t{token}" for token in tokens)},
        }  # fmt: skip
        return 200, {"object": "chat.completion", "choices": [choice], "metadata": self.versions(labels)}

    def versions(self, labels):
        """The version now; and spans, where there was more than one."""
        if not self.labels:
            return {}
        found = spans(labels)
        return {"weight_version": self.weight_version, **({"weight_versions": found} if len(found) > 1 else {})}
