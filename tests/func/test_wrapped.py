"""What libraries ask about tensors within transforms."""

from __future__ import annotations

import weft as torch
from weft.func._wrapped import get_unwrapped, is_batchedtensor


def test_examples_of_vmap():
    answers = []

    def function(x, y):
        z = x.sum() * 2
        answers.append([is_batchedtensor(one) for one in (x, z, y, torch.zeros(2))])
        return z + y.sum()

    x, y = torch.ones(3, 2), torch.ones(4)
    assert torch.vmap(function, in_dims=(0, None))(x, y).tolist() == [8, 8, 8]
    assert answers == [[True, True, False, False]]
    assert not is_batchedtensor(x)
    assert get_unwrapped(x) is x
