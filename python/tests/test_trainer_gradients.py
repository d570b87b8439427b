"""The gradient cache: what micro-batches add up to, and that it takes gradients from models as people use them."""

import copy
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("transformers")

import forebay  # noqa: E402
from forebay.trainer import (  # noqa: E402
    AdamW,
    DirectoryStateStore,
    MicroBatch,
    PolicyGradient,
    SpoiledCacheError,
    Trainer,
)
from tiny import difference, gradients, micro_batch, off_policy, qwen, unchanged  # noqa: E402

FORMS = {
    "grpo": PolicyGradient(form="grpo"),
    "dapo": PolicyGradient(form="dapo"),
    "dr_grpo": PolicyGradient(form="dr_grpo", length=9),
    "all": PolicyGradient(form="dapo", clip_high=0.28, kl=0.04, importance_cap=2.0),
}


def by_autograd(model, objective, batch) -> dict[str, torch.Tensor]:
    """The gradient of the numerator of a whole batch, by torch alone, on a copy."""
    model = copy.deepcopy(model)
    objective(objective.logprobs(model, batch), batch).value.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3"])
@pytest.mark.parametrize("form", FORMS)
def test_micro_batches_of_any_split_give_the_gradient_of_the_whole_batch(kind, form):
    # FX-30, PL-18
    model = qwen(kind)
    batch = off_policy(model, micro_batch())
    whole = by_autograd(model, FORMS[form], batch)
    for rows in (1, 2, 3, 8):
        trainer = Trainer(copy.deepcopy(model), objective=FORMS[form])
        for part in batch.passes(rows):
            trainer.accumulate(part)
        found = gradients(trainer)
        assert found.keys() == whole.keys()
        joined = [torch.cat([of[name].flatten() for name in whole]) for of in (found, whole)]
        assert difference(*joined) < 1e-6, (rows, difference(*joined))


@pytest.mark.parametrize("form, is_wrong", [("dapo", True), ("dr_grpo", False)])
def test_the_mean_of_means_is_another_gradient_where_token_counts_differ(form, is_wrong):
    # FX-30: plain averaging fails where tokens are what is divided by, and the denominators of the cache do not.
    model, batch = qwen(), micro_batch()
    parts = batch.passes(2)
    assert len({part.tokens for part in parts}) > 1
    objective = FORMS[form]
    mean = lambda part: by_autograd(model, objective, part)["model.norm.weight"] / objective._denominator(part)
    naive = sum(mean(part) for part in parts) / len(parts)
    assert (difference(naive, mean(batch)) > 0.01) == is_wrong
    trainer = Trainer(copy.deepcopy(model), objective=objective)
    for part in parts:
        trainer.accumulate(part)
    right = gradients(trainer)["model.norm.weight"] / trainer.cache.denominator
    assert difference(right, mean(batch)) < 1e-6


def test_weights_do_not_move_before_the_commit():
    # FX-29
    trainer = Trainer(qwen(), optimizer=AdamW(lr=0.01))
    before = trainer.weight_fingerprint()
    for part in micro_batch().passes(2):
        trainer.accumulate(part)
        assert trainer.weight_fingerprint() == before and trainer.version == 0
    assert trainer.commit().version == trainer.version == 1
    assert trainer.weight_fingerprint() != before


@pytest.mark.parametrize("bucket_bytes", [1, 2048, 32 << 20])
def test_buckets_change_no_bit(bucket_bytes):
    model, batch = qwen(dtype=torch.bfloat16), micro_batch()
    caches = []
    for size in (bucket_bytes, 1 << 12):
        trainer = Trainer(copy.deepcopy(model), bucket_bytes=size)
        for part in batch.passes(3):
            trainer.accumulate(part)
        caches.append(trainer.cache.flat.clone())
    assert torch.equal(*caches)


def test_gradients_of_bf16_weights_are_summed_in_fp32():
    # PL-25: 200 times the same small gradient, which a sum in bf16 would lose behind a large one.
    linear = torch.nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    trainer = Trainer(linear)
    for scale in (256.0, *([0.5] * 200)):
        trainer.add((linear.weight * scale).sum(), 1.0)
        assert linear.weight.grad is None
    assert trainer.cache.flat.dtype == torch.float32
    assert gradients(trainer)["weight"].unique().tolist() == [256.0 + 100.0]
    in_bf16 = torch.tensor(256.0, dtype=torch.bfloat16)
    for _ in range(200):
        in_bf16 += 0.5
    assert in_bf16 == 256.0


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_activation_checkpointing_gives_the_same_gradient(reentrant, tied):
    plain, batch = qwen(tied=tied), micro_batch()
    whole = by_autograd(plain, FORMS["dapo"], batch)
    plain.train()
    plain.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    trainer = Trainer(plain, objective=FORMS["dapo"])
    trainer.accumulate(batch)
    found = gradients(trainer)
    assert found.keys() == whole.keys()
    assert all(difference(found[name], whole[name]) < 1e-5 for name in whole)


