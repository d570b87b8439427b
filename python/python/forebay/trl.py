"""Rollouts of a store for TRL's ``GRPOTrainer``.

    with forebay.trl.RolloutSource(store, train, size=8) as source:
        trainer = trl.GRPOTrainer(
            model, args=args, train_dataset=placeholders,
            rollout_func=source.rollouts, reward_funcs=source.rewards, callbacks=[source.callback],
        )
        trainer.train()

Others make the rollouts: they read ``store.policy_version(...)``, sample, and write prompts, completions and rewards as they are
known. The trainer waits for whole groups and takes the completions that are there; so the prompts of its data set only say how
many it wants, a group each (``num_generations`` times the same). A group that has lost a member is refused: the trainer compares
rewards within each ``num_generations`` rows that follow on each other, and those would be of two groups.

A step of the store is one batch of generations of the trainer. It is committed, and the policy moved on by one version, when the
trainer asks for the next one or has ended: until then an exception, or the end of the process, gives its rows back. A training that
failed has committed nothing of its last batch, and the next one of the same source begins with these rows again. With
``num_iterations`` or ``steps_per_generation`` above 1 the trainer's own steps are more, and the versions are counted by batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback

from ._forebay import Batch, Consumer, Step, Store
from .errors import InputError, StateError

__all__ = ["RolloutSource"]


class RolloutSource:
    """What ``GRPOTrainer`` calls for completions and for their rewards.

    consumer: a trainer of the store, whose groups have ``num_generations`` rows, with ``member_fails="exclude"`` (or
        ``"next_attempt"``) where a member may fail.
    size: rows a group, and so ``GRPOConfig.num_generations``.
    prompt, completion, logprobs, reward: the columns: token ids (lists of integers), log-probabilities of the sampler (or
        ``None``: then the trainer corrects for nothing), and a number a row.
    mask: a column of 0 and 1 a token of the completion; 0 was not said by the model, and is not trained on.
    columns: more columns, which reward functions of yours get by name; ``sample_ids`` they get always.
    timeout: how long to wait for a group, in seconds; ``None`` waits as long as it takes.
    updates: what ``Step.commit`` gets; called with the trainer. Default: moves the policy of the table's name.
    log: as for ``Store.step``.
    """

    def __init__(
        self,
        store: Store,
        consumer: Consumer | str,
        *,
        size: int,
        prompt: str = "prompt",
        completion: str = "response",
        logprobs: str | None = "logprobs",
        reward: str = "reward",
        mask: str | None = None,
        columns: Sequence[str] = (),
        timeout: float | None = None,
        updates: Callable[[Any], Mapping[str, Any]] | None = None,
        log: Callable[[dict[str, float], int], object] | None = None,
    ) -> None:
        self.store, self.consumer, self.size = store, consumer, size
        self.fields = {"prompt_ids": prompt, "completion_ids": completion, "reward": reward}
        self.fields |= {"logprobs": logprobs} if logprobs else {}
        self.fields |= {"env_mask": mask} if mask else {}
        self.fields |= {column: column for column in columns}
        self.timeout, self.updates, self.log = timeout, updates, log
        self.callback: TrainerCallback = _CommitAtTheEnd(self)
        self._step: Step | None = None
        self._tables: set[str] = set()
        self._trainer: Any = None

    def rollouts(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any] | None]:
        """As many completions as there are prompts: ``GRPOTrainer``'s ``rollout_func``."""
        if not trainer.model.training:
            raise StateError('the store has rollouts to train on, none to evaluate; take eval_strategy="no"')
        if trainer.num_generations != self.size or len(prompts) % self.size:
            raise InputError(
                f"groups have {self.size} rows, and the trainer asks for {len(prompts)} completions in groups of "
                f"{trainer.num_generations}; give num_generations={self.size} and a batch of whole groups"
            )
        self.commit()
        self._trainer, self._tables = trainer, set()
        step = self._step = self.store.step(rows={self.consumer: len(prompts)}, log=self.log)
        try:
            taken = self._take(step)
        except BaseException:
            self.abandon()  # the trainer gets none of it, so nothing of it is ever to be committed
            raise
        return taken if "logprobs" in taken else {**taken, "logprobs": None}

    def _take(self, step: Step) -> dict[str, Any]:
        taken: dict[str, Any] = {name: [] for name in (*self.fields, "sample_ids")}
        for batch in step.micro_batches(self.consumer, self.size, timeout=self.timeout):
            self._refuse_other_groups(batch)
            self._tables.add(batch.table)
            for name, column in self.fields.items():
                taken[name] += [_plain(value) for value in batch[column]]
            taken["sample_ids"] += batch.sample_ids
            batch.accumulated()  # without a lease: the trainer may take its time, and its end gives the rows back
        return taken

    def _refuse_other_groups(self, batch: Batch) -> None:
        """What is not one whole group: the trainer would take the mean of other rewards, and say nothing."""
        groups = set(zip(batch["group_key"], batch["policy_version"].tolist()))
        if len(batch) == self.size and len(groups) == 1:
            return
        found = ", ".join(f"{key!r} of policy version {version}" for key, version in sorted(groups, key=str))
        raise InputError(
            f"a micro-batch of {batch.consumer!r} has {len(batch)} rows of the groups {found}, and the trainer takes one whole "
            f"group of {self.size} at a time: some have lost members; create the consumer with "
            f'member_fails="exclude", which leaves such groups out, or with "next_attempt" and insert the failed rows again with '
            f"next_attempt=True"
        )

    def rewards(self, completions: list[Any], reward: list[float | None], **_: Any) -> list[float | None]:
        """The rewards that the rows have: ``GRPOTrainer``'s ``reward_funcs``."""
        return reward

    def commit(self) -> None:
        """Commits what the trainer was given last. It calls this by itself. Where it raises the step is open as before, and this may be
        called again."""
        if self._step is None:
            return
        updates = self.updates(self._trainer) if self.updates else dict.fromkeys(sorted(self._tables))
        self._step.commit(updates)
        self._step = None

    def abandon(self) -> None:
        """Gives back what the trainer was given last, if it was not committed."""
        step, self._step = self._step, None
        if step is not None:
            step.abandon()

    def __enter__(self) -> RolloutSource:
        return self

    def __exit__(self, *_: object) -> None:
        """Gives back what was not committed."""
        self.abandon()


class _CommitAtTheEnd(TrainerCallback):
    """The trainer asks for no batch after its last. One that fails does not come to its end, and what it was given is still open when
    the next one begins."""

    def __init__(self, source: RolloutSource) -> None:
        self.source = source

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.source.abandon()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.source.commit()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
