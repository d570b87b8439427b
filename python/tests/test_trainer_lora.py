"""Adapters: many over one frozen base, each with a trainer of its own."""

import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import (  # noqa: E402
    AdamW,
    Base,
    DirectoryStateStore,
    LayoutError,
    ParameterChangedError,
    PeftBase,
    PolicyGradient,
    Trainer,
)
from forebay.trainer.flat import storage_bytes  # noqa: E402
from tiny import difference, gradients, micro_batch, off_policy, qwen, unchanged  # noqa: E402

TARGETS = ["q_proj", "v_proj"]
SETTINGS = dict(optimizer=AdamW(lr=0.02))


def adapters(*names: str, dtype=torch.float32):
    base = Base(qwen(dtype=dtype))
    return base, [base.adapter(name, rank=2, alpha=4, targets=TARGETS, seed=n) for n, name in enumerate(names)]


def of_peft(*names: str):
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, lora_alpha=4, target_modules=TARGETS, task_type="CAUSAL_LM")
    model = peft.get_peft_model(qwen(), settings, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, settings)
    base = PeftBase(model)
    return base, [base.adapter(name) for name in names]


KINDS = pytest.mark.parametrize("make", [adapters, of_peft])


def logits(model, batch):
    with torch.no_grad():
        return model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits


def told(subject, batch):
    with subject.active():
        return logits(subject.model, batch)


@KINDS
def test_a_new_adapter_computes_what_the_base_computes(make):
    # PL-B15: rollouts of step 0 are the base model's.
    batch, plain = micro_batch(), qwen()
    _, (solver,) = make("solver")
    assert torch.equal(told(solver, batch), logits(plain, batch))


@KINDS
def test_each_adapter_learns_from_its_own_rows_alone(make):
    # PL-B15
    base, (solver, verifier) = make("solver", "verifier")
    frozen = {name: parameter.detach().clone() for name, parameter in base.named()}
    trainers = [Trainer(subject, **SETTINGS) for subject in (solver, verifier)]
    mine, others = micro_batch(seed=1), micro_batch(seed=2)
    before = trainers[1].weight_fingerprint()
    trainers[0].accumulate(mine)
    trainers[1].accumulate(others)
    assert not torch.equal(trainers[0].cache.flat, trainers[1].cache.flat)
    trainers[0].commit()
    assert trainers[1].weight_fingerprint() == before and trainers[1].cache.rows == 8
    trainers[1].commit()
    assert all(torch.equal(parameter, frozen[name]) for name, parameter in base.named())
    with solver.disabled():
        assert torch.equal(logits(base.model, mine), logits(qwen(), mine))  # the base is what it was
    assert not torch.equal(told(solver, mine), told(verifier, mine))
    alone, (only,) = make("solver")
    trainer = Trainer(only, **SETTINGS)
    trainer.restore({name: payload for name, payload in trainers[0].state().items()})
    assert torch.equal(told(only, mine), told(solver, mine))  # an adapter's state is all of it


def test_gradients_of_an_adapter_are_those_of_the_product():
    base, (solver,) = adapters("solver")
    batch = micro_batch()
    trainer = Trainer(solver, objective=PolicyGradient())
    torch.manual_seed(0)
    for name, parameter in solver.named():
        torch.nn.init.normal_(parameter, std=0.1)
    trainer.adopt()
    trainer.accumulate(batch)
    merged = qwen()
    views = trainer.weights()
    layers = {name.removesuffix(".lora_A.weight") for name in views if name.endswith("lora_A.weight")}
    assert len(layers) == 4
    pairs = {layer: (views[f"{layer}.lora_A.weight"], views[f"{layer}.lora_B.weight"]) for layer in layers}
    with torch.no_grad():
        for layer, (a, b) in pairs.items():
            merged.get_submodule(layer).weight += 2.0 * b @ a  # alpha / rank
    objective = PolicyGradient()
    objective(objective.logprobs(merged, batch), batch).value.backward()
    found = gradients(trainer)
    for layer, (a, b) in pairs.items():
        whole = merged.get_submodule(layer).weight.grad
        assert difference(found[f"{layer}.lora_A.weight"], 2.0 * b.T @ whole) < 1e-4
        assert difference(found[f"{layer}.lora_B.weight"], 2.0 * whole @ a.T) < 1e-4


