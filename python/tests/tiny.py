"""What the trainer's tests share: tiny models that are made from a configuration, and micro-batches for them."""

import contextlib

import torch

from forebay.trainer import MicroBatch, PolicyGradient

VOCABULARY = 32


def qwen(kind: str = "Qwen3", *, dtype=torch.float32, tied: bool = True, seed: int = 11, dropout: float = 0.0):
    """A causal language model with random weights."""
    import transformers

    settings = dict(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=tied, attention_dropout=dropout,
    )  # fmt: skip
    settings |= {"head_dim": 8} if kind == "Qwen3" else {}
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**settings)
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(dtype)


def micro_batch(rows: int = 8, length: int = 12, seed: int = 0, **extra) -> MicroBatch:
    """Random rows whose responses have very different lengths."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (rows, length), generator=random)
    lengths = [1 + (row * 5 + seed) % (length - 3) for row in range(rows)]
    mask, there = torch.zeros(rows, length), torch.zeros(rows, length, dtype=torch.long)
    for row, count in enumerate(lengths):
        mask[row, 3 : 3 + count], there[row, : 3 + count] = 1, 1
    advantages = torch.randn(rows, 1, generator=random)
    return MicroBatch.of(input_ids=tokens, attention_mask=there, loss_mask=mask, advantages=advantages, **extra)


def off_policy(model, batch: MicroBatch, seed: int = 5) -> MicroBatch:
    """The same rows with log-probabilities of a sampler, of an older policy and of a reference beside them."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        logprobs = PolicyGradient().logprobs(model, batch)
    near = lambda: logprobs + 0.3 * torch.randn(logprobs.shape, generator=random)
    names = ("old_logprobs", "behaviour_logprobs", "reference_logprobs")
    return MicroBatch.of(**batch.tensors(), **{name: near() for name in names})


def gradients(trainer) -> dict[str, torch.Tensor]:
    """What is in the cache, by parameter."""
    flat = trainer.cache.flat
    return {
        entry.name: flat[start : start + entry.elements].view(entry.shape).clone()
        for entry, start in trainer.layout.placed()
    }


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The greatest difference, as a share of the greatest number."""
    return float((one - other).abs().max() / other.abs().max())


@contextlib.contextmanager
def unchanged(trainer):
    """Checks that nothing in a trainer's state moves within."""
    before = {name: payload.memory.clone() for name, payload in trainer.state().items()}
    yield
    after = trainer.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(memory, after[name].memory) for name, memory in before.items())
