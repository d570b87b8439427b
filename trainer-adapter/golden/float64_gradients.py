"""Gradients of what TRL cannot batch, in float64: writes `float64.safetensors` beside this file.

    pip install torch==2.15.0 transformers==5.23.0
    python float64_gradients.py

Groups of unequal size, one of a single member, one of equal rewards. Advantages by numpy; model and loss written out one
sequence at a time from elementary operations (the model of transformers computes norms and attention weights in 32 bits
whatever it is asked for).
"""

import pathlib

import numpy
import torch
from batch import CONFIG, CONSTANT_LENGTH, model, rows, stored_rows, stored_weights
from safetensors.torch import save_file

SIZES = [3, 1, 5, 4, 2]
# The fourth group has equal rewards; 0.1 has no exact mean in binary.
REWARDS = [1.0, 0.0, 0.25, 0.7, 0.3, -0.2, 0.9, 0.4, 0.05, 0.1, 0.1, 0.1, 0.1, 100.005, 99.995]
# Name of a case: degrees of freedom, epsilon, whether a single member keeps its reward, loss form.
CASES = {
    "agentjet": (1, 1e-6, True, "sample_mean"),
    "population": (0, 1e-6, False, "token_mean"),
    "sapo": (1, 1e-8, False, "constant_length"),
}


def group_advantages(rewards: numpy.ndarray, ddof: int, epsilon: float, keep_single: bool) -> numpy.ndarray:
    if len(rewards) == 1:
        return rewards if keep_single else numpy.zeros(1)
    if (rewards == rewards[0]).all():
        return numpy.zeros(len(rewards))
    return (rewards - rewards.mean()) / (rewards.std(ddof=ddof) + epsilon)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + CONFIG["rms_norm_eps"]).sqrt() * weight


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions in the half-split form; x is [heads, positions, dimension]."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * CONFIG["rope_theta"] ** (
        -torch.arange(half, dtype=torch.float64) / half
    )
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def log_prob_table(weights: dict[str, torch.Tensor], tokens: list[int]) -> torch.Tensor:
    """Log-probabilities over the vocabulary after each token."""
    heads, keys = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[torch.tensor(tokens)]
    hidden = torch.ones(len(tokens), len(tokens)).triu(1).bool()
    for layer in range(CONFIG["num_hidden_layers"]):
        part = lambda name: weights[f"model.layers.{layer}.{name}"]
        y = norm(x, part("input_layernorm.weight"))
        project = lambda which, count: (
            (y @ part(f"self_attn.{which}_proj.weight").T + part(f"self_attn.{which}_proj.bias"))
            .view(len(tokens), count, -1)
            .transpose(0, 1)
        )
        q, k, v = turned(project("q", heads)), turned(project("k", keys)), project("v", keys)
        k, v = k.repeat_interleave(heads // keys, 0), v.repeat_interleave(heads // keys, 0)
        scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(hidden, float("-inf"))
        attended = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        x = x + attended @ part("self_attn.o_proj.weight").T
        y = norm(x, part("post_attention_layernorm.weight"))
        gate = y @ part("mlp.gate_proj.weight").T
        x = x + (gate * gate.sigmoid() * (y @ part("mlp.up_proj.weight").T)) @ part("mlp.down_proj.weight").T
    return (norm(x, weights["model.norm.weight"]) @ embedding.T).log_softmax(-1)


def loss(weights, batch, advantages, form: str) -> torch.Tensor:
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for prompt, response, mask, advantage in zip(
        batch["prompts"], batch["responses"], batch["masks"], advantages, strict=True
    ):
        table = log_prob_table(weights, prompt + response)
        of_row = torch.zeros((), dtype=torch.float64)
        for index, (token, counts) in enumerate(zip(response, mask, strict=True)):
            if counts:
                of_row = of_row - advantage * table[len(prompt) + index - 1, token]
        total = total + (of_row / sum(mask) if form == "sample_mean" else of_row)
        tokens += sum(mask)
    count = len(batch["prompts"])
    return total / {"sample_mean": count, "token_mean": tokens, "constant_length": count * CONSTANT_LENGTH}[form]


def main() -> None:
    start = stored_weights(model(21, "qwen2"))
    batch = rows(22, SIZES)
    rewards = numpy.array(REWARDS)
    groups = numpy.array(batch["groups"])
    tensors = stored_rows(batch) | start | {"rewards": torch.tensor(rewards)}
    for name, (ddof, epsilon, keep_single, form) in CASES.items():
        advantages = numpy.concatenate(
            [group_advantages(rewards[groups == g], ddof, epsilon, keep_single) for g in range(len(SIZES))]
        )
        weights = {
            key.removeprefix("weights."): value.double().requires_grad_() for key, value in start.items()
        }
        value = loss(weights, batch, advantages, form)
        value.backward()
        tensors[f"advantages.{name}"] = torch.tensor(advantages)
        tensors |= {f"{name}.{key}": weight.grad.float() for key, weight in weights.items()}
        print(name, "loss", value.item())
    save_file(tensors, pathlib.Path(__file__).with_name("float64.safetensors"))


if __name__ == "__main__":
    main()