def test_a_tied_weight_that_reentrant_checkpointing_meets_twice_counts_both_times():
    shared = torch.nn.Linear(4, 4, bias=False)
    parts = torch.nn.ModuleList([shared, torch.nn.Linear(4, 4)])
    trainer = Trainer(parts)
    checkpoint = torch.utils.checkpoint.checkpoint
    x = torch.randn(2, 4, requires_grad=True)
    run = lambda y: checkpoint(shared, checkpoint(shared, y, use_reentrant=True), use_reentrant=True).square().sum()
    trainer.add(run(x), 1.0)
    weight = shared.weight.detach().clone().requires_grad_()
    (x.detach() @ weight.T @ weight.T).square().sum().backward()
    assert difference(gradients(trainer)["0.weight"], weight.grad) < 1e-6


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_models_are_trained(backend, tmp_path):
    plain, batch = qwen(), micro_batch()
    whole = by_autograd(plain, FORMS["dapo"], batch)
    try:
        trainer = Trainer(torch.compile(plain, backend=backend), objective=FORMS["dapo"], optimizer=AdamW(lr=0.01))
        trainer.accumulate(batch)
    except torch._dynamo.exc.BackendCompilerFailed as missing:
        pytest.skip(f"{backend} compiles nothing here: {missing}")
    found = gradients(trainer)
    assert found.keys() == whole.keys()  # the names of the model, not of the wrapper
    assert all(difference(found[name], whole[name]) < 1e-4 for name in whole)
    with torch.no_grad():
        before = plain(batch.input_ids).logits
        trainer.commit()
        assert not torch.equal(trainer.model(batch.input_ids).logits, before)  # it computes with the new weights
        after = trainer.model(batch.input_ids).logits
        assert torch.allclose(after, plain(batch.input_ids).logits, atol=1e-5)
        trainer.suspend(DirectoryStateStore(tmp_path), "key")
        assert trainer.model(batch.input_ids).logits.isnan().all()
        trainer.resume(DirectoryStateStore(tmp_path), "key")
        assert torch.equal(trainer.model(batch.input_ids).logits, after)


def test_no_gradient_stays_on_a_parameter_whatever_zero_grad_does():
    trainer, batch = Trainer(qwen()), micro_batch()
    for set_to_none in (True, False):
        trainer.accumulate(batch)
        assert all(parameter.grad is None for parameter in trainer.model.parameters())
        trainer.model.zero_grad(set_to_none=set_to_none)
    once = Trainer(qwen())
    once.accumulate(batch)
    assert torch.equal(trainer.cache.flat, 2 * once.cache.flat)


def test_parameters_that_a_micro_batch_does_not_use_get_no_gradient():
    experts = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(4)])
    trainer = Trainer(experts)
    trainer.add(experts[2](torch.ones(1, 3)).sum(), 1.0)
    used = {name for name, gradient in gradients(trainer).items() if gradient.any()}
    assert used == {"2.weight", "2.bias"}


def test_a_backward_pass_of_somebody_else_is_left_alone_and_noticed():
    model, batch = qwen(), micro_batch()
    trainer = Trainer(model)
    model(batch.input_ids).logits.sum().backward()
    assert model.model.norm.weight.grad is not None and not trainer.cache.flat.any()
    with pytest.raises(forebay.StateError, match="outside of the trainer.*zero_grad"):
        trainer.accumulate(batch)
    model.zero_grad(set_to_none=True)
    trainer.accumulate(batch)


def test_a_micro_batch_that_fails_before_its_gradient_leaves_the_cache_as_it_was():
    trainer, batch = Trainer(qwen()), micro_batch()
    trainer.accumulate(batch)
    with unchanged(trainer):
        wrong = MicroBatch.of(**{**batch.tensors(), "input_ids": batch.input_ids + 1000})
        with pytest.raises(IndexError):
            trainer.accumulate(wrong)
    trainer.commit()


