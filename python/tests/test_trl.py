"""TRL's GRPOTrainer, fed by a store: it learns what it would learn from the same rollouts in memory."""

import threading
import types

import numpy as np
import pytest

import forebay

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

import forebay.trl  # noqa: E402
from forebay.trl import RolloutSource  # noqa: E402

VOCABULARY, GROUP, GROUPS, STEPS = 16, 4, 2, 3
COLUMNS = {
    "prompt": "list<int64>",
    "response": "list<int64>",
    "logprobs": "list<float32>",
    "mask": "list<int64>",
    "reward": "float32",
}


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1")


def model():
    torch.manual_seed(11)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=8, max_position_embeddings=64, pad_token_id=0, eos_token_id=1,
        )  # fmt: skip
    )


def rollouts(version: int) -> dict[str, list]:
    """Made-up rollouts of one version: whole groups, in the order of their sample ids."""
    random = np.random.default_rng(version)
    lengths = random.integers(2, 6, GROUP * GROUPS)
    return {
        "prompt": [[2, 3, 4 + row // GROUP] for row in range(GROUP * GROUPS)],
        "response": [random.integers(2, VOCABULARY, length).tolist() for length in lengths],
        "logprobs": [np.log(random.uniform(0.03, 0.09, length)).astype(np.float32).tolist() for length in lengths],
        "mask": [[1] * (length - 1) + [version % 2] for length in lengths],
        "reward": random.integers(0, 4, GROUP * GROUPS).astype(np.float32).tolist(),
    }


def trainer(path, steps=STEPS, **functions):
    arguments = trl.GRPOConfig(
        output_dir=str(path), per_device_train_batch_size=GROUP * GROUPS, num_generations=GROUP, max_steps=steps,
        learning_rate=0.05, use_cpu=True, report_to=[], save_strategy="no", bf16=False, seed=3, disable_tqdm=True,
    )  # fmt: skip
    placeholders = datasets.Dataset.from_dict({"prompt": [f"w{n}" for n in range(2, 2 + GROUPS * STEPS)]})
    return trl.GRPOTrainer(
        model=model(), args=arguments, train_dataset=placeholders, processing_class=tokenizer(), **functions
    )


def learned_from_memory(path) -> dict[str, torch.Tensor]:
    batches = iter(range(STEPS))

    def rollout(prompts, trainer):
        rows = rollouts(next(batches))
        return {
            "prompt_ids": rows["prompt"],
            "completion_ids": rows["response"],
            "logprobs": rows["logprobs"],
            "env_mask": rows["mask"],
            "reward": rows["reward"],
        }

    memory = trainer(path, rollout_func=rollout, reward_funcs=lambda reward, **_: reward)
    memory.train()
    return memory.model.state_dict()


@pytest.fixture
def solver(store):
    return store.create_table("solver", COLUMNS)


@pytest.fixture
def train(store, solver):
    ready = ["response", "logprobs", "reward"]
    return store.create_consumer("train", tables=["solver"], kind="trainer", ready=ready, group=("input_id", GROUP))


def insert(solver, version: int):
    samples = [f"q{row // GROUP}_0_{row % GROUP}" for row in range(GROUP * GROUPS)]
    solver.insert(policy_version=version, sample_ids=samples, **rollouts(version))


def test_the_trainer_learns_what_it_learns_from_memory(store, solver, train, tmp_path):
    logged = []

    def roll_out():
        """Another thread samples with the version that there is, and waits for the next."""
        for version in range(STEPS):
            while store.policy_version("solver") < version:
                committed.wait(60)
                committed.clear()
            insert(solver, version)

    committed = threading.Event()
    sampler = threading.Thread(target=roll_out)
    sampler.start()

    def log(record, step):
        logged.append((step, record["forebay/rows"]))
        committed.set()

    with RolloutSource(store, train, size=GROUP, mask="mask", timeout=60, log=log) as source:
        callbacks = [source.callback]
        fed = trainer(
            tmp_path, rollout_func=source.rollouts, reward_funcs=source.rewards, callbacks=callbacks
        )
        fed.train()
    sampler.join()
    assert logged == [(step + 1, GROUP * GROUPS) for step in range(STEPS)]
    assert store.policy_version("solver") == STEPS
    expected = learned_from_memory(tmp_path)
    assert all(torch.equal(weights, expected[name]) for name, weights in fed.model.state_dict().items())
    untrained = model().state_dict()
    assert any(not torch.equal(weights, untrained[name]) for name, weights in expected.items())


def test_a_training_that_fails_gives_its_rows_back(store, solver, train, tmp_path):
    insert(solver, 0)

    def rewards(**_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        with RolloutSource(store, train, size=GROUP, timeout=60) as source:
            trainer(tmp_path, rollout_func=source.rollouts, reward_funcs=rewards).train()
    assert solver.counts()["consumed"] == 0 and store.policy_version("solver") == 0
    with store.step(rows={train: GROUP * GROUPS}) as step:
        assert sum(len(batch) for batch in step.micro_batches(train, GROUP, timeout=60) if not batch.accumulated()) == 8


def test_a_trainer_with_other_groups_is_refused(store, solver, train, tmp_path):
    with RolloutSource(store, train, size=GROUP - 1, timeout=60) as source:
        with pytest.raises(forebay.InputError, match="num_generations=3"):
            trainer(tmp_path, rollout_func=source.rollouts, reward_funcs=source.rewards).train()


def test_rollouts_that_do_not_come_raise(store, solver, train, tmp_path):
    with RolloutSource(store, train, size=GROUP, timeout=0.01) as source:
        with pytest.raises(forebay.WaitTimeout, match='"train"'):
            trainer(tmp_path, rollout_func=source.rollouts, reward_funcs=source.rewards).train()


def test_a_training_that_failed_is_begun_again_with_its_rows(store, solver, train, tmp_path):
    insert(solver, 0)
    failures = iter([ZeroDivisionError()])
    trained = []

    def rewards(reward, sample_ids, **_):
        if failure := next(failures, None):
            raise failure
        trained.extend(sample_ids)
        return reward

    with RolloutSource(store, train, size=GROUP, timeout=10) as source:
        functions = {"rollout_func": source.rollouts, "reward_funcs": rewards, "callbacks": [source.callback]}
        with pytest.raises(ZeroDivisionError):
            trainer(tmp_path, steps=1, **functions).train()
        trainer(tmp_path, steps=1, **functions).train()
    assert len(set(trained)) == solver.counts()["consumed"] == GROUP * GROUPS
    assert store.policy_version("solver") == 1


PROMPTS = ["w2"] * (GROUP * GROUPS)


def asking():
    """What a source looks at of the trainer that asks it for completions."""
    return types.SimpleNamespace(model=types.SimpleNamespace(training=True), num_generations=GROUP)


@pytest.mark.parametrize("error", [forebay.WaitTimeout, KeyboardInterrupt])
def test_rows_that_a_trainer_did_not_get_are_not_consumed(store, solver, train, monkeypatch, error):
    """It takes one group, and what it waits for then does not come, or it is interrupted."""
    insert(solver, 0)
    with RolloutSource(store, train, size=GROUP, timeout=10) as source:
        if error is KeyboardInterrupt:
            plain = forebay.trl._plain

            def interrupted(value):
                monkeypatch.setattr(forebay.trl, "_plain", plain)
                raise KeyboardInterrupt

            monkeypatch.setattr(forebay.trl, "_plain", interrupted)
            prompts = PROMPTS
        else:
            source.timeout = 0.01
            prompts = PROMPTS * 2
        with pytest.raises(error):
            source.rollouts(prompts, asking())
        source.timeout = 10
        given = source.rollouts(PROMPTS, asking())
        assert len(set(given["sample_ids"])) == GROUP * GROUPS
        assert solver.counts()["consumed"] == 0 and store.policy_version("solver") == 0
        source.commit()
    assert solver.counts()["consumed"] == GROUP * GROUPS and store.policy_version("solver") == 1


def test_a_commit_that_could_not_be_made_may_be_made_again(store, solver, train):
    insert(solver, 0)
    failures = iter([forebay.RetryError("later")])

    def updates(_):
        if failure := next(failures, None):
            raise failure
        return {"solver": None}

    with RolloutSource(store, train, size=GROUP, timeout=10, updates=updates) as source:
        source.rollouts(PROMPTS, asking())
        with pytest.raises(forebay.RetryError, match="later"):
            source.commit()
        source.commit()
        source.commit()
    assert solver.counts()["consumed"] == GROUP * GROUPS and store.policy_version("solver") == 1


def test_a_step_moves_the_policies_of_its_own_tables_alone(store, solver):
    critic = store.create_table("critic", COLUMNS)
    ready = ["response", "logprobs", "reward"]
    both = store.create_consumer("both", tables=["solver", "critic"], kind="trainer", ready=ready, group=("input_id", GROUP))
    with RolloutSource(store, both, size=GROUP, timeout=10) as source:
        for table in (solver, critic):
            insert(table, 0)
            source.rollouts(PROMPTS, asking())
            source.commit()
    assert [store.policy_version(name) for name in ("solver", "critic")] == [1, 1]


@pytest.mark.parametrize("left", [(2, 2), (3, 4, 4)], ids=["two halves in one batch", "more rows than were asked for"])
def test_a_group_that_lost_members_is_refused_and_not_mixed_with_another(store, solver, train, left):
    """By its default rule a group goes on with those who are left, and two of them fill the place of one."""
    values = {name: rows[:GROUP] for name, rows in rollouts(0).items()}
    for group, count in enumerate(left):
        rows = solver.insert(policy_version=0, sample_ids=[f"q{group}_0_{row}" for row in range(GROUP)], **values)
        solver.exclude(rows[count:], "failed")
    with RolloutSource(store, train, size=GROUP, timeout=10) as source:
        with pytest.raises(forebay.InputError, match='member_fails="exclude"'):
            source.rollouts(PROMPTS, asking())
    assert solver.counts()["consumed"] == 0


def test_groups_that_lost_members_are_left_out_where_the_consumer_says_so(store, solver):
    ready = ["response", "logprobs", "reward"]
    whole = store.create_consumer(
        "whole", tables=["solver"], kind="trainer", ready=ready, group=("input_id", GROUP), member_fails="exclude"
    )
    insert(solver, 0)
    solver.exclude(solver.find(policy_version=0, sample_ids=["q0_0_3"]), "failed")
    with RolloutSource(store, whole, size=GROUP, timeout=10) as source:
        given = source.rollouts(PROMPTS[:GROUP], asking())
        assert given["sample_ids"] == [f"q1_0_{row}" for row in range(GROUP)]
