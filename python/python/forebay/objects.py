"""Objects: large state under keys, in versions that never change: weights, master copies, moments, gradient caches.

    weights = {"embed": np.zeros((100, 8), np.float32), "head": np.zeros((8, 100), np.float32)}
    version = store.objects.set("solver", weights)
    with store.objects.get("solver") as held:
        held["embed"]                     # a read-only array over the store's memory: nothing is copied
        held.copy_to(model)               # into a module's parameters, or a mapping of arrays or tensors

What holds of objects is in ``docs/objects.md``. Arrays of numpy, tensors of torch (any device, any type), and whatever has the array
interface or ``__dlpack__`` may be set; a module stands for its ``state_dict()``. numpy is imported by the call that needs it, torch where
a tensor of it is given or asked for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _arrays
from .errors import InputError

if TYPE_CHECKING:
    from ._forebay import HeldObject, ObjectCalls, ObjectFilling

__all__ = ["Filling", "Objects", "Shown", "TensorSpec", "Version", "Watch"]

PIECE_BYTES = 8 << 20
"""How much is copied at a time on its way in."""

_NUMPY = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}
"""numpy's names of types, by those of safetensors. It has none for BF16 and the 8-bit floats."""
_TORCH = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}
_OF_NUMPY = {name: dtype for dtype, name in _NUMPY.items()}
_OF_TORCH = {f"torch.{name}": dtype for dtype, name in _TORCH.items()}
_BITS = {"BF16": "uint16", "F8_E5M2": "uint8", "F8_E4M3": "uint8"}
"""What numpy shows of types that it has no name for: their bits."""


class TensorSpec(NamedTuple):
    """What a tensor is."""

    dtype: str
    """As safetensors names it: ``"F32"``, ``"BF16"``."""
    shape: tuple[int, ...]
    memory_class: str
    """Which of the object's contiguous payloads it lies in."""

    @property
    def bytes(self) -> int:
        dtype = self.dtype
        width = 1 if dtype.startswith("F8") or dtype in ("BOOL", "U8", "I8") else int("".join(filter(str.isdigit, dtype))) // 8
        return width * math.prod(self.shape)


class Shown(NamedTuple):
    """One version, as a list shows it."""

    key: str
    version: int
    bytes: int
    tensors: int
    tiers: tuple[str, ...]
    leases: int
    published: bool
    created_at: datetime
    metadata: dict[str, str]


