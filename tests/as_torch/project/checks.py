"""What pytest runs."""

import torch
from squares import Squares, model


def test_squares():
    x, y = Squares()[32]
    assert torch.equal(y, torch.tensor([0.25]))
    assert model()(x).shape == (1,)
