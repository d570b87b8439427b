"""The update: division, clip and AdamW over flat buffers against torch's own, and how many operations they are."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import AdamW, NonFiniteGradientError, Trainer  # noqa: E402
from tiny import difference, gradients, micro_batch, qwen, unchanged  # noqa: E402

SETTINGS = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
STEPS = 10


def reference(model, decay: str):
    """torch's AdamW over fp32 copies of the parameters, one by one."""
    masters = {name: p.detach().float().clone().requires_grad_() for name, p in model.named_parameters()}
    decayed = [p for p in masters.values() if decay == "all" or p.dim() >= 2]
    rest = [p for p in masters.values() if not (decay == "all" or p.dim() >= 2)]
    groups = [{"params": decayed}, {"params": rest, "weight_decay": 0.0}] if rest else [{"params": decayed}]
    return masters, torch.optim.AdamW(groups, **SETTINGS, foreach=False, fused=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("decay", ["all", "matrices"])
@pytest.mark.parametrize("max_norm", [None, 0.05])
def test_ten_updates_are_those_of_torch_on_the_same_gradients(dtype, decay, max_norm):
    trainer = Trainer(qwen(dtype=dtype), optimizer=AdamW(**SETTINGS, decay=decay), max_gradient_norm=max_norm)
    masters, optimizer = reference(trainer.model, decay)
    for step in range(STEPS):
        for part in micro_batch(seed=step).passes(4):
            trainer.accumulate(part)
        for name, gradient in gradients(trainer).items():
            masters[name].grad = gradient / trainer.cache.denominator
        norm = float(torch.nn.utils.clip_grad_norm_(masters.values(), max_norm or float("inf")))
        update = trainer.commit()
        optimizer.step()
        assert update.gradient_norm == pytest.approx(norm, rel=1e-5)
        assert update.is_clipped == (max_norm is not None and norm > max_norm)
    for segment, master in trainer.optimizer.masters():
        for entry in segment.entries:
            mine = master[entry.offset : entry.end].view(entry.shape)
            assert difference(mine, masters[entry.name].detach()) < 1e-6, entry.name
            assert torch.equal(trainer.weights()[entry.name], mine.to(dtype))  # the weights are its rounding
    assert max_norm is None or update.is_clipped


@pytest.mark.parametrize("decay", ["all", "matrices"])
def test_weights_of_several_types_are_one_update(decay):
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4).to(torch.bfloat16), torch.nn.Linear(4, 3), torch.nn.Linear(3, 2).half())
    trainer = Trainer(model, optimizer=AdamW(**SETTINGS, decay=decay), max_gradient_norm=0.5)
    masters, optimizer = reference(model, decay)
    for _ in range(STEPS):
        weights = {name: torch.randn(parameter.shape) for name, parameter in model.named_parameters()}
        trainer.add(sum((p.float() * weights[name]).sum() for name, p in model.named_parameters()), 2.0)
        for name, gradient in gradients(trainer).items():
            assert difference(gradient, weights[name]) < 1e-2
            masters[name].grad = gradient / 2.0
        torch.nn.utils.clip_grad_norm_(masters.values(), 0.5)
        optimizer.step()
        assert trainer.commit().is_clipped
    assert {segment.dtype for segment in trainer.layout.segments} == {torch.bfloat16, torch.float16, torch.float32}
    for name, view in trainer.weights().items():
        assert difference(view.float(), masters[name].detach().to(view.dtype).float()) < 1e-6, name


def test_small_updates_of_bf16_weights_are_not_lost():
    linear = torch.nn.Linear(2, 2, bias=False).to(torch.bfloat16)
    torch.nn.init.ones_(linear.weight)
    trainer = Trainer(linear, optimizer=AdamW(lr=1e-3, weight_decay=0.0))
    for _ in range(20):  # each is below half of the distance to the next number of bf16
        trainer.add(linear.weight.sum(), 1.0)
        trainer.commit()
    assert float(linear.weight.detach().mean()) == pytest.approx(0.98, abs=0.004)


