"""A call that fails before it has changed anything leaves a trainer whole."""

import json
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import forebay  # noqa: E402
from forebay.trainer import AdamW, LayoutError, TornWeightsError, Trainer  # noqa: E402
from tiny import unchanged  # noqa: E402

INDICES = {
    "a missing shard": json.dumps({"weight_map": {"weight": "model-1.safetensors", "bias": "model-2.safetensors"}}),
    "no json": "{",
    "no map": "{}",
    "a map that is a list": json.dumps({"weight_map": ["model-1.safetensors"]}),
    "a list": "[]",
    "nested": "[" * 100_000,
    "files that are numbers": json.dumps({"weight_map": {"weight": 1}}),
    "files that are lists": json.dumps({"weight_map": {"weight": ["model-1.safetensors"]}}),
}


@pytest.mark.parametrize("case", INDICES)
def test_a_directory_that_is_not_whole_is_refused_and_changes_nothing(tmp_path, case):
    from safetensors.torch import save_file

    trainer = Trainer(torch.nn.Linear(3, 2))
    save_file({"weight": torch.ones(2, 3)}, tmp_path / "model-1.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(INDICES[case])
    with unchanged(trainer), pytest.raises(forebay.CorruptError, match=index.name):
        trainer.load(tmp_path)
    save_file({"bias": torch.ones(2)}, tmp_path / "model-2.safetensors")
    index.write_text(INDICES["a missing shard"])
    trainer.load(tmp_path)
    assert all(bool((weight == 1).all()) for weight in trainer.weights().values())


@pytest.mark.parametrize("lr", ["x", -0.1, math.nan, math.inf, [0.1]])
def test_a_learning_rate_that_is_none_is_refused_and_changes_nothing(lr):
    trainer = Trainer(torch.nn.Linear(3, 2), optimizer=AdamW(lr=0.01))
    trainer.add(trainer.model(torch.ones(3)).sum(), 1.0)
    with unchanged(trainer), pytest.raises(forebay.InputError, match="lr="):
        trainer.commit(lr=lr)
    assert trainer.commit(lr=0.5).version == 1


def test_a_load_that_is_interrupted_while_it_copies_tears(tmp_path):
    trainer = Trainer(torch.nn.Linear(3, 2))
    trainer.save_pretrained(tmp_path / "v0")

    def interrupted():
        raise KeyboardInterrupt

    trainer.optimizer.take_weights = interrupted
    with pytest.raises(KeyboardInterrupt):
        trainer.load(tmp_path / "v0")
    with pytest.raises(TornWeightsError, match="v0"):
        trainer.weights()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_a_file_of_what_are_no_weights_is_refused_and_changes_nothing(tmp_path, dtype):
    from safetensors.torch import save_file

    trainer = Trainer(torch.nn.Linear(3, 2))
    save_file({"weight": torch.ones(2, 3).to(dtype), "bias": torch.ones(2)}, tmp_path / "model.safetensors")
    with unchanged(trainer), pytest.raises(LayoutError, match="'weight' is .*weights are one of F64, F32, BF16, F16"):
        trainer.load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_file_of_another_float_is_cast(tmp_path, dtype):
    from safetensors.torch import save_file

    trainer = Trainer(torch.nn.Linear(3, 2))
    save_file({"weight": torch.ones(2, 3, dtype=dtype), "bias": torch.ones(2, dtype=dtype)}, tmp_path / "model.safetensors")
    trainer.load(tmp_path)
    assert all(bool((weight == 1).all()) for weight in trainer.weights().values())


@pytest.mark.parametrize("denominator", [-1.0, math.nan, math.inf])
def test_a_denominator_that_is_none_is_refused_before_anything_is_computed(denominator):
    trainer = Trainer(torch.nn.Linear(3, 2))
    with unchanged(trainer), pytest.raises(forebay.InputError, match="denominator="):
        trainer.add(trainer.model(torch.ones(3)).sum(), denominator)
    assert trainer.cache.is_empty
