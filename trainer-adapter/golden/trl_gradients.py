"""Gradients of TRL's GRPOTrainer of a small random Qwen3 over a ragged, masked batch: writes `trl.safetensors` beside this file.

    pip install torch==2.15.0 trl==1.16.0 transformers==5.23.0
    HF_HUB_OFFLINE=1 python trl_gradients.py

The trainer is TRL's own; it is given a batch instead of generating one, so that the file holds everything that the loss
saw. Each case stores the gradient of every parameter after `compute_loss(...).backward()`, in float32.
"""

import pathlib
import tempfile

import torch
from batch import CONSTANT_LENGTH, model, padded, rows, stored_rows, stored_weights
from datasets import Dataset
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

# Name of a case: loss form of TRL and what it is given besides.
CASES = {
    "grpo": dict(loss_type="grpo", epsilon=0.2, epsilon_high=0.2),
    "dapo": dict(loss_type="dapo", epsilon=0.2, epsilon_high=0.28),
    "dr_grpo": dict(loss_type="dr_grpo", epsilon=0.2, epsilon_high=0.28),
    "grpo_kl": dict(loss_type="grpo", epsilon=0.2, epsilon_high=0.2, beta=0.04, use_bias_correction_kl=False),
    "cispo": dict(loss_type="cispo", epsilon_high=1.1),
}


def tokenizer() -> PreTrainedTokenizerFast:
    words = {f"w{index}": index for index in range(48)}
    inner = Tokenizer(WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="w0", eos_token="w1", unk_token="w0")


def trainer(policy, directory: str, options: dict) -> GRPOTrainer:
    arguments = GRPOConfig(
        output_dir=directory,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        per_device_train_batch_size=4,
        gradient_accumulation_steps=1,
        num_generations=4,
        max_completion_length=CONSTANT_LENGTH,
        beta=0.0,
        **{key: value for key, value in options.items() if key != "beta"},
    )
    made = GRPOTrainer(
        model=policy,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["w2 w3"] * 4}),
        processing_class=tokenizer(),
    )
    made.current_gradient_accumulation_steps = 1
    # Set late: with a coefficient from the start the trainer would load a reference model, and its log-probabilities
    # are part of the batch here.
    made.beta = options.get("beta", 0.0)
    return made


def log_probs(policy, batch: dict[str, list]) -> list[list[float]]:
    """Of each response token, one sequence at a time."""
    result = []
    with torch.no_grad():
        for prompt, response in zip(batch["prompts"], batch["responses"]):
            logits = policy(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
            chosen = logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0]
            result.append(chosen.tolist())
    return result


def main() -> None:
    policy = model(11, "qwen3")
    batch = rows(12, [4, 4, 4])
    generator = torch.Generator().manual_seed(13)
    noise = lambda scale: [
        (torch.tensor(values) + scale * torch.randn(len(values), generator=generator)).tolist()
        for values in log_probs(policy, batch)
    ]
    behaviour, reference = noise(0.25), noise(0.5)
    rewards = torch.rand(12, generator=generator).view(3, 4)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    masks = padded(batch["masks"], torch.long)
    inputs = {
        "prompt_ids": padded(batch["prompts"], torch.long, left=True),
        "prompt_mask": padded([[1] * len(p) for p in batch["prompts"]], torch.long, left=True),
        "completion_ids": padded(batch["responses"], torch.long),
        "completion_mask": padded([[1] * len(r) for r in batch["responses"]], torch.long),
        "tool_mask": masks,
        "advantages": advantages,
        "old_per_token_logps": padded(behaviour, torch.float32),
        "ref_per_token_logps": padded(reference, torch.float32),
        "num_items_in_batch": masks.sum(),
    }
    tensors = stored_rows(batch) | stored_weights(policy)
    tensors |= {
        "advantages": advantages,
        "behaviour_log_probs": inputs["old_per_token_logps"],
        "reference_log_probs": inputs["ref_per_token_logps"],
    }
    for name, options in CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            made = trainer(policy, directory, options)
            made.model.train()
            policy.zero_grad(set_to_none=True)
            # What steps_per_generation is for is a batch generated in several parts; here it is one.
            made.args.steps_per_generation = 1
            loss = made.compute_loss(policy, dict(inputs))
            loss.backward()
        for key, parameter in policy.named_parameters():
            tensors[f"{name}.{key}"] = parameter.grad.detach().clone()
        print(name, "loss", loss.item())
    save_file(tensors, pathlib.Path(__file__).with_name("trl.safetensors"))


if __name__ == "__main__":
    main()
