"""The routes of SGLang (0.5.23; older forms where marked).

Weights are loaded by ``/update_weights_from_disk``, which would go on by itself afterwards: it is told to stay paused until the weights
were compared. Requests that go on are put back into the queue (``retract``), so that their caches are computed anew.
"""

from __future__ import annotations

from typing import Any

from .answers import UNDOCUMENTED, chat_answer, chat_body, checked, checksum_of, spans_of, unreadable
from .endpoint import Reply
from .engine import HttpEngine
from .errors import InstanceRefusedError
from .instance import Answer, InFlight, ReportedSpan, Request
from .version import loading_label

__all__ = ["SglangServer"]

_MODES = {"finish": "abort", "abort": "abort", "continue": "retract"}  # what is to finish has, when the rotation pauses it


class SglangServer(HttpEngine):
    """A server of SGLang. What it is made with: ``HttpEngine``."""

    kind = "sglang"

    def pause(self, in_flight: InFlight) -> None:
        self._post("/pause_generation", {"mode": _MODES[in_flight]})

    def resume(self) -> None:
        self._post("/continue_generation", {})

    def label(self) -> str | None:
        reply = self._call("GET", "/model_info", allowed=(404,))
        if reply.status == 404:  # older
            reply = self._call("GET", "/get_model_info")
        said = reply.member("weight_version")
        return said if isinstance(said, str) else None

    def set_label(self, label: str) -> None:
        self._post("/update_weight_version", {"new_version": label, "abort_all_requests": False})

    def load(self, directory: str) -> None:
        body = {
            "model_path": directory, "flush_cache": True, "abort_all_requests": False, "keep_pause": True,
            "weight_version": loading_label("disk"),  # the label of a version follows when the weights were compared
        }  # fmt: skip
        self._post("/update_weights_from_disk", body, timeout_s=self.load_timeout_s)

    def drop_caches(self, in_flight: InFlight) -> None:
        """The load has flushed them."""

    def checksum(self) -> str | None:
        timeout_s = self.load_timeout_s
        reply = self._post("/weights_checker", {"action": "checksum"}, timeout_s=timeout_s, allowed=(404,))
        found = None if reply.status == 404 else reply.member("payload")
        return checksum_of(found) if found else None

    # Adapters

    def load_adapter(self, name: str, directory: str) -> None:
        self._post("/load_lora_adapter", {"lora_name": name, "lora_path": directory}, timeout_s=self.load_timeout_s)

    def unload_adapter(self, name: str) -> None:
        self._post("/unload_lora_adapter", {"lora_name": name}, allowed=(400, 404), timeout_s=self.load_timeout_s)

    def has_adapter(self, name: str, directory: str) -> bool | None:
        return None

    # Requests

    def answer(self, request: Request, adapter: str | None) -> Answer:
        if request.messages is not None:
            return self._chat(request, adapter)
        sampling = request.sampling
        body = {
            "input_ids": list(request.tokens),
            "sampling_params": {
                "max_new_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p,
                "stop_token_ids": list(sampling.stop_token_ids), **sampling.extra,
            },
            "return_logprob": True,
            **({"lora_path": adapter} if adapter else {}),
        }  # fmt: skip
        reply = self._post("/generate", body, timeout_s=request.timeout_s)
        try:
            told = reply.json()["meta_info"]
            drawn = told.get("output_token_logprobs") or []  # none where it was aborted before its first token
            logprobs, tokens = tuple(float(entry[0]) for entry in drawn), tuple(int(entry[1]) for entry in drawn)
            finish = str((told.get("finish_reason") or {}).get("type"))
            spans = _spans(told, len(tokens))
        except UNDOCUMENTED as error:
            raise unreadable(self.name, reply, error) from error
        return checked(self.name, reply, Answer(request.tokens, tokens, logprobs, finish, spans))

    def _chat(self, request: Request, adapter: str | None) -> Answer:
        body = {"model": "default", **({"lora_path": adapter} if adapter else {}), **chat_body(request)}
        reply = self._post("/v1/chat/completions", body, timeout_s=request.timeout_s)
        try:
            choice = reply.member("choices")[0]
            tokens, prompt = choice["response_token_ids"], choice["prompt_token_ids"]
            spans = _spans(reply.member("metadata") or {}, len(tokens))
        except UNDOCUMENTED as error:
            raise unreadable(self.name, reply, error) from error
        return chat_answer(self.name, reply, choice, tokens, prompt, spans)

    def _post(self, path: str, body: dict[str, Any], **options: Any) -> Reply:
        reply = self._call("POST", path, body=body, **options)
        if reply.member("success") is False and reply.status not in options.get("allowed", ()):
            what = str(reply.member("message") or "it says that it failed")
            raise InstanceRefusedError(what, instance=self.name, endpoint=reply.endpoint, status=reply.status)
        return reply


def _spans(told: dict[str, Any], tokens: int) -> tuple[ReportedSpan, ...] | None:
    """The spans, which are told where a request crossed versions; else the one version that it had."""
    found = spans_of(told.get("weight_versions"))
    if found is None and isinstance(told.get("weight_version"), str):
        return (ReportedSpan(0, tokens, told["weight_version"]),)
    return found