class Objects:
    """The objects of a store, in this process or behind a server: ``store.objects``. Any thread may call."""

    def __init__(self, calls: ObjectCalls) -> None:
        self._calls = calls

    def set(
        self,
        key: str,
        tensors: Any,
        *,
        expected: int | None = None,
        version: int | None = None,
        memory_class: str | Mapping[str, str] = "weights",
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Sets the next version of a key, whole or not at all, and gives its number.

        tensors: a mapping of names to arrays or tensors, or a module of torch.
        expected: the version that has to be the newest (0: there is none yet); StateError where it is not. ``None``: whichever is.
        version: a number of the caller's own, above all before. Default: one more than the newest.
        memory_class: which payload tensors lie in: one for all, or one for each name. Tensors of a class lie one after the other.
        metadata: what is said of the version.
        """
        tensors = _mapping(tensors)
        specs = _specs(tensors, memory_class)
        with self.begin(key, specs, expected=expected, metadata=metadata) as filling:
            for name, tensor in tensors.items():
                filling.write(name, tensor)
            return filling.commit(version=version)

    def publish(
        self,
        key: str,
        tensors: Any,
        *,
        memory_class: str | Mapping[str, str] = "weights",
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Sets a version for the first who receives it. ``get`` does not find it."""
        tensors = _mapping(tensors)
        with self._begin(key, _specs(tensors, memory_class), None, True, metadata) as filling:
            for name, tensor in tensors.items():
                filling.write(name, tensor)
            return filling.commit()

    def begin(
        self,
        key: str,
        specs: Mapping[str, TensorSpec],
        *,
        expected: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Filling:
        """Begins a version that is filled in parts; leaving it without ``commit`` gives it up."""
        return self._begin(key, specs, expected, False, metadata)

    def _begin(
        self,
        key: str,
        specs: Mapping[str, TensorSpec],
        expected: int | None,
        published: bool,
        metadata: Mapping[str, str] | None,
    ) -> Filling:
        named = [(spec.memory_class, name, spec.dtype, list(spec.shape)) for name, spec in specs.items()]
        filling = Filling(self._calls.begin(key, named, expected, published), dict(specs))
        if metadata:
            filling._filling.metadata(dict(metadata))
        return filling

    def commit_together(self, fillings: list[Filling]) -> int:
        """Commits versions of several keys under one number, all or none: the shards of one state."""
        return self._calls.commit_together([filling._filling for filling in fillings])

    def get(
        self,
        key: str,
        version: int | None = None,
        *,
        at_least: int | None = None,
        timeout: float | None = None,
        tier: str = "host",
    ) -> Version:
        """Holds a version: the newest, or the one of that number, or the newest once it is ``at_least``.

        timeout: how long to wait for ``at_least``, in seconds; WaitTimeout when it is over. Default: as long as it takes.
        tier: where its bytes are to be, ``"host"`` or ``"disk"``. They are copied there when they are not.
        """
        if at_least is None:
            if timeout is not None:
                raise InputError("timeout is for a version to come; say which with at_least=")
            return Version(self._calls.get(key, version, tier))
        if version is not None:
            raise InputError(f"version={version} and at_least={at_least}: give one of them")
        return Version(self._calls.wait(key, at_least, tier, timeout))

    async def get_async(self, key: str, at_least: int = 1, *, timeout: float | None = None, tier: str = "host") -> Version:
        """Waits for a version in an event loop: the newest, once it is ``at_least``."""
        return Version(await self._calls.wait_async(key, at_least, tier, timeout))

    def get_together(self, keys: list[str]) -> list[Version]:
        """Holds the newest version that all of these keys have, of each."""
        return [Version(held) for held in self._calls.get_together(keys)]

    def receive(self, key: str, *, timeout: float | None = 20.0) -> Version:
        """Takes the oldest published version of a key that nobody is receiving. ``done()`` removes it; letting go of it without gives
        it back, for the next."""
        return Version(self._calls.wait(key, None, "host", timeout))

    async def receive_async(self, key: str, *, timeout: float | None = 20.0) -> Version:
        """The same in an event loop."""
        return Version(await self._calls.wait_async(key, None, "host", timeout))

    def watch(self, key: str) -> Watch:
        """New versions of a key from now on."""
        return Watch(self, key, max((shown.version for shown in self.list(key) if not shown.published), default=0))

    def list(self, key: str | None = None) -> list[Shown]:
        """Every version that can be had, by key and number; of one key, if one is named."""
        start = datetime(1970, 1, 1, tzinfo=timezone.utc)
        return [
            Shown(name, version, size, tensors, tuple(tiers), leases, once, start + timedelta(microseconds=at), metadata)
            for name, version, size, tensors, tiers, leases, once, at, metadata in self._calls.list()
            if key is None or name == key
        ]

    def delete(self, key: str, version: int) -> bool:
        """Removes a version; false when there is none. Whoever holds it keeps it."""
        return self._calls.delete(key, version)

    def spill(self, key: str, version: int | None = None) -> int:
        """Brings a version to the disk as well, on stable storage."""
        return self._calls.spill(key, version)

    def demote(self, key: str, version: int | None = None) -> int:
        """Brings a version to the disk, and takes it out of memory."""
        return self._calls.demote(key, version)

    def exchange(self, out: str | tuple[str, int], into: str | tuple[str, int]) -> tuple[int, int]:
        """One version goes to the disk while another comes from there. Gives the numbers of both."""
        given = [(of, None) if isinstance(of, str) else of for of in (out, into)]
        went, came, _ = self._calls.exchange(*given)
        return went, came

    def __repr__(self) -> str:
        return "<the objects of a store>"


class Filling:
    """A version that is being filled. Nobody sees it before its commit; leaving the ``with`` without one gives it up."""

    def __init__(self, filling: ObjectFilling, specs: dict[str, TensorSpec]) -> None:
        self._filling = filling
        self.specs = specs

    def write(self, name: str, tensor: Any, *, row: int = 0) -> None:
        """Fills a tensor, or some of its rows from ``row`` on, with an array or tensor of the same type and the shape of those rows."""
        spec = self.specs.get(name)
        if spec is None:
            raise InputError(f"the version has no tensor {name!r}; it has {', '.join(self.specs)}")
        found = _spec(name, tensor, spec.memory_class)
        rows = found.shape[0] if found.shape else 0
        is_part = len(found.shape) == len(spec.shape) > 0 and found.shape[1:] == spec.shape[1:] and row + rows <= spec.shape[0]
        if found.dtype != spec.dtype or not (is_part or (row == 0 and found.shape == spec.shape)):
            raise InputError(
                f"tensor {name!r} is {spec.dtype} {list(spec.shape)}, and {found.dtype} {list(found.shape)} from row {row} on was given"
            )
        start = row * (spec.bytes // spec.shape[0]) if row else 0
        memory = _memory(tensor)
        for at in range(0, len(memory), PIECE_BYTES):
            self._filling.write(name, start + at, bytes(memory[at : at + PIECE_BYTES]))

    def commit(self, *, version: int | None = None, expected: int | None = None) -> int:
        """Makes it the key's newest version, and gives its number. After a conflict it may be committed again with what is ``expected``
        now."""
        return self._filling.commit(version, expected)

    def fail(self, reason: str) -> None:
        """Gives it up, and tells those who wait for a version of the key why."""
        self._filling.fail(reason)

    def __enter__(self) -> Filling:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._filling.abandon()


class Version(Mapping[str, Any]):
    """A version that is held: a mapping of names to read-only arrays, which lie in the store's memory where that can be.

    Arrays keep their version for as long as there are any, also when this is let go of, and the store is closed.
    """

    def __init__(self, held: HeldObject) -> None:
        self._held = held
        self.specs = {name: TensorSpec(dtype, tuple(shape), of) for of, name, dtype, shape in held.tensors()}
        """What each tensor is."""

    @property
    def key(self) -> str:
        return self._held.key

    @property
    def version(self) -> int:
        return self._held.version

    @property
    def metadata(self) -> dict[str, str]:
        return self._held.metadata

    def __getitem__(self, name: str) -> Any:
        """A tensor as a read-only array of numpy. BF16 and 8-bit floats, which numpy does not have, come as their bits."""
        spec = self._spec(name)
        np = _arrays.numpy()
        dtype = np.dtype(_NUMPY.get(spec.dtype) or _BITS[spec.dtype])
        return np.frombuffer(self._held.bytes(name, None), dtype=dtype).reshape(spec.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def rows(self, name: str, start: int, end: int) -> Any:
        """Some rows of a tensor as a read-only array, for a rank that takes a part."""
        spec = self._spec(name)
        np = _arrays.numpy()
        dtype = np.dtype(_NUMPY.get(spec.dtype) or _BITS[spec.dtype])
        return np.frombuffer(self._held.bytes(name, (start, end)), dtype=dtype).reshape(end - start, *spec.shape[1:])

    def torch(self, name: str, device: Any = None) -> Any:
        """A tensor of torch over the same memory, or a copy on a device. It must not be written: the memory is others', too."""
        torch = _torch()
        spec = self._spec(name)
        dtype = getattr(torch, _TORCH[spec.dtype])
        if spec.bytes == 0:
            tensor = torch.empty(spec.shape, dtype=dtype)
        else:
            tensor = _quietly(torch.frombuffer, self._held.bytes(name, None), dtype=dtype).reshape(spec.shape)
        return tensor if device is None else tensor.to(device)

    def state_dict(self, device: Any = None) -> dict[str, Any]:
        """All tensors of torch, by name: what ``load_state_dict`` takes, which copies them."""
        return {name: self.torch(name, device) for name in self}

    def copy_to(self, targets: Any) -> None:
        """Copies every target's tensor into it: a module, or a mapping of names to arrays or tensors. InputError, and nothing is
        changed, where one is missing or another."""
        targets = _mapping(targets)
        for name, target in targets.items():
            wanted, found = _spec(name, target, ""), self._spec(name)
            if wanted[:2] != found[:2]:
                raise InputError(
                    f"tensor {name!r} is {found.dtype} {list(found.shape)}, and the target takes {wanted.dtype} {list(wanted.shape)}"
                )
        for name, target in targets.items():
            if _is_torch(target):
                with _torch().no_grad():
                    target.copy_(self.torch(name))
            else:
                target[...] = self[name]

    def done(self) -> None:
        """It was received and taken over: it is removed."""
        self._held.done()

    def close(self) -> None:
        """Lets go of it. Arrays keep it for as long as there are any."""
        self._held.release()

    def _spec(self, name: str) -> TensorSpec:
        if name not in self.specs:
            raise InputError(f"version {self.version} of {self.key!r} has no tensor {name!r}; it has {_few(self.specs)}")
        return self.specs[name]

    def __contains__(self, name: object) -> bool:
        return name in self.specs

    def __enter__(self) -> Version:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<version {self.version} of {self.key!r}: {len(self.specs)} tensors>"


class Watch:
    """New versions of a key, the newest each time: an iterator, and an asynchronous one. Versions that were followed by others before
    somebody looked are passed over."""

    def __init__(self, objects: Objects, key: str, seen: int) -> None:
        self._objects, self._key = objects, key
        self.seen = seen
        """The newest version that it has told of."""

    def next(self, timeout: float | None = None) -> Version:
        """The newest version, once it is newer than the last that was told. WaitTimeout when the time is over."""
        held = self._objects.get(self._key, at_least=self.seen + 1, timeout=timeout)
        self.seen = held.version
        return held

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Version:
        return self.next()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Version:
        held = await self._objects.get_async(self._key, self.seen + 1)
        self.seen = held.version
        return held


def _torch() -> Any:
    try:
        import torch
    except ImportError as missing:
        raise ImportError("tensors are given as torch's; install torch") from missing
    return torch


def _quietly(call: Any, *arguments: Any, **keywords: Any) -> Any:
    """torch warns of memory that may not be written, each time: it is said where the tensor is given."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return call(*arguments, **keywords)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _few(names: Mapping[str, Any]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")


def _mapping(given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    if hasattr(given, "state_dict"):
        return given.state_dict()
    raise InputError(f"an object is made of a mapping of names to arrays or of a module, and {type(given).__name__} was given")


def _specs(tensors: Mapping[str, Any], memory_class: str | Mapping[str, str]) -> dict[str, TensorSpec]:
    def of(name: str) -> str:
        if isinstance(memory_class, str):
            return memory_class
        if name not in memory_class:
            raise InputError(f"memory_class names no class for tensor {name!r}")
        return memory_class[name]

    return {name: _spec(name, tensor, of(name)) for name, tensor in tensors.items()}


def _spec(name: str, tensor: Any, memory_class: str) -> TensorSpec:
    if _is_torch(tensor):
        dtype = _OF_TORCH.get(str(tensor.dtype))
    else:
        tensor = _array(name, tensor)
        dtype = _OF_NUMPY.get(tensor.dtype.name)
    if dtype is None:
        raise InputError(f"tensor {name!r} has the type {tensor.dtype}, which no object has; it has {', '.join(_TORCH)}")
    return TensorSpec(dtype, tuple(tensor.shape), memory_class)


def _array(name: str, tensor: Any) -> Any:
    np = _arrays.numpy()
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "__dlpack__") and not hasattr(tensor, "__array__"):
        return np.from_dlpack(tensor)
    array = np.asarray(tensor)
    if array.dtype == object:
        raise InputError(f"tensor {name!r} is one {type(tensor).__name__} and no array of numbers")
    return array


def _memory(tensor: Any) -> memoryview:
    """The bytes of an array or tensor, row by row."""
    if _is_torch(tensor):
        torch = _torch()
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return memoryview(flat.view(torch.uint8).numpy() if flat.numel() else b"").cast("B")
    np = _arrays.numpy()
    array = np.ascontiguousarray(_array("", tensor))
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return memoryview(array.reshape(-1).view(np.uint8) if array.size else b"").cast("B")
