"""A stand-in of vLLM 0.33: which routes there are, and what they answer."""

from standins import PROMPT_OF_CHAT, StandIn, spans, tensors_of


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
