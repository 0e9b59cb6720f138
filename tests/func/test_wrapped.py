"""What libraries ask about tensors within transforms."""

from __future__ import annotations

import pytest

import weft as torch
from weft.func._wrapped import add_batch_dim, are_transforms_active, get_unwrapped, is_batchedtensor


def test_examples_of_vmap():
    answers = []

    def function(x, y):
        z = x.sum() * 2
        answers.append([is_batchedtensor(one) for one in (x, z, y, torch.zeros(2))] + [are_transforms_active()])
        return z + y.sum()

    x, y = torch.ones(3, 2), torch.ones(4)
    assert torch.vmap(function, in_dims=(0, None))(x, y).tolist() == [8, 8, 8]
    assert answers == [[True, True, False, False, True]]
    assert not is_batchedtensor(x)
    assert not are_transforms_active()
    assert get_unwrapped(x) is x


def test_gradients():
    assert torch.func.grad(lambda x: x * are_transforms_active())(torch.ones(())).item() == 1


def test_examples_are_made_by_vmap_alone():
    with pytest.raises(NotImplementedError, match=r"^_add_batch_dim: tensors of one example are made by weft.vmap"):
        add_batch_dim(torch.ones(2), 0, 1)
