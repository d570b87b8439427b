"""What flat buffers are good for: an update and a copy of n tensors against those of one buffer, and the memory of adapters.

    python python/benches/trainer.py [--elements 8388608]

The same number of elements is cut into 10, 100, 579 and 5000 tensors. A step is what follows the backward pass: gradients into an fp32
cache, the norm, the clip and AdamW; a copy is what storing or publishing weights does. One thread, and its time on a processor: the best
of several runs.
"""

import argparse
import copy
import time

import torch
import transformers

from forebay.trainer import AdamW, Base, Trainer
from forebay.trainer.flat import storage_bytes

TENSORS, RUNS, ADAPTERS = (10, 100, 579, 5000), 9, 8


def best(call, *, before=lambda: None) -> float:
    """The shortest of several runs, in milliseconds of a processor."""
    times = []
    for _ in range(RUNS):
        before()
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times) * 1e3


def tensor_by_tensor(model: torch.nn.ParameterList, foreach: bool):
    """The step as one writes it: a cache a parameter, then torch's norm, clip and AdamW."""
    caches = [torch.zeros_like(parameter) for parameter in model]
    optimizer = torch.optim.AdamW(model, lr=1e-3, foreach=foreach, fused=False)

    def step() -> None:
        gradients = [parameter.grad for parameter in model]
        torch._foreach_add_(caches, gradients) if foreach else [cache.add_(of) for cache, of in zip(caches, gradients)]
        for parameter, cache in zip(model, caches):
            parameter.grad = cache
        torch.nn.utils.clip_grad_norm_(model, 1.0, foreach=foreach)
        optimizer.step()
        torch._foreach_zero_(caches) if foreach else [cache.zero_() for cache in caches]
        for parameter, gradient in zip(model, gradients):
            parameter.grad = gradient

    return step


def flat(trainer: Trainer, gradients: list[torch.Tensor]):
    parameters = list(trainer.subject.trained.items())

    def step() -> None:
        with trainer.cache.folding(trainer.subject.trained):
            for (name, parameter), gradient in zip(parameters, gradients):
                parameter.grad = gradient
                trainer.cache._take(name, parameter)
        trainer.cache.denominator = 1.0
        trainer.commit()

    return step


def compare(tensors: int, elements: int) -> str:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(elements // tensors)) for _ in range(tensors)])
    gradients = [torch.randn_like(parameter) for parameter in model]
    several = copy.deepcopy(model)
    for parameter, gradient in zip(several, gradients):
        parameter.grad = gradient
    times = [best(tensor_by_tensor(several, foreach)) for foreach in (False, True)]
    trainer = Trainer(model, optimizer=AdamW(lr=1e-3))
    times.append(best(flat(trainer, gradients)))
    check = best(trainer.subject.check)
    targets = [torch.empty_like(parameter) for parameter in several]
    one = trainer.subject.weights.buffers[torch.float32]
    target = torch.empty_like(one)
    with torch.no_grad():
        copies = [best(lambda: [to.copy_(of) for to, of in zip(targets, several)]), best(lambda: target.copy_(one))]
    return (
        f"{tensors:7} | {times[0]:10.1f} {times[1]:10.1f} {times[2]:8.1f} | {times[0] / times[2]:5.1f}x {times[1] / times[2]:5.1f}x | "
        f"{copies[0]:8.2f} {copies[1]:8.2f} {copies[0] / copies[1]:5.1f}x | {check:8.2f}"
    )


def adapters() -> None:
    """Eight adapters over one base, in bf16, by the storages that there are."""
    settings = dict(
        vocab_size=4096, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**settings)).to(torch.bfloat16)
    base = Base(model)
    print(f"\nbase, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters in bf16: {base.bytes / 2**20:.2f} MiB")
    tensors = list(model.parameters())
    print("adapters | all storages, MiB | base + n x small, MiB")
    for number in range(1, ADAPTERS + 1):
        trainer = Trainer(base.adapter(f"agent{number}", rank=8, alpha=16), bucket_bytes=1 << 20)
        own = trainer._buffers()
        tensors += [*own.values(), trainer.cache.packed]
        small = sum(trainer.bytes.values())
        expected = base.bytes + number * small
        print(f"{number:8} | {storage_bytes(*tensors) / 2**20:17.2f} | {expected / 2**20:21.2f}")
        assert storage_bytes(*tensors) == expected
    print("one adapter, MiB: " + ", ".join(f"{name} {size / 2**20:.2f}" for name, size in trainer.bytes.items()))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--elements", type=int, default=1 << 23)
    elements = arguments.parse_args().elements
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, CPU, {elements} elements in fp32; milliseconds")
    print("tensors | step: each  foreach     flat |  each/flat foreach/flat | copy: each  one  ratio | check of addresses")
    for tensors in TENSORS:
        print(compare(tensors, elements), flush=True)
    adapters()


if __name__ == "__main__":
    main()
