"""A stand-in of SGLang 0.5.23: which routes there are, and what they answer."""

from standins import PROMPT_OF_CHAT, StandIn, spans, tensors_of


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
