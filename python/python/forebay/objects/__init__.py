"""Objects: large state under keys, in versions that never change: weights, master copies, moments, gradient caches.

    weights = {"embed": np.zeros((100, 8), np.float32), "head": np.zeros((8, 100), np.float32)}
    version = store.objects.set("solver", weights)
    with store.objects.get("solver") as held:
        held["embed"]                     # a read-only array over the store's memory: nothing is copied
        held.copy_to(model)               # into a module's parameters, or a mapping of arrays or tensors

What holds of objects is in ``docs/objects.md``. Arrays of numpy, tensors of torch (any device, any type), and whatever has the array
interface or ``__dlpack__`` may be set; a module stands for its ``state_dict()``. numpy is imported by the call that needs it, torch where
a tensor of it is given or asked for.

Read in this order: ``handle`` (what one calls), ``version``, ``filling``, ``watch``, ``tensors``, ``arguments``, ``many``,
``dlpack``.
"""

from .filling import Filling
from .handle import Objects, Shown
from .tensors import TensorSpec
from .version import Version
from .watch import Watch

__all__ = ["Filling", "Objects", "Shown", "TensorSpec", "Version", "Watch"]
