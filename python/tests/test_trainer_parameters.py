"""Parameters in flat buffers: where they lie, what is refused, and what is noticed when somebody else moves one."""

import copy
import gc
import weakref

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import (  # noqa: E402
    AdamW,
    LayoutError,
    ParameterChangedError,
    ShardedParameterError,
    Trainer,
)
from forebay.trainer.flat import storage_bytes  # noqa: E402
from tiny import gradients, micro_batch, qwen, unchanged  # noqa: E402


def mixed() -> torch.nn.Module:
    """Two types of weights, some frozen, an empty one."""
    torch.manual_seed(4)
    module = torch.nn.Module()
    module.a = torch.nn.Linear(5, 3).to(torch.bfloat16)
    module.b = torch.nn.Linear(3, 7)
    module.c = torch.nn.Linear(7, 2).requires_grad_(False)
    module.none = torch.nn.Parameter(torch.empty(0, 4))
    return module


@pytest.mark.parametrize("make", [qwen, lambda: qwen(dtype=torch.bfloat16), mixed])
@pytest.mark.parametrize("decay", ["all", "matrices"])
def test_parameters_are_views_of_one_buffer_a_type_and_keep_their_values(make, decay):
    before = {name: parameter.detach().clone() for name, parameter in make().named_parameters()}
    model = make()
    objects = {name: parameter for name, parameter in model.named_parameters()}
    trainer = Trainer(model, optimizer=AdamW(decay=decay))
    for name, parameter in model.named_parameters():
        assert parameter is objects[name] and torch.equal(parameter, before[name])
    by_kind: dict[tuple, set[int]] = {}
    for parameter in model.parameters():
        if parameter.numel():
            storage = parameter.untyped_storage().data_ptr()
            assert (parameter.data_ptr() - storage) % 256 == 0
            kind = (parameter.dtype, parameter.requires_grad)
            by_kind.setdefault(kind, set()).add(storage)
    assert all(len(storages) == 1 for storages in by_kind.values())
    for segment in trainer.layout.segments:
        for entry in segment.entries:
            assert (entry.offset < segment.decayed) == (decay == "all" or len(entry.shape) >= 2 or not entry.elements)
            assert (segment.start + entry.offset) * 4 % 256 == 0


def test_tied_weights_lie_in_the_buffer_once():
    trainer = Trainer(qwen(tied=True))
    model = trainer.model
    assert model.lm_head.weight is model.model.embed_tokens.weight
    names = [entry.name for entry in trainer.layout.entries()]
    assert "model.embed_tokens.weight" in names and "lm_head.weight" not in names
    assert "lm_head.weight" in [entry.name for entry in Trainer(qwen(tied=False)).layout.entries()]


def test_frozen_parameters_have_a_buffer_of_their_own_and_do_not_move():
    model = qwen()
    model.model.layers[0].requires_grad_(False)
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    trainer = Trainer(model, optimizer=AdamW(lr=0.1))
    assert frozen and not frozen.keys() & {entry.name for entry in trainer.layout.entries()}
    trainer.accumulate(micro_batch())
    assert gradients(trainer).keys() == {n for n, p in model.named_parameters() if p.requires_grad}
    trainer.commit()
    assert all(torch.equal(model.get_parameter(name), values) for name, values in frozen.items())


def test_fingerprints_of_layouts_stand_for_names_types_and_shapes():
    fingerprints = [
        Trainer(model).layout.fingerprint
        for model in (qwen(), qwen(seed=3), qwen(dtype=torch.bfloat16), qwen(tied=False), qwen("Qwen2"))
    ]
    assert fingerprints[0] == fingerprints[1] and len(set(fingerprints)) == 4


def test_memory_is_that_of_the_buffers_and_no_more():
    model = qwen(dtype=torch.bfloat16)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    trainer = Trainer(model, bucket_bytes=1)
    assert trainer.layout.elements >= numbers and trainer.bytes["packed_gradients"] == 0
    assert sum(trainer.bytes.values()) == trainer.layout.elements * (2 + 4 + 4 + 4 + 4)
    assert storage_bytes(*model.parameters()) == trainer.bytes["weights.bfloat16"]


# What is refused


def overlapping():
    module = mixed()
    module.d = torch.nn.Linear(3, 7)
    module.d.weight.data = module.b.weight.data[:, :]
    return module


def with_parameter(parameter):
    module = torch.nn.Module()
    module.odd = parameter
    return module


class Quantised(torch.nn.Parameter):
    pass


