"""Weak references to tensors, handles of hooks, and remembered switches."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import weft as torch
from weft.utils import backcompat, deterministic
from weft.utils.hooks import RemovableHandle
from weft.utils.weak import TensorWeakRef, WeakIdRef, WeakTensorKeyDictionary


def test_tensors_are_weak_keys():
    x, y = torch.ones(2), torch.ones(2)
    names = WeakTensorKeyDictionary({x: "x"})
    names[y] = "y"
    assert (names[x], names[y], len(names), torch.ones(2) in names, 3 in names) == ("x", "y", 2, False, False)
    assert [key is y for key in names] == [False, True]
    assert names == names.copy() != WeakTensorKeyDictionary()
    del x
    assert (list(names.values()), names.pop(y), len(names)) == (["y"], "y", 0)
    with pytest.raises(KeyError):
        names[y]


def test_references_compare_by_identity():
    x, y = torch.ones(2), torch.ones(2)
    assert WeakIdRef(x) == WeakIdRef(x) != WeakIdRef(y)
    reference = TensorWeakRef(x)
    assert reference() is x
    del x
    assert reference() is None
    with pytest.raises(AssertionError, match=r"^expected torch.Tensor, got <class 'int'>\.$"):
        TensorWeakRef(3)


def test_handles_of_own_hooks():
    hooks, options = OrderedDict(), OrderedDict()
    with RemovableHandle(hooks, extra_dict=options) as handle:
        hooks[handle.id], options[handle.id] = print, True
    assert not hooks
    assert not options
    handle.remove()
    assert isinstance(torch.nn.Linear(1, 1).register_forward_hook(print), RemovableHandle)
    assert isinstance(torch.ones(1, requires_grad=True).register_hook(print), RemovableHandle)


def test_switches_that_are_only_remembered():
    assert backcompat.broadcast_warning.enabled is False
    backcompat.broadcast_warning.enabled = True
    assert (torch.ones(4, 1) + torch.ones(4)).shape == (4, 4)  # no warning, as in PyTorch
    backcompat.broadcast_warning.enabled = False
    assert deterministic.fill_uninitialized_memory is True