def test_a_micro_batch_that_fails_halfway_spoils_the_cache():
    trainer, batch = Trainer(qwen(), rows_per_pass=4), micro_batch()
    tokens = batch.input_ids.clone()
    tokens[6] = 1000  # the second pass fails
    with pytest.raises(IndexError):
        trainer.accumulate(MicroBatch.of(**{**batch.tensors(), "input_ids": tokens}))
    for call in (lambda: trainer.accumulate(batch), trainer.commit, trainer.state):
        with pytest.raises(SpoiledCacheError, match="IndexError.*drop"):
            call()
    trainer.drop()
    trainer.accumulate(batch)
    assert trainer.commit().rows == 8


def test_a_named_micro_batch_counts_once():
    trainer, batch = Trainer(qwen()), micro_batch()
    assert trainer.accumulate(batch, claim="first").is_new
    with unchanged(trainer):
        assert not trainer.accumulate(batch, claim="first").is_new
    trainer.commit()
    assert trainer.accumulate(batch, claim="first").is_new  # another step


def test_sparse_gradients_are_refused_with_the_way_out():
    embedding = torch.nn.Embedding(8, 4, sparse=True)
    trainer = Trainer(embedding)
    with pytest.raises(forebay.InputError, match="'weight'.*sparse=False"):
        trainer.add(embedding(torch.tensor([1])).sum(), 1.0)
    trainer.add(embedding.weight.sum(), 1.0)  # nothing was spoiled


def test_passes_of_a_micro_batch_give_its_gradient():
    batch = micro_batch()
    whole, cut = Trainer(qwen()), Trainer(qwen(), rows_per_pass=3)
    assert whole.accumulate(batch) == cut.accumulate(batch)
    assert difference(cut.cache.flat, whole.cache.flat) < 1e-6
    assert cut.cache.denominator == whole.cache.denominator == batch.tokens


def padded(rows: int) -> MicroBatch:
    """Rows of which only the first count; what fills up has no token that is trained on."""
    tensors = micro_batch().tensors()
    tensors["loss_mask"][rows:] = 0
    return MicroBatch(rows=rows, tokens=int(tensors["loss_mask"].sum()), **tensors)


@pytest.mark.parametrize("form, length", [("grpo", None), ("dapo", None), ("dr_grpo", 9)])
@pytest.mark.parametrize("rows", [1, 6, 8])
@pytest.mark.parametrize("rows_per_pass", [1, 4, 8])
def test_rows_that_do_not_count_change_nothing_however_a_micro_batch_is_cut(form, length, rows, rows_per_pass):
    # PL-B14
    found = []
    for cut in (None, rows_per_pass):
        trainer = Trainer(qwen(), objective=PolicyGradient(form=form, length=length), rows_per_pass=cut)
        added = trainer.accumulate(padded(rows))
        found.append((added, trainer.cache.denominator, trainer.cache.flat.clone()))
    (whole, denominator, gradient), (part, of_parts, sum_of_parts) = found
    assert whole == part and whole.rows == rows and denominator == of_parts
    assert difference(sum_of_parts, gradient) < 1e-6


def with_mask(change) -> dict:
    tensors = micro_batch().tensors()
    change(tensors)
    return tensors


BY_HAND = {
    "more rows than there are": (9, None, lambda t: None, "rows=9"),
    "negative rows": (-1, None, lambda t: None, "rows=-1"),
    "other tokens than the mask": (8, 7, lambda t: None, "tokens=7 are not what loss_mask says"),
    "tokens behind the rows that count": (6, None, lambda t: None, "rows that do not count stand behind"),
    "the first token": (8, None, lambda t: t["loss_mask"][:, 0].fill_(1), "first token"),
    "an advantage that is no number": (8, None, lambda t: t["advantages"][3].fill_(math.nan), "advantages of row 3"),
}


@pytest.mark.parametrize("rows_per_pass", [None, 1, 3])
@pytest.mark.parametrize("case", BY_HAND)
def test_a_micro_batch_made_by_hand_that_makes_no_gradient_is_refused_before_anything_is_computed(case, rows_per_pass):
    rows, tokens, change, message = BY_HAND[case]
    tensors = with_mask(change)
    trainer = Trainer(qwen(), rows_per_pass=rows_per_pass)
    with unchanged(trainer), pytest.raises(forebay.InputError, match=message):
        trainer.accumulate(MicroBatch(rows=rows, tokens=int(tensors["loss_mask"].sum()) if tokens is None else tokens, **tensors))
    assert trainer.cache.is_empty