REFUSED = {
    "double": (lambda: torch.nn.Linear(2, 2).double(), forebay.InputError, "'weight' is torch.float64.*model.to"),
    "meta": (lambda: torch.nn.Linear(2, 2, device="meta"), forebay.InputError, "'weight'.*to_empty"),
    "frozen": (lambda: torch.nn.Linear(2, 2).requires_grad_(False), forebay.InputError, "thaw some, or train an adapter"),
    "empty": (lambda: torch.nn.ReLU(), forebay.InputError, "no parameter that requires"),
    "overlapping": (overlapping, forebay.InputError, "'b.weight' and 'd.weight'.*same memory"),
    "subclass": (lambda: with_parameter(Quantised(torch.ones(2))), ShardedParameterError, "'odd' is a Quantised"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_lie_in_a_flat_buffer_is_refused_and_left_alone(case):
    make, error, message = REFUSED[case]
    model = make()
    before = {name: (parameter.data_ptr(), parameter.dtype) for name, parameter in model.named_parameters()}
    with pytest.raises(error, match=message):
        Trainer(model)
    assert {name: (parameter.data_ptr(), parameter.dtype) for name, parameter in model.named_parameters()} == before


def test_too_little_memory_is_a_capacity_error_that_says_how_much_it_was():
    from forebay.trainer.flat import allocate

    with pytest.raises(forebay.CapacityError, match="first moments take 4503599627370496 bytes on cpu.*adapter"):
        allocate(1 << 50, torch.float32, torch.device("cpu"), "first moments")


def test_sharded_parameters_of_fsdp2_are_refused_by_name(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        fully_shard(model, mesh=mesh)
        with pytest.raises(ShardedParameterError, match="'0.weight' is a DTensor.*fully_shard"):
            Trainer(model)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    "options",
    [{"max_gradient_norm": 0}, {"rows_per_pass": 0}, {"max_gradient_norm": float("nan")}],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(forebay.InputError, match=next(iter(options))):
        Trainer(qwen(), **options)


@pytest.mark.parametrize("options", [{"lr": -1}, {"eps": 0}, {"betas": (0.9, 1.0)}, {"weight_decay": -1}, {"decay": "some"}])
def test_settings_of_adamw_out_of_range_are_refused(options):
    with pytest.raises(forebay.InputError, match=next(iter(options))):
        AdamW(**options)


# What is noticed


def assign(model):
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    model.tie_weights()


def load_in_place(model):
    model.load_state_dict(qwen(seed=3).state_dict())


def point_away(model):
    model.model.norm.weight.data = model.model.norm.weight.data.clone()


def another_optimiser(model):
    torch.optim.SGD(model.parameters(), lr=0.0)
    with torch.no_grad():
        model.model.norm.weight.mul_(1.0)


def transpose(model):
    weight = model.model.layers[0].self_attn.q_proj.weight  # a square one
    weight.data = weight.data.t()


def stride(model):
    weight = model.model.norm.weight
    weight.data = weight.data.as_strided((16,), (0,))


def swap(model):
    layers = model.model.layers
    layers[0].self_attn, layers[1].self_attn = layers[1].self_attn, layers[0].self_attn


def swap_memory(model):
    one, other = (layer.mlp.up_proj.weight for layer in model.model.layers)
    one.data, other.data = other.data, one.data


def shift(model):
    """A place that overlaps two others."""
    weight, buffer = model.model.norm.weight, model.model.norm.weight.data
    weight.data = torch.as_strided(buffer, (16,), (1,), buffer.storage_offset() - 8)


CHANGES = {
    "transpose": (transpose, r"q_proj.weight' has the strides \[1, 16\]"),
    "stride": (stride, r"'model.norm.weight' has the strides \[0\]"),
    "swap": (swap, "another object"),
    "swap memory": (swap_memory, "lies in other memory"),
    "shift": (shift, "'model.norm.weight' lies in other memory"),
    "assign": (assign, "embed_tokens.weight.*assign=True"),
    "in place": (load_in_place, "written to by somebody else"),
    "point away": (point_away, "'model.norm.weight' lies in other memory"),
    "another optimiser": (another_optimiser, "'model.norm.weight' was written to"),
    "another trainer": (Trainer, "lies in other memory.*another trainer"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_moves_a_parameter_is_noticed_and_can_be_adopted(change):
    trainer, batch = Trainer(qwen(), optimizer=AdamW(lr=0.01)), micro_batch()
    trainer.accumulate(batch)
    trainer.commit()
    mend, message = CHANGES[change]
    mend(trainer.model)
    values = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    for call in (lambda: trainer.accumulate(batch), lambda: trainer.suspend(None, "key")):
        with pytest.raises(ParameterChangedError, match=f"{message}.*adopt"):
            call()
    trainer.adopt()
    assert all(torch.equal(trainer.weights()[name], value) for name, value in values.items())
    fresh = qwen()
    fresh.load_state_dict({**values, "lm_head.weight": values["model.embed_tokens.weight"]})
    other = Trainer(fresh)
    for each in (trainer, other):
        each.accumulate(batch)
    assert torch.equal(trainer.cache.flat, other.cache.flat)
    assert trainer.commit().version == 2
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    assert any(not torch.equal(trainer.model.get_parameter(name), value) for name, value in values.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotated_layers_are_adopted_with_their_own_values(dtype):
    model = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)]).to(dtype)
    trainer = Trainer(model, optimizer=AdamW(lr=0.0))
    before = [layer.weight.detach().clone() for layer in model]
    model[0], model[1], model[2] = model[1], model[2], model[0]
    trainer.adopt()
    trainer.add(sum(layer.weight.float().sum() for layer in model), 1.0)
    trainer.commit()  # an update of nothing: the master has these values, too
    assert all(torch.equal(layer.weight, before[(place + 1) % 3]) for place, layer in enumerate(model))


def test_a_frozen_and_a_trained_layer_may_change_places():
    model = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).requires_grad_(False)])
    trainer = Trainer(model)
    before = [layer.weight.detach().clone() for layer in model]
    model[0], model[1] = model[1], model[0]
    model[0].requires_grad_(True)
    model[1].requires_grad_(False)
    trainer.adopt()
    assert torch.equal(model[0].weight, before[1]) and torch.equal(model[1].weight, before[0])


