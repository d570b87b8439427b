"""The routes of vLLM (0.33; older forms where marked).

Routes for weights exist with ``VLLM_SERVER_DEV_MODE=1``, those for adapters with ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1``. Parameters of
pause and of the prefix cache go behind the path: in a body they would be ignored. Weights are loaded by each worker's
``reload_weights``, from a directory that workers see.
"""

from __future__ import annotations

import threading
from typing import Any

from .answers import UNDOCUMENTED, chat_answer, chat_body, checked, checksum_of, spans_of, unreadable
from .endpoint import Reply
from .engine import HttpEngine
from .errors import InstanceRefusedError
from .instance import Answer, InFlight, Request

__all__ = ["VllmServer"]

_MODES = {"finish": "wait", "abort": "abort", "continue": "keep"}


class VllmServer(HttpEngine):
    """A server of vLLM. What it is made with: ``HttpEngine``, and

    model: the served name of the base. Default: the first that it lists.
    """

    kind = "vllm"

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        model: str | None = None,
        key: str | None = None,
        control_timeout_s: float = 60.0,
        load_timeout_s: float = 600.0,
    ) -> None:
        super().__init__(url, name=name, key=key, control_timeout_s=control_timeout_s, load_timeout_s=load_timeout_s)
        self._model, self._lock = model, threading.Lock()

    def pause(self, in_flight: InFlight) -> None:
        # The cache is dropped after the load, when it is sure that nothing fills it with what was computed before.
        query = {"mode": _MODES[in_flight], "clear_cache": in_flight != "continue"}
        self._post("/pause", query=query, timeout_s=self.load_timeout_s)

    def resume(self) -> None:
        self._post("/resume")

    def label(self) -> str | None:
        said = self._call("GET", "/weight_info").member("weight_version")
        return said if isinstance(said, str) else None

    def set_label(self, label: str) -> None:
        self._refuse_failure(self._post("/update_weight_version", body={"new_version": label}))

    def load(self, directory: str) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": directory}, "timeout": self.load_timeout_s}
        self._post("/collective_rpc", body=body, timeout_s=self.load_timeout_s)

    def drop_caches(self, in_flight: InFlight) -> None:
        query = {"reset_running_requests": in_flight == "continue"}
        self._refuse_failure(self._post("/reset_prefix_cache", query=query))  # older: an empty body, which says nothing

    def checksum(self) -> str | None:
        reply = self._post("/weight_checker", body={"action": "checksum"}, timeout_s=self.load_timeout_s, allowed=(404,))
        found = None if reply.status == 404 else reply.member("checksums")
        return checksum_of(found) if found else None

    # Adapters

    def load_adapter(self, name: str, directory: str) -> None:
        body = {"lora_name": name, "lora_path": directory, "load_inplace": False}
        self._post("/v1/load_lora_adapter", body=body, timeout_s=self.load_timeout_s)

    def unload_adapter(self, name: str) -> None:
        self._post("/v1/unload_lora_adapter", body={"lora_name": name}, allowed=(404,))

    def has_adapter(self, name: str, directory: str) -> bool | None:
        return any(model.get("id") == name and model.get("root") == directory for model in self._models())

    # Requests

    def answer(self, request: Request, adapter: str | None) -> Answer:
        model = adapter or self._served()
        if request.messages is not None:
            path, body = "/v1/chat/completions", {"model": model, "return_weight_versions": True, **chat_body(request)}
        else:
            path, body = "/inference/v1/generate", {"model": model, "return_weight_versions": True, **_tokens_body(request)}
        reply = self._post(path, body=body, timeout_s=request.timeout_s)
        said = reply.member("model")
        if adapter is not None and said is not None and said != adapter:
            what = f"{adapter!r} was asked for, and {said!r} answered"
            raise InstanceRefusedError(what, instance=self.name, endpoint=reply.endpoint)
        return self._read(reply, request)

    def _read(self, reply: Reply, request: Request) -> Answer:
        try:
            choice = reply.member("choices")[0]
            spans = spans_of(choice.get("weight_versions"))
            if request.messages is not None:
                return chat_answer(self.name, reply, choice, choice["token_ids"], reply.member("prompt_token_ids"), spans)
            content = (choice.get("logprobs") or {}).get("content") or []
            logprobs = tuple(float(entry["logprob"]) for entry in content)  # near 0.20 there are texts beside them: not read
            tokens = tuple(int(token) for token in choice["token_ids"])
        except UNDOCUMENTED as error:
            raise unreadable(self.name, reply, error) from error
        return checked(self.name, reply, Answer(request.tokens, tokens, logprobs, str(choice.get("finish_reason")), spans))

    def _served(self) -> str:
        with self._lock:
            if self._model is None:
                listed = [model.get("id") for model in self._models() if not model.get("parent")]
                if not listed:
                    raise InstanceRefusedError("it lists no model", instance=self.name, endpoint="GET /v1/models")
                self._model = str(listed[0])
            return self._model

    def _models(self) -> list[dict[str, Any]]:
        listed = self._call("GET", "/v1/models").member("data")
        return [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []

    def _refuse_failure(self, reply: Reply) -> None:
        if reply.member("success") is False:
            raise InstanceRefusedError("it says that it failed", instance=self.name, endpoint=reply.endpoint, status=reply.status)

    def _post(self, path: str, **options: Any) -> Reply:
        return self._call("POST", path, **options)


def _tokens_body(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    drawn = {
        "max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p,
        "stop_token_ids": list(sampling.stop_token_ids), "logprobs": 1, **sampling.extra,
    }  # fmt: skip
    return {"token_ids": list(request.tokens), "sampling_params": drawn, "output_mode": "tokens"}
