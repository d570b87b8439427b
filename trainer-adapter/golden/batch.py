"""A ragged batch and a small random Qwen2 or Qwen3, shared by the two scripts: plain data from fixed seeds."""

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

CONFIG = dict(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=44,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    rope_theta=10_000.0,
    rms_norm_eps=1e-6,
    max_position_embeddings=64,
    tie_word_embeddings=True,
)
CONSTANT_LENGTH = 12


def model(seed: int, kind: str) -> PreTrainedModel:
    """In float32, with weights away from their starting values, biases and norms too."""
    torch.manual_seed(seed)
    if kind == "qwen2":
        made = Qwen2ForCausalLM(Qwen2Config(**CONFIG, attn_implementation="eager")).float()
    else:
        made = Qwen3ForCausalLM(Qwen3Config(**CONFIG, head_dim=8, attn_implementation="eager")).float()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 0.2)
            else:
                parameter.add_(0.4 * (torch.rand_like(parameter) - 0.5))
    return made


def rows(seed: int, groups: list[int]) -> dict[str, list]:
    """`groups` are the sizes of the groups; a group's rows share a prompt. Masks leave at least one token."""
    generator = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    def tokens(length: int) -> list[int]:
        return torch.randint(0, CONFIG["vocab_size"], (length,), generator=generator).tolist()

    made = {"prompts": [], "responses": [], "masks": [], "groups": []}
    for group, size in enumerate(groups):
        prompt = tokens(number(2, 7))
        for _ in range(size):
            response = tokens(number(1, CONSTANT_LENGTH))
            mask = (torch.rand(len(response), generator=generator) < 0.7).int().tolist()
            mask[number(0, len(response) - 1)] = 1
            made["prompts"].append(prompt)
            made["responses"].append(response)
            made["masks"].append(mask)
            made["groups"].append(group)
    return made


def padded(lists: list[list], dtype: torch.dtype, left: bool = False) -> torch.Tensor:
    """Rows of equal length, zeros where a list has ended (or not begun)."""
    width = max(map(len, lists))
    zeros = lambda values: [0] * (width - len(values))
    return torch.tensor(
        [zeros(values) + list(values) if left else list(values) + zeros(values) for values in lists], dtype=dtype
    )


def stored_rows(batch: dict[str, list]) -> dict[str, torch.Tensor]:
    """The rows as tensors, for the data file."""
    return {
        "prompts": padded(batch["prompts"], torch.int32),
        "prompt_lengths": torch.tensor([len(p) for p in batch["prompts"]], dtype=torch.int32),
        "responses": padded(batch["responses"], torch.int32),
        "response_lengths": torch.tensor([len(r) for r in batch["responses"]], dtype=torch.int32),
        "masks": padded(batch["masks"], torch.int32),
        "groups": torch.tensor(batch["groups"], dtype=torch.int32),
    }


def stored_weights(made: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {f"weights.{name}": value.detach().float().clone() for name, value in made.named_parameters()}