@KINDS
def test_the_base_is_the_reference_of_a_penalty(make):
    _, (_, solver) = make("other", "solver")
    batch = micro_batch()
    trainer = Trainer(solver, objective=PolicyGradient(kl=0.5), **SETTINGS)
    for _ in range(2):
        trainer.accumulate(batch)
        update = trainer.commit()
    assert update.metrics["kl"] > 0  # it has moved away from the base
    reference = trainer.reference_logprobs(batch)
    assert torch.equal(reference, PolicyGradient().logprobs(qwen(), batch).detach())
    assert not torch.equal(reference, trainer.logprobs(batch))
    trainer.accumulate(batch)
    by_itself = trainer.cache.flat.clone()
    trainer.drop()
    trainer.accumulate(batch.with_reference(reference))
    assert torch.equal(trainer.cache.flat, by_itself)


def test_eight_adapters_take_the_base_once_and_eight_times_the_little_that_is_trained():
    base, subjects = adapters(*(f"agent{n}" for n in range(8)), dtype=torch.bfloat16)
    own = base.bytes
    assert own == sum(-(-p.numel() // 128) * 128 * 2 for p in set(base.model.parameters()) if not p.requires_grad)
    trainers = [Trainer(subject, bucket_bytes=1, **SETTINGS) for subject in subjects]
    small = {sum(trainer.bytes.values()) for trainer in trainers}
    assert len(small) == 1
    tensors = list(base.model.parameters())
    for trainer in trainers:
        tensors += [payload.memory for name, payload in trainer.state().items() if name not in ("counters", "rng.cpu")]
    assert storage_bytes(*tensors) == own + 8 * small.pop()
    for trainer in trainers:
        trainer.accumulate(micro_batch())
        trainer.commit()
    assert storage_bytes(*tensors) == storage_bytes(*base.model.parameters(), *tensors)  # training took no more


def test_switching_copies_nothing():
    base, subjects = adapters("a", "b")
    before = {name: parameter.data_ptr() for name, parameter in base.model.named_parameters()}
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        operations = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.operations += 1
            return function(*args, **(kwargs or {}))

    with Counting() as counting:
        for subject in subjects:
            with subject.active(), subject.disabled():
                pass
    assert counting.operations == 0
    assert before == {name: parameter.data_ptr() for name, parameter in base.model.named_parameters()}


@KINDS
def test_one_thread_at_a_time_has_the_base(make):
    base, subjects = make("a", "b")

    def is_free() -> bool:
        found = []
        other = threading.Thread(target=lambda: found.append(base.lock.acquire(blocking=False) and base.lock.release() is None))
        other.start()
        other.join()
        return found[0]

    assert is_free()
    for within in (subjects[0].active, subjects[1].disabled):
        with within():
            assert not is_free()
    assert is_free()


def test_trainers_of_one_base_may_be_used_from_several_threads():
    parts = micro_batch().passes(2)
    found = []
    for is_threaded in (False, True):
        _, subjects = adapters("a", "b", "c")
        trainers = [Trainer(subject, **SETTINGS) for subject in subjects]
        work = lambda trainer: [trainer.accumulate(part) for part in parts] and trainer.commit()
        threads = [threading.Thread(target=work, args=(trainer,)) for trainer in trainers]
        for thread in threads:
            thread.start() if is_threaded else thread.run()
        [thread.join() for thread in threads if is_threaded]
        found.append([trainer.weight_fingerprint() for trainer in trainers])
    assert found[0] == found[1] and len(set(found[0])) == 3


def test_a_base_that_was_moved_is_noticed_by_every_adapter():
    base, subjects = adapters("a", "b")
    trainers = [Trainer(subject) for subject in subjects]
    base.model.model.norm.weight.data = base.model.model.norm.weight.data.clone()
    for trainer in trainers:
        with pytest.raises(ParameterChangedError, match="'model.norm.weight'.*adopt"):
            trainer.accumulate(micro_batch())
    trainers[0].adopt()
    for trainer in trainers:
        trainer.accumulate(micro_batch())


def test_checkpointed_layers_compute_with_the_adapter_again():
    found = []
    for is_checkpointed in (False, True):
        base, subjects = adapters("a", "b")
        base.model.train()
        if is_checkpointed:
            base.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        trainer = Trainer(subjects[1], **SETTINGS)
        for _ in range(2):
            trainer.accumulate(micro_batch())
            trainer.commit()
        found.append(trainer.subject.weights.buffers[torch.float32].clone())
    assert difference(*found) < 1e-5


def test_a_compiled_base_computes_with_the_adapter_that_is_active():
    found = []
    for is_compiled in (False, True):
        base, subjects = adapters("a", "b")
        if is_compiled:
            base.model.compile(backend="aot_eager")
        trainers = [Trainer(subject, **SETTINGS) for subject in subjects]
        for seed in (1, 2):
            for number, trainer in enumerate(trainers):
                trainer.accumulate(micro_batch(seed=seed + number))
                trainer.commit()
        found.append([trainer.subject.weights.buffers[torch.float32].clone() for trainer in trainers])
    assert not torch.equal(*found[0])
    assert all(difference(compiled, plain) < 1e-3 for plain, compiled in zip(*found))


def test_an_adapter_is_suspended_and_resumed_beside_others(tmp_path):
    # FX-57
    store = DirectoryStateStore(tmp_path)
    base, subjects = adapters("a", "b")
    one, other = (Trainer(subject, **SETTINGS) for subject in subjects)
    for trainer in (one, other):
        trainer.accumulate(micro_batch(seed=3))
    expected = gradients(one)
    one.suspend(store, "a")
    assert sum(one.bytes.values()) == 0 and base.bytes > 0
    assert other.commit().version == 1  # nothing of it was the other's
    state = store.get("a")[1]
    assert not any(name.startswith("frozen") for name in state)
    one.resume(store, "a")
    assert all(torch.equal(gradient, expected[name]) for name, gradient in gradients(one).items())
    assert one.commit().rows == 8


def test_adapters_are_saved_for_peft_and_read_from_it(tmp_path):
    peft = pytest.importorskip("peft")
    batch = micro_batch()
    _, (solver,) = adapters("solver")
    trainer = Trainer(solver, **SETTINGS)
    trainer.accumulate(batch)
    trainer.commit()
    trainer.save_pretrained(tmp_path / "ours")
    theirs = peft.PeftModel.from_pretrained(qwen(), tmp_path / "ours")
    with torch.no_grad():
        assert torch.allclose(theirs(batch.input_ids).logits, told_plain(solver, batch), atol=1e-6)
    theirs.save_pretrained(tmp_path / "theirs")
    _, (again,) = adapters("other")
    other = Trainer(again, **SETTINGS)
    other.load(tmp_path / "theirs")
    assert other.weight_fingerprint() == trainer.weight_fingerprint()
    base = Base(qwen())
    wider = Trainer(base.adapter("wide", rank=3, targets=TARGETS))
    with unchanged(wider):
        with pytest.raises(LayoutError, match=r"lora_A.weight' has the shape \[2, 16\]"):
            wider.load(tmp_path / "theirs")


@pytest.mark.parametrize("name", ["default", "solver"])
def test_adapters_of_peft_are_saved_and_loaded_by_their_trainers(tmp_path, name):
    peft = pytest.importorskip("peft")
    batch = micro_batch()
    _, (other, solver) = of_peft("other", name)
    trainer = Trainer(solver, **SETTINGS)
    trainer.accumulate(batch)
    trainer.commit()
    trainer.save_pretrained(tmp_path / "saved")
    read = peft.PeftModel.from_pretrained(qwen(), tmp_path / "saved")
    with torch.no_grad():
        assert torch.allclose(read(batch.input_ids).logits, told_plain(solver, batch), atol=1e-6)
    _, (again,) = of_peft("again")
    loaded = Trainer(again, **SETTINGS)
    loaded.load(tmp_path / "saved")
    assert loaded.weight_fingerprint() == trainer.weight_fingerprint()


def told_plain(subject, batch):
    with subject.active(), torch.no_grad():
        return subject.model(batch.input_ids).logits


def test_an_adapter_of_peft_learns_what_ours_learns():
    _, (theirs,) = of_peft("default")
    _, (ours,) = adapters("ours")
    one, other = Trainer(ours, **SETTINGS), Trainer(theirs, **SETTINGS)
    assert one.layout.elements == other.layout.elements
    by_name = {name.removeprefix("base_model.model."): view for name, view in other.weights().items()}
    assert by_name.keys() == one.weights().keys()
    with torch.no_grad():
        for name, view in one.weights().items():
            by_name[name].copy_(view)
    for seed in range(3):
        for trainer in (one, other):
            trainer.accumulate(micro_batch(seed=seed))
            trainer.commit()
    for name, view in one.weights().items():
        assert difference(by_name[name], view) < 1e-4, name


def test_a_base_of_peft_that_trains_more_than_adapters_is_refused():
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=TARGETS, modules_to_save=["norm"], task_type="CAUSAL_LM")
    with pytest.raises(forebay.InputError, match="norm.*modules_to_save"):
        PeftBase(peft.get_peft_model(qwen(), settings))


def test_wrong_adapters_are_refused():
    base, _ = adapters("solver")
    for call, message in {
        lambda: base.adapter("solver"): "'solver'.*there are",
        lambda: base.adapter("a.b"): "'a.b'",
        lambda: base.adapter("a", rank=0): "rank=0",
        lambda: base.adapter("a", targets=["nothing"]): "nothing",
        lambda: base.using("nobody").__enter__(): "'nobody'",
        lambda: PeftBase(qwen()): "no peft.PeftModel",
    }.items():
        with pytest.raises(forebay.InputError, match=message):
            call()


def test_a_removed_adapter_leaves_nothing_behind():
    base, _ = adapters("a", "b")
    base.remove("a")
    assert not any(".a." in name for name, _ in base.model.named_parameters())
    base.adapter("a", rank=2, targets=TARGETS)


def test_off_policy_rows_train_an_adapter_too():
    _, (solver,) = adapters("solver")
    trainer = Trainer(solver, objective=PolicyGradient(kl=0.1, importance_cap=2.0), **SETTINGS)
    trainer.accumulate(off_policy(solver.model, micro_batch()))
    assert trainer.commit().metrics["importance_weight"] > 0


# What an adapter is of


def trainer_over(seed=11, alpha=4, rank=2, peft=False):
    if peft:
        library = pytest.importorskip("peft")
        settings = library.LoraConfig(r=rank, lora_alpha=alpha, target_modules=TARGETS, task_type="CAUSAL_LM")
        return Trainer(PeftBase(library.get_peft_model(qwen(seed=seed), settings)).adapter("default"), **SETTINGS)
    return Trainer(Base(qwen(seed=seed)).adapter("solver", rank=rank, alpha=alpha, targets=TARGETS, seed=1), **SETTINGS)


@pytest.mark.parametrize("peft", [False, True])
@pytest.mark.parametrize("other, message", [({"seed": 12}, "adapter has base"), ({"alpha": 400}, "adapter has alpha 4.0, and this one 400.0")])
@pytest.mark.parametrize("is_empty", [True, False])
def test_an_adapters_state_is_of_its_base_and_its_scale(tmp_path, other, message, is_empty, peft):
    store, trainer = DirectoryStateStore(tmp_path), trainer_over(peft=peft)
    if not is_empty:
        trainer.accumulate(micro_batch())
    trainer.save(store, "a")
    wrong = trainer_over(**other, peft=peft)
    with unchanged(wrong), pytest.raises(LayoutError, match=message):
        wrong.resume(store, "a")
    again = trainer_over(peft=peft)
    again.resume(store, "a")
    assert torch.equal(again.cache.flat, trainer.cache.flat)


@pytest.mark.parametrize("other, message", [({"seed": 12}, "its base is"), ({"alpha": 400}, "its alpha is 400.0.*trained with 4.0")])
def test_an_adapter_is_not_served_over_another_base_or_scale(tmp_path, other, message):
    from forebay.inference import Rotation, read_publication
    from forebay.inference.local import LocalInstance

    store, trainer = DirectoryStateStore(tmp_path), trainer_over()
    trainer.publish(store, "a")
    publication = read_publication(store.get("a")[1])
    for subject, is_right in ((trainer_over().subject, True), (trainer_over(**other).subject, False)):
        error = Rotation([LocalInstance(subject)]).update(publication)["local"]
        assert (error is None) == is_right
    with pytest.raises(type(error), match=message):
        raise error


def test_a_template_of_another_scale_is_refused(tmp_path):
    from forebay.inference import Template, read_publication, write_checkpoint

    store, trainer = DirectoryStateStore(tmp_path / "states"), trainer_over()
    trainer.publish(store, "a")
    publication = read_publication(store.get("a")[1])
    for alpha in (4, 400):
        trainer_over(alpha=alpha).save_pretrained(tmp_path / f"template-{alpha}")
    write_checkpoint(publication, Template(tmp_path / "template-4"), tmp_path / "made")
    with pytest.raises(forebay.InputError, match="lora_alpha 400, and the adapter that was published has 4.0"):
        write_checkpoint(publication, Template(tmp_path / "template-400"), tmp_path / "other")


def compiled(model):
    return torch.compile(model, backend="eager")


def checkpoint_wrapped(model):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    for place, layer in enumerate(model.model.layers):
        model.model.layers[place] = checkpoint_wrapper(layer)
    return model


@pytest.mark.parametrize("wrap", [compiled, checkpoint_wrapped])
def test_an_adapter_of_a_wrapped_base_goes_by_the_names_of_the_plain_one(tmp_path, wrap):
    peft = pytest.importorskip("peft")
    from forebay.inference import read_publication

    store, batch = DirectoryStateStore(tmp_path / "states"), micro_batch()
    wrapped = Trainer(Base(wrap(qwen())).adapter("solver", rank=2, alpha=4, targets=TARGETS, seed=1), **SETTINGS)
    plain = trainer_over()
    assert wrapped.layout.fingerprint == plain.layout.fingerprint
    wrapped.accumulate(batch)
    wrapped.commit()
    wrapped.save_pretrained(tmp_path / "saved")
    theirs = peft.PeftModel.from_pretrained(qwen(), tmp_path / "saved")
    with torch.no_grad():
        made = theirs(batch.input_ids).logits
        assert torch.allclose(made, told_plain(wrapped.subject, batch), atol=1e-5)
        assert not torch.allclose(made, qwen()(batch.input_ids).logits, atol=1e-5)
    wrapped.publish(store, "pub")
    assert read_publication(store.get("pub")[1]).tensors.keys() == plain.weights().keys()
    wrapped.save(store, "state")
    plain.resume(store, "state")
    assert plain.weight_fingerprint() == wrapped.weight_fingerprint()


class Twice(torch.nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


def subclass(linear):
    made = Twice(linear.in_features, linear.out_features, bias=False)
    made.weight = linear.weight
    return made


def hooked(linear):
    linear.register_forward_hook(lambda module, inputs, output: 3 * output)
    return linear


def hooked_before(linear):
    linear.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    return linear


def parametrised(linear):
    class Scaled(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    torch.nn.utils.parametrize.register_parametrization(linear, "weight", Scaled())
    return linear


def patched(linear):
    forward = linear.forward
    linear.forward = lambda input: 2 * forward(input)
    return linear


@pytest.mark.parametrize("change", [subclass, hooked, hooked_before, parametrised, patched])
def test_a_layer_that_computes_something_else_than_a_linear_one_is_refused_by_name(change):
    model, batch = qwen(), micro_batch()
    attention = model.model.layers[1].self_attn
    attention.v_proj = change(attention.v_proj)
    before = logits(model, batch)
    base = Base(model)
    with pytest.raises(forebay.InputError, match=r"'model.layers.1.self_attn.v_proj' (is a|has)"):
        base.adapter("solver", rank=2, targets=TARGETS)
    assert base.adapters == {} and torch.equal(logits(model, batch), before)
    solver = base.adapter("solver", rank=2, targets=["q_proj"])
    assert torch.equal(told(solver, batch), before)


def test_an_adapter_that_was_removed_has_no_state():
    base, (solver,) = adapters("solver")
    trainer = Trainer(solver)
    base.remove("solver")
    with pytest.raises(forebay.StateError, match="'solver' was removed"):
        trainer.state()
    for call in (lambda: trainer.accumulate(micro_batch()), trainer.commit):
        with pytest.raises(forebay.InputError, match="no adapter 'solver'"):
            call()
