"""Objects' tensors from and to other libraries by DLPack, on every way."""

import ctypes
import gc

import numpy as np
import pytest
from objects_ways import check, store, tensors  # noqa: F401

import forebay

NUMPY = tuple(map(int, np.__version__.split(".")[:2]))
"""From 2.1 on it speaks DLPack 1.0."""


class OnlyDLPack:
    """A tensor of some library, which has nothing but the protocol."""

    def __init__(self, array, knows_versions=True):
        self.array, self.knows_versions = array, knows_versions
        self.asked = 0

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **wishes):
        if wishes and not self.knows_versions:
            raise TypeError("this library is of before DLPack 1.0")
        self.asked += 1
        return self.array.__dlpack__(**wishes)


@pytest.mark.parametrize("knows_versions", [True, False])
def test_what_has_nothing_but_dlpack_is_set(store, knows_versions):
    given = {name: OnlyDLPack(np.array(tensor), knows_versions) for name, tensor in tensors(3).items()}
    store.objects.set("solver", given)
    assert all(one.asked for one in given.values())
    with store.objects.get("solver") as held:
        check(held, 3)
        into = {"head": np.zeros((3, 5), np.int8)}
        held.copy_to(into)
        np.testing.assert_array_equal(into["head"], tensors(3)["head"])
    with pytest.raises(forebay.InputError, match="'a'"):
        store.objects.set("solver", {"a": object()})


def test_what_is_held_goes_to_other_libraries_by_dlpack(store):
    objects = store.objects
    objects.set("solver", tensors(4))
    held = objects.get("solver")
    taken = {name: np.from_dlpack(held.dlpack(name, shared=True)) for name in held}
    for name, meant in tensors(4).items():
        np.testing.assert_array_equal(taken[name], meant)
    lies_in_the_store = np.shares_memory(held["embed"], held["embed"])  # else each look reads it anew
    if lies_in_the_store and NUMPY >= (2, 1):
        assert np.shares_memory(taken["embed"], held["embed"])  # what speaks DLPack 1.0 has the store's memory itself
        assert not taken["embed"].flags.writeable

    class Before:
        """A library of before DLPack 1.0 asks without wishes, and may write what it gets."""

        def __init__(self, exported):
            self.__dlpack_device__, self.exported = exported.__dlpack_device__, exported

        def __dlpack__(self, **wishes):
            if wishes:
                raise TypeError("before DLPack 1.0")
            return self.exported.__dlpack__()

    own = np.from_dlpack(Before(held.dlpack("embed", shared=True)))
    if own.flags.writeable:
        own[:] = 0
    np.testing.assert_array_equal(held["embed"], tensors(4)["embed"])
    assert not np.shares_memory(own, held["embed"])
    with pytest.raises(BufferError, match="host memory"):
        held.dlpack("embed").__dlpack__(dl_device=(2, 0))
    for shared, wishes in [(True, {}), (False, {}), (False, {"max_version": (1, 0)})]:
        with pytest.raises(BufferError, match="shared=True"):
            held.dlpack("embed", shared=shared).__dlpack__(copy=False, **wishes)
    held.close()
    store.close()
    del held
    gc.collect()
    np.testing.assert_array_equal(taken["embed"], tensors(4)["embed"])


def test_what_other_libraries_write_into_what_they_took_changes_no_version(store):
    store.objects.set("solver", tensors(4))
    with store.objects.get("solver") as held:
        for wishes in ({}, {"max_version": (1, 0)}):
            own = np.from_dlpack(Wished(held.dlpack("embed"), wishes))
            address, size = own.__array_interface__["data"][0], own.nbytes
            assert not np.shares_memory(own, held["embed"])
            ctypes.memset(address, 7, size)  # as torch does it, which does not look whether it may
            check(held, 4)
            assert own.flags.writeable or not wishes or NUMPY < (2, 1)
    check(store.objects.get("solver"), 4)


def test_a_tensor_of_torch_that_came_by_dlpack_may_be_written(store):
    torch = pytest.importorskip("torch")
    store.objects.set("solver", tensors(4))
    with store.objects.get("solver") as held:
        torch.from_dlpack(held.dlpack("embed")).add_(1)
        check(held, 4)


class Wished:
    """What is asked for with these wishes, whatever whoever takes it wishes."""

    def __init__(self, exported, wishes):
        self.__dlpack_device__, self.exported, self.wishes = exported.__dlpack_device__, exported, wishes

    def __dlpack__(self, **_wishes):
        return self.exported.__dlpack__(**self.wishes)
