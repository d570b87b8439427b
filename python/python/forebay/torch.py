"""Micro-batches as a dataset of PyTorch.

    with store.step() as step:
        dataset = forebay.torch.IterableDataset(step, train, size=16, columns=["response", "advantage"])
        for tensors in torch.utils.data.DataLoader(dataset, batch_size=None):
            loss(model, tensors["response"], tensors["advantage"]).backward()
        optimizer.step()
        step.commit({"solver": store.policy_version("solver") + 1})

Asking for the next micro-batch says that the gradient of the last one is in the cache (``.grad``, as a rule), as the end of the
loop does. Leaving the loop before gives the last one back, and leaving the step without a commit all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch

from ._forebay import Consumer, Step
from ._torch import Packed
from .errors import StateError

__all__ = ["IterableDataset", "Packed"]

Layout: TypeAlias = Literal["padded", "packed", "nested"]


class IterableDataset(torch.utils.data.IterableDataset):
    """The micro-batches of one trainer in one step: a dict each, of tensors by column.

    columns: the columns, each with one layout for all or its own: ``"padded"`` (filled up with ``pad``), ``"packed"`` or
        ``"nested"``; see ``Batch.torch``. Beside them stand ``sample_ids`` and ``rows_in_gang``.
    device: where the tensors go. Default: the CPU.
    options: as for ``Step.micro_batches``: size, tokens, exact, timeout, rank, world, gang, split.

    It belongs to the process of its step: a ``DataLoader`` over it has ``num_workers=0`` (the default) and
    ``batch_size=None``, since a micro-batch is a batch already. Worker processes are refused with StateError.
    """

    def __init__(
        self,
        step: Step,
        consumer: Consumer | str,
        *,
        columns: Sequence[str] | Mapping[str, Layout],
        layout: Layout = "padded",
        pad: float = 0.0,
        device: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.step, self.consumer, self.options = step, consumer, options
        self.layouts = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns, layout)
        self.pad, self.device = pad, device

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if torch.utils.data.get_worker_info() is not None:
            raise _not_in_a_worker()
        return self._batches()

    def _batches(self) -> Iterator[dict[str, Any]]:
        for batch in self.step.micro_batches(self.consumer, **self.options):
            with batch:
                yield {
                    **{
                        column: batch.torch(column, layout=layout, pad=self.pad, device=self.device)
                        for column, layout in self.layouts.items()
                    },
                    "sample_ids": batch.sample_ids,
                    "rows_in_gang": batch.rows_in_gang,
                }
                batch.accumulated()

    def __reduce__(self) -> Any:
        raise _not_in_a_worker()


def _not_in_a_worker() -> StateError:
    return StateError(
        "micro-batches of a step belong to the process that began it, and this is a worker of a DataLoader; take "
        "num_workers=0: there is nothing to load, the tensors are made of pages that are mapped already"
    )