def test_what_lies_between_tensors_stays_zero():
    trainer = Trainer(qwen(dtype=torch.bfloat16), optimizer=AdamW(lr=0.1))
    for step in range(3):
        trainer.accumulate(micro_batch(seed=step))
        trainer.commit()
    for name, flat in trainer._buffers().items():
        kept = torch.ones(flat.numel(), dtype=torch.bool)
        for entry, start in trainer.layout.placed():
            kept[start : start + entry.elements] = False
        assert not flat[kept].any(), name


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_changes_nothing(wrong):
    trainer, batch = Trainer(qwen(), optimizer=AdamW(lr=0.1)), micro_batch()
    trainer.accumulate(batch)
    trainer.add(trainer.model.model.norm.weight.sum() * wrong, 1.0)
    with unchanged(trainer):
        with pytest.raises(NonFiniteGradientError, match="'model.norm.weight' and 0 more.*2 micro-batches.*drop"):
            trainer.commit()
    assert trainer.version == 0
    trainer.drop()
    trainer.accumulate(batch)
    assert trainer.commit().version == 1


def test_a_commit_of_nothing_is_refused():
    trainer = Trainer(qwen())
    with pytest.raises(forebay.StateError, match="nothing to commit"):
        trainer.commit()
    nobody = {**micro_batch().tensors(), "loss_mask": torch.zeros(8, 12)}
    trainer.accumulate(type(micro_batch()).of(**nobody))
    with unchanged(trainer):
        with pytest.raises(forebay.StateError, match="1 micro-batches with a denominator of 0.0"):
            trainer.commit()


def test_the_learning_rate_may_be_that_of_one_update():
    one, other = Trainer(qwen(), optimizer=AdamW(lr=0.5)), Trainer(qwen(), optimizer=AdamW(lr=0.01))
    for trainer in (one, other):
        trainer.accumulate(micro_batch())
    one.commit(lr=0.01)
    other.commit()
    assert one.weight_fingerprint() == other.weight_fingerprint()


VIEWS = {"view", "reshape", "slice", "select", "expand", "as_strided", "detach", "alias", "_unsafe_view", "narrow", "_reshape_alias"}
"""Operations that only describe memory: on a device they launch nothing."""


def operations(call) -> int:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        call()
    names = [event.name.removeprefix("aten::") for event in found.events() if event.name.startswith("aten::")]
    return sum(name not in VIEWS for name in names)


class Loss(torch.autograd.Function):
    """A loss whose backward pass makes each gradient by one operation."""

    @staticmethod
    def forward(context, *parameters):
        context.sizes = [len(parameter) for parameter in parameters]
        return torch.zeros(())

    @staticmethod
    def backward(context, _):
        return tuple(torch.ones(size) for size in context.sizes)


def a_step_of(tensors: int) -> tuple[int, int, int]:
    """For so many tensors of equal bytes together: the operations of a backward pass, of a micro-batch with it, and of a commit."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(60_000 // tensors)) for _ in range(tensors)])
    plain = copy.deepcopy(model)
    backward = operations(lambda: Loss.apply(*plain).backward())
    trainer = Trainer(model)
    for _ in range(2):
        accumulate = operations(lambda: trainer.add(Loss.apply(*model), 1.0))
        commit = operations(trainer.commit)
    return backward, accumulate, commit


def test_operations_do_not_grow_with_the_number_of_tensors():
    # FX-70
    (few_backward, few, few_commit), (many_backward, many, many_commit) = a_step_of(10), a_step_of(10_000)
    print(f"10 and 10,000 tensors: backward pass {few_backward} and {many_backward} operations")
    print(f"gradients to the cache: {few - few_backward} and {many - many_backward}; commit: {few_commit} and {many_commit}")
    assert many_backward > 10_000  # what is counted does grow where it is done a tensor
    assert few - few_backward == many - many_backward <= 12
    assert few_commit == many_commit <= 30