def test_a_gradient_of_weights_before_the_last_commit_is_refused():
    trainer = Trainer(qwen(), optimizer=AdamW(lr=0.1))
    stale = trainer.model(micro_batch().input_ids).logits.logsumexp(-1).sum()
    trainer.accumulate(micro_batch())
    trainer.commit()
    with unchanged(trainer), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trainer.add(stale, 1.0)
    trainer.drop()
    trainer.accumulate(micro_batch())
    assert trainer.commit().version == 2


def test_a_change_between_the_last_micro_batch_and_the_commit_is_noticed():
    trainer = Trainer(qwen())
    trainer.accumulate(micro_batch())
    point_away(trainer.model)
    with pytest.raises(ParameterChangedError, match="model.norm.weight"):
        trainer.commit()
    with pytest.raises(forebay.StateError, match="1 micro-batches of these weights.*drop"):
        trainer.adopt()


def test_adopted_values_go_to_the_master_of_narrow_weights():
    trainer, batch = Trainer(qwen(dtype=torch.bfloat16), optimizer=AdamW(lr=0.0)), micro_batch()
    load_in_place(trainer.model)
    trainer.adopt()
    trainer.accumulate(batch)
    trainer.commit()  # an update of nothing: the weights are what was loaded, not what the master was before
    other = qwen(seed=3, dtype=torch.bfloat16)
    assert torch.equal(trainer.weights()["model.embed_tokens.weight"], other.model.embed_tokens.weight)
    assert not torch.equal(other.model.embed_tokens.weight, qwen(dtype=torch.bfloat16).model.embed_tokens.weight)


def test_tied_weights_that_were_parted_over_one_memory_are_refused_with_the_way_out():
    trainer = Trainer(qwen(tied=True))
    trainer.model.load_state_dict(copy.deepcopy(trainer.model.state_dict()), assign=True)
    with pytest.raises(forebay.InputError, match="'lm_head.weight'.*tie_weights"):
        trainer.adopt()
    trainer.model.tie_weights()
    trainer.adopt()


def retype(model):
    model.to(torch.bfloat16)


def freeze(model):
    model.model.norm.weight.requires_grad_(False)


def grow(model):
    model.extra = torch.nn.Linear(2, 2)


def shrink(model):
    del model.model.norm.weight


@pytest.mark.parametrize(
    "change, message",
    [(retype, "has another type|lies in other memory"), (freeze, "was frozen"), (grow, "'extra.weight'"), (shrink, "norm.weight")],
)
def test_other_parameters_than_before_are_noticed_and_need_a_new_trainer(change, message):
    trainer = Trainer(qwen())
    change(trainer.model)
    with pytest.raises(ParameterChangedError, match=message):
        trainer.accumulate(micro_batch())
    with unchanged(trainer):
        with pytest.raises(LayoutError, match="make a new one"):
            trainer.adopt()


def test_a_model_does_not_keep_a_trainer_that_is_gone_alive():
    model = qwen()
    trainer = Trainer(model)
    held = weakref.ref(trainer.cache)
    del trainer
    gc.collect()
    assert held() is None
    again = Trainer(model)
    again.accumulate(micro_batch())
    assert again.cache.flat.any()


def test_a_closed_trainer_takes_no_gradients():
    trainer = Trainer(qwen())
    trainer.close()
    trainer.model(micro_batch().input_ids).logits.sum().backward()
    assert trainer.model.model.norm.weight.grad is not None
