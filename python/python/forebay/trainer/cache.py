"""The gradient cache: the sum of the gradients of a step's micro-batches, unnormalised, in fp32.

Autograd makes a gradient a parameter. A hook takes each as soon as it is whole and leaves the parameter without one, so at no time
are there gradients of the whole model beside the cache. The layout is cut into *buckets* of neighbours. When the last gradient of a
bucket has come, one operation packs them and one adds them to the cache: their number goes with the bytes of a model, not with the
number of its tensors. A tensor that fills a bucket alone is added as it is.

Invariants
- In a micro-batch each element of the cache is added to at most once a backward pass, in fp32, whatever the weights' type: how a
  bucket fills up changes no bit.
- What lies between entries is zero.
- The cache lists the claims that are in it and the sum of their denominators. A micro-batch is in it whole, or the cache is *spoiled*
  and takes nothing but ``drop``.

Hooks run on whichever thread autograd calls them from; one micro-batch is folded in at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import InputError, StateError
from .errors import SpoiledCacheError
from .flat import allocate
from .groups import OpenGroups
from .layout import Entry, Layout

__all__ = ["BUCKET_BYTES", "GradientCache"]

BUCKET_BYTES = 32 << 20
"""How much of the cache a bucket is. The buffer that gradients are packed in is as large."""


@dataclass
class _Bucket:
    start: int
    end: int
    entries: list[tuple[Entry, int]] = field(default_factory=list)
    arrived: dict[str, torch.Tensor] = field(default_factory=dict)


class GradientCache:
    """The sum of gradients, and of what they are to be divided by.

    layout: of the trained parameters.
    bucket_bytes: how much is packed at once.
    """

    def __init__(self, layout: Layout, device: torch.device, bucket_bytes: int = BUCKET_BYTES) -> None:
        self.layout, self.device = layout, device
        self.buckets = list(_cut(layout, max(1, bucket_bytes // 4)))
        self.groups: OpenGroups | None = None
        self.regain()
        self._bucket_of = {entry.name: bucket for bucket in self.buckets for entry, _ in bucket.entries}
        self._place_of = {entry.name: start for entry, start in layout.placed()}
        self._is_open = self._is_touched = False
        self._into: torch.Tensor | None = None
        self.spoiled: str | None = None
        self._forget()

    def _forget(self) -> None:
        self.claims: list[dict[str, Any]] = []
        self.numerator: torch.Tensor | float = 0.0
        self.denominator, self.rows, self.tokens = 0.0, 0, 0
        self.metrics: dict[str, Any] = {}

    def regain(self) -> None:
        """Takes memory, of zeros."""
        packed = max((bucket.end - bucket.start for bucket in self.buckets if len(bucket.entries) > 1), default=0)
        self.flat = allocate(self.layout.elements, torch.float32, self.device, "gradient cache")
        self.packed = allocate(packed, torch.float32, self.device, "packed gradients")
        if self.groups is not None:
            self.groups.regain()

    def release(self) -> None:
        """Gives the memory back."""
        self.flat, self.packed = self.flat.new_empty(0), self.packed.new_empty(0)
        if self.groups is not None:
            self.groups.release()

    @property
    def is_empty(self) -> bool:
        """Whether no gradient is in it."""
        has_sums = self.groups is not None and not self.groups.is_empty
        return not self._is_touched and not self.claims and self.denominator == 0 and not has_sums

    def total(self) -> torch.Tensor:
        """What is to be applied: the cache's own buffer, or one with what closed groups add to it."""
        return self.flat if self.groups is None else self.groups.with_closed(self.flat)

    def hooks(self, parameters: Mapping[str, torch.nn.Parameter]) -> list[Any]:
        """Registers what takes gradients; gives the handles that end it. The model does not keep the cache alive."""
        held = weakref.ref(self)

        def taking(name: str) -> Callable[[torch.Tensor], None]:
            def take(parameter: torch.Tensor) -> None:
                cache = held()
                if cache is not None:
                    cache._take(name, parameter)

            return take

        return [parameter.register_post_accumulate_grad_hook(taking(name)) for name, parameter in parameters.items()]

    def _take(self, name: str, parameter: torch.Tensor) -> None:
        if not self._is_open or parameter.grad is None:
            return  # a backward pass of somebody else's; its gradient stays where it is
        gradient, parameter.grad = parameter.grad, None
        if gradient.layout is not torch.strided:
            raise InputError(f"the gradient of {name!r} is sparse; make its module with sparse=False")
        bucket = self._bucket_of[name]
        if len(bucket.entries) == 1 or name in bucket.arrived:
            # Alone, or once more in one backward pass (a tied weight under reentrant checkpointing).
            self._add(name, gradient)
            return
        bucket.arrived[name] = gradient
        if len(bucket.arrived) == len(bucket.entries):
            self._flush(bucket)

    def _add(self, name: str, gradient: torch.Tensor) -> None:
        start = self._place_of[name]
        self._is_touched = True
        self._target()[start : start + gradient.numel()].add_(gradient.reshape(-1))

    def _flush(self, bucket: _Bucket) -> None:
        """Adds what has arrived; what has not counts as zero."""
        arrived, bucket.arrived = bucket.arrived, {}
        dtype = next(iter(arrived.values())).dtype
        zero = torch.zeros(1, dtype=dtype, device=self.device)
        pieces, at = [], bucket.start
        for entry, start in (*bucket.entries, (None, bucket.end)):
            if start > at:
                pieces.append(zero.expand(start - at))
            at = start
            if entry is not None and entry.name in arrived:
                pieces.append(arrived[entry.name].reshape(-1))
                at += entry.elements
        packed = self.packed[: bucket.end - bucket.start]
        self._is_touched = True
        torch.cat(pieces, out=packed)
        self._target()[bucket.start : bucket.end].add_(packed)

    def _target(self) -> torch.Tensor:
        return self.flat if self._into is None else self._into

    @contextmanager
    def folding(self, parameters: Mapping[str, torch.nn.Parameter], into: torch.Tensor | None = None) -> Iterator[None]:
        """Takes the gradients of backward passes within. An exception leaves the cache as it was where nothing was added yet, else
        spoiled.

        into: adds them there, in fp32 over all segments, and not to the cache, which stays as it is."""
        self.refuse_spoiled()
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                raise StateError(
                    f"parameter {name!r} has a gradient of a backward pass outside of the trainer; drop it with "
                    "model.zero_grad(set_to_none=True), or add its loss with add()"
                )
        was_touched, self._is_touched, self._is_open, self._into = self._is_touched, False, True, into
        try:
            yield
            for bucket in self.buckets:
                if bucket.arrived:
                    self._flush(bucket)
        except BaseException as error:
            if self._is_touched and into is None:
                self.spoiled = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._is_touched = was_touched or (self._is_touched and into is None)
            self._is_open, self._into = False, None
            for bucket in self.buckets:
                bucket.arrived = {}
            for parameter in parameters.values():
                parameter.grad = None

    def refuse_spoiled(self) -> None:
        if self.spoiled:
            raise SpoiledCacheError(
                f"part of a gradient is in the cache, since something failed meanwhile ({self.spoiled}); call drop(), and "
                "Step.drop_cache(table) for the rows"
            )

    def drop(self) -> None:
        """Forgets all gradients, and whose they were. Whatever interrupts that leaves the cache spoiled."""
        self.spoiled = self.spoiled or "a drop was interrupted"
        self.flat.zero_()
        if self.groups is not None:
            self.groups.drop()
        self._forget()
        self._is_touched, self.spoiled = False, None

    def restored(self, told: Mapping[str, Any]) -> None:
        """Says that the buffer was filled from a stored state, of which this is known."""
        self.spoiled = "a state was being restored"
        self.claims, self.metrics, self.numerator = told["claims"], told["metrics"], told["numerator"]
        self.denominator, self.rows, self.tokens = told["denominator"], told["rows"], told["tokens"]
        self._is_touched, self.spoiled = bool(self.claims), None


def _cut(layout: Layout, bucket_elements: int) -> Iterator[_Bucket]:
    """Neighbours of one type, together no longer than a bucket; a longer tensor alone."""
    for segment in layout.segments:
        bucket: _Bucket | None = None
        starts = [segment.start + entry.offset for entry in segment.entries]
        for entry, start, end in zip(segment.entries, starts, (*starts[1:], segment.end)):
            if bucket is None or end - bucket.start > bucket_elements:
                if bucket is not None:
                    yield bucket
                bucket = _Bucket(start, end)
            bucket.entries.append((entry, start))
            bucket.end = end
        if bucket is not None:
            yield bucket
