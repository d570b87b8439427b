"""Gradients with truncated importance weights, in float64: writes `truncated.safetensors` beside this file.

    pip install numpy==2.2.6 autograd==1.9.1 safetensors==0.8.0
    python truncated_gradients.py

Weights and rows are those of `float64.safetensors`; recorded log-probabilities lie around the model's own, so that ratios fall
on both sides of every bound. Model and loss are written out one sequence at a time, and derived by autograd, with the weights
of the formulas held constant: -min(r, cap) A l, and -min(exp(p - b), cap) min(r A, clip(r) A) with r = exp(l - p).
"""

import pathlib

import autograd.numpy as np
import numpy
from autograd import grad
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent
HEADS, KEYS, LAYERS, THETA, EPSILON, LENGTH = 4, 2, 2, 10_000.0, 1e-6, 12
# Name of a case: loss form, greatest weight, and the bounds of the clip where there is one.
CASES = {
    "truncated": ("token_mean", 1.2, None),
    "truncated_rows": ("sample_mean", 0.9, None),
    "both": ("token_mean", 1.1, (0.2, 0.28)),
    "both_length": ("constant_length", 0.9, (0.1, 0.3)),
}


def norm(x, weight):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + EPSILON) * weight


def turned(x):
    """Rotary positions in the half-split form; x is [positions, heads, dimension]."""
    half = x.shape[-1] // 2
    angles = numpy.arange(x.shape[0])[:, None, None] * THETA ** (-numpy.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = numpy.cos(angles), numpy.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attended(q, k, v):
    rows = []
    for head in range(HEADS):
        keys, values = k[:, head * KEYS // HEADS], v[:, head * KEYS // HEADS]
        scores = np.dot(q[:, head], keys.T) / q.shape[-1] ** 0.5
        scores = scores + numpy.triu(numpy.full(scores.shape, -1e300), 1)
        powers = np.exp(scores - np.max(scores, -1, keepdims=True))
        rows.append(np.dot(powers / np.sum(powers, -1, keepdims=True), values))
    return np.concatenate(rows, -1)


def log_probs(weights, prompt, response):
    """Of each token of the response."""
    tokens = numpy.array(list(prompt) + list(response))
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[tokens]
    for layer in range(LAYERS):
        part = lambda name: weights[f"model.layers.{layer}.{name}"]
        y = norm(x, part("input_layernorm.weight"))
        project = lambda which, count: np.reshape(
            np.dot(y, part(f"self_attn.{which}_proj.weight").T) + part(f"self_attn.{which}_proj.bias"),
            (len(tokens), count, -1),
        )
        q, k, v = turned(project("q", HEADS)), turned(project("k", KEYS)), project("v", KEYS)
        x = x + np.dot(attended(q, k, v), part("self_attn.o_proj.weight").T)
        y = norm(x, part("post_attention_layernorm.weight"))
        gate, up = np.dot(y, part("mlp.gate_proj.weight").T), np.dot(y, part("mlp.up_proj.weight").T)
        x = x + np.dot(gate / (1 + np.exp(-gate)) * up, part("mlp.down_proj.weight").T)
    logits = np.dot(norm(x, weights["model.norm.weight"]), embedding.T)
    shifted = logits - np.max(logits, -1, keepdims=True)
    table = shifted - np.log(np.sum(np.exp(shifted), -1, keepdims=True))
    places = numpy.arange(len(prompt) - 1, len(tokens) - 1)
    return table[places, numpy.array(response)]


def row_losses(l, row, held, cap, bounds):
    """Of each token; `held` is l as a constant."""
    advantage = row["advantage"]
    if bounds is None:
        return -numpy.minimum(numpy.exp(held - row["behaviour"]), cap) * advantage * l
    weight = numpy.minimum(numpy.exp(row["proximal"] - row["behaviour"]), cap)
    ratio = np.exp(l - row["proximal"])
    clipped = np.clip(ratio, 1 - bounds[0], 1 + bounds[1])
    return -weight * np.minimum(ratio * advantage, clipped * advantage)


def loss(weights, rows, form, cap, bounds, held):
    total, tokens = 0.0, 0
    for row, constant in zip(rows, held, strict=True):
        of_tokens = row_losses(log_probs(weights, row["prompt"], row["response"]), row, constant, cap, bounds)
        of_row, count = np.sum(of_tokens * row["mask"]), int(row["mask"].sum())
        total = total + (of_row / count if form == "sample_mean" else of_row)
        tokens += count
    return total / {"sample_mean": len(rows), "token_mean": tokens, "constant_length": len(rows) * LENGTH}[form]


def check_both_sides(rows, held) -> None:
    """Each bound decides for some tokens and not for others, and none stands so near it that rounding could turn it over."""
    trained = [row["mask"] == 1 for row in rows]
    of = lambda values: numpy.concatenate([value[mask] for value, mask in zip(values, trained)])
    direct = of([numpy.exp(l - row["behaviour"]) for l, row in zip(held, rows)])
    weight = of([numpy.exp(row["proximal"] - row["behaviour"]) for row in rows])
    ratio = of([numpy.exp(l - row["proximal"]) for l, row in zip(held, rows)])
    for form, cap, bounds in CASES.values():
        pairs = [(direct, cap)] if bounds is None else [(weight, cap), (ratio, 1 - bounds[0]), (ratio, 1 + bounds[1])]
        for values, bound in pairs:
            above = int((values > bound).sum())
            print(form, "bound", round(bound, 2), "above", above, "below", len(values) - above)
            assert above >= 5 and len(values) - above >= 5
            assert numpy.abs(values - bound).min() > 1e-4


def main() -> None:
    there = load_file(HERE / "float64.safetensors")
    weights = {
        key.removeprefix("weights."): value.astype(numpy.float64)
        for key, value in there.items()
        if key.startswith("weights.")
    }
    noise, rows = numpy.random.default_rng(31), []
    single = lambda values: values.astype(numpy.float32).astype(numpy.float64)
    for index in range(len(there["groups"])):
        cut = lambda name, lengths: there[name][index][: there[lengths][index]]
        row = {"prompt": cut("prompts", "prompt_lengths"), "response": cut("responses", "response_lengths")}
        own = log_probs(weights, row["prompt"], row["response"])
        row |= {
            "mask": cut("masks", "response_lengths"),
            "behaviour": single(own + 0.35 * noise.standard_normal(len(own))),
            "proximal": single(own + 0.25 * noise.standard_normal(len(own))),
            "advantage": single(noise.standard_normal(1))[0],
        }
        rows.append(row)
    held = [log_probs(weights, row["prompt"], row["response"]) for row in rows]
    check_both_sides(rows, held)
    padded = numpy.zeros((2, *there["responses"].shape), dtype=numpy.float32)
    for index, row in enumerate(rows):
        padded[0, index, : len(row["behaviour"])] = row["behaviour"]
        padded[1, index, : len(row["proximal"])] = row["proximal"]
    tensors = {
        "behaviour_log_probs": padded[0].copy(),
        "proximal_log_probs": padded[1].copy(),
        "advantages": numpy.array([row["advantage"] for row in rows], dtype=numpy.float32),
    }
    for name, (form, cap, bounds) in CASES.items():
        print(name, "loss", loss(weights, rows, form, cap, bounds, held))
        found = grad(loss)(weights, rows, form, cap, bounds, held)
        tensors |= {f"{name}.{key}": value.astype(numpy.float32) for key, value in found.items()}
    save_file(tensors, HERE / "truncated.safetensors")


if __name__ == "__main__":
    main()
