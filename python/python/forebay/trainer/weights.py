"""The trained weights of a trainer: to be read, published, and written to and taken from files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from .._fingerprint import fingerprint_of_weights
from ..errors import Error
from .adamw import FlatAdamW
from .claims import Applied
from .export import found_weights, save_pretrained
from .layout import Layout, dtype_name
from .state import StateStore, as_payloads
from .subject import Subject

__all__ = ["Weights"]


class Weights:
    """The part of a ``Trainer`` that gives its weights away, and takes others."""

    subject: Subject
    optimizer: FlatAdamW
    applied: Applied
    version: int
    model: Any
    _hook: Callable[[], None]
    _refuse_unusable: Callable[[], None]
    _refuse_gradients: Callable[[], None]
    _tearing: Callable[..., AbstractContextManager[None]]

    @property
    def layout(self) -> Layout:
        """Where the trained parameters lie."""
        return self.subject.weights.layout

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name: views of the buffer, for who reads them before the next commit."""
        self._refuse_unusable()
        return {entry.name: self.subject.weights.view(entry) for entry in self.layout.entries()}

    def weight_fingerprint(self) -> str:
        """A hash of all trained weights. It does not change between commits, and is the same for the same bits anywhere."""
        self._refuse_unusable()
        buffers = sorted(self.subject.weights.payloads("weights").items())
        memory = ((name, buffer.view(torch.uint8).cpu().numpy().data) for name, buffer in buffers)
        return fingerprint_of_weights(self.layout.fingerprint, memory)

    # Publishing

    def publish(self, store: StateStore, key: str, *, expected: int | None = None) -> int:
        """Stores the trained weights (of an adapter: its own alone) as the next version of a key, for who generates with them: one
        payload a type, and a ``manifest`` in JSON with version, fingerprint, and where each tensor lies. Gives the number.

        Frozen weights and buffers of the module (statistics of batch norm, say) are not published: who generates has them from where it
        was started, so a module whose buffers change while it is trained is to be saved with ``save_pretrained``."""
        self._refuse_unusable()
        tensors = {**self.subject.weights.payloads("weights"), "manifest": self._manifest()}
        return store.set(key, as_payloads(tensors), expected)

    def _manifest(self) -> torch.Tensor:
        told = {
            "version": self.version,
            "fingerprint": self.weight_fingerprint(),
            "layout": self.layout.fingerprint,
            "subject": self.subject.identity(),
            "tensors": [
                {"name": e.name, "dtype": dtype_name(e.dtype), "shape": list(e.shape), "offset": e.offset}
                for e in self.layout.entries()
            ],
        }
        return torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Writes files that ``from_pretrained`` reads: of ``transformers`` for a whole model, of ``peft`` for an adapter. The directory is
        there whole or not at all; it must not exist."""
        self._refuse_unusable()
        save = getattr(self.subject, "save_pretrained", None)
        if save is None:
            save_pretrained(self.model, directory)
        else:
            save(directory)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Takes weights over from files of safetensors: a file, a directory of ``transformers``, or of ``peft`` for an adapter. Moments
        stay. Raises LayoutError, and changes nothing, where a tensor is missing or has another shape; CorruptError, and changes nothing,
        where files are damaged or missing; StateError while the cache has gradients."""
        self._refuse_unusable()
        self._refuse_gradients()
        self.subject.check()
        with found_weights(self.subject.named_views(), path) as copy:
            with self._tearing(f"weights were taken over from {os.fspath(path)}"):
                copy()
                self.optimizer.take_weights()
                self._moved_on()

    def adopt(self) -> None:
        """Goes on from the parameters as they are now: takes their values, and makes them views of the buffers again. Moments stay.

        Raises StateError while gradients are in the cache, which are of other weights; LayoutError for other parameters than before.
        """
        self._refuse_unusable()
        self._refuse_gradients()
        with self._tearing("parameters were taken in as they are", harmless=(Error,)):
            self.subject.adopt()
            self.optimizer.take_weights()
            self._moved_on()
            self._hook()

    def _moved_on(self) -> None:
        """The weights are no longer what the last commit made of them."""
        self.applied = Applied()
        self.subject.written()
