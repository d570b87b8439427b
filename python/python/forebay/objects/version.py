"""A version that is held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _arrays
from ..errors import InputError
from .arguments import whole
from .dlpack import Exported
from .tensors import BITS, NUMPY, TORCH, TensorSpec, is_torch, mapping_of, spec_of, torch_module

if TYPE_CHECKING:
    from .._forebay import HeldObject

__all__ = ["Version"]


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
        dtype = np.dtype(NUMPY.get(spec.dtype) or BITS[spec.dtype])
        return np.frombuffer(self._held.bytes(name, None), dtype=dtype).reshape(spec.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def rows(self, name: str, start: int, end: int) -> Any:
        """Some rows of a tensor as a read-only array, for a rank that takes a part."""
        spec = self._spec(name)
        start, end = whole("start", start), whole("end", end)
        if start > end:
            raise InputError(f"rows {start} to {end} of {name!r} are no rows; they count from 0, and the end is behind them")
        np = _arrays.numpy()
        dtype = np.dtype(NUMPY.get(spec.dtype) or BITS[spec.dtype])
        return np.frombuffer(self._held.bytes(name, (start, end)), dtype=dtype).reshape(end - start, *spec.shape[1:])

    def torch(self, name: str, device: Any = None) -> Any:
        """A tensor of torch over the same memory, or a copy on a device. It must not be written: the memory is others', too."""
        torch = torch_module()
        spec = self._spec(name)
        dtype = getattr(torch, TORCH[spec.dtype])
        if spec.bytes == 0:
            tensor = torch.empty(spec.shape, dtype=dtype)
        else:
            tensor = _quietly(torch.frombuffer, self._held.bytes(name, None), dtype=dtype).reshape(spec.shape)
        return tensor if device is None else tensor.to(device)

    def dlpack(self, name: str, *, shared: bool = False) -> Exported:
        """A tensor for any library's ``from_dlpack``: a copy, which may be written. BF16 and 8-bit floats come as their bits, as they
        do by ``[name]``; ``torch(name)`` has their types.

        shared: the store's own memory, to libraries that speak DLPack 1.0. It goes as read-only, but some, torch among them, do not
        look at that: who writes it all the same changes the version for everybody, or ends the process.
        """
        return Exported(self[name], shared)

    def state_dict(self, device: Any = None) -> dict[str, Any]:
        """All tensors of torch, by name: what ``load_state_dict`` takes, which copies them."""
        return {name: self.torch(name, device) for name in self}

    def copy_to(self, targets: Any) -> None:
        """Copies every target's tensor into it: a module, or a mapping of names to arrays or tensors. InputError, and nothing is
        changed, where one is missing or another."""
        targets = mapping_of(targets)
        for name, target in targets.items():
            wanted, found = spec_of(name, target, ""), self._spec(name)
            if wanted[:2] != found[:2]:
                raise InputError(
                    f"tensor {name!r} is {found.dtype} {list(found.shape)}, and the target takes {wanted.dtype} {list(wanted.shape)}"
                )
            if not is_torch(target) and not _arrays.numpy().asarray(target).flags.writeable:
                raise InputError(f"the target of tensor {name!r} is read-only; give an array that may be written")
        for name, target in targets.items():
            if is_torch(target):
                with torch_module().no_grad():
                    target.copy_(self.torch(name))
            else:
                target[...] = self[name]

    def verify(self) -> None:
        """Holds every byte against its checksum where it lies now: what is got from memory is not looked at. CorruptError names the
        chunk and its tensors where others lie there than were set."""
        self._held.verify()

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


def _quietly(call: Any, *arguments: Any, **keywords: Any) -> Any:
    """torch warns of memory that may not be written, each time: it is said where the tensor is given."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return call(*arguments, **keywords)


def _few(names: Mapping[str, Any]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
