"""Steps on the tape: what is differentiated through an optimizer agrees with finite differences."""

from __future__ import annotations

import pytest

import weft
from weft import optim

OPTIMIZERS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("AdamW", {"amsgrad": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("ASGD", {}),
    ("Rprop", {}),
]


def trained(name, options, start, scale, rate):
    """A loss after two steps from `start`, with gradients that depend on `start` and `scale`."""
    param = start.clone()
    optimizer = getattr(optim, name)([param], lr=rate, differentiable=True, **options)
    for at in range(2):
        param.grad = (start * scale * (at + 1)).sin() + 0.3 * scale
        optimizer.step()
    return (param**2).sum()


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda x: x if isinstance(x, str) else "")
def test_gradients_through_steps(name, options):
    start = weft.tensor([0.5, -1.0, 2.0], dtype=weft.float64, requires_grad=True)
    scale = weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(lambda a, b: trained(name, options, a, b, 0.1), (start, scale), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_the_learning_rate_is_differentiated(name):
    start, scale = weft.tensor([0.5, -1.0], dtype=weft.float64), weft.tensor([1.0, 2.0], dtype=weft.float64)
    rate = weft.tensor(0.1, dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(lambda lr: trained(name, {}, start, scale, lr), (rate,), rtol=2e-3, atol=1e-4)


def test_leaves_are_refused_by_the_step():
    param = weft.ones(2, requires_grad=True)
    param.grad = weft.ones(2)
    with pytest.raises(
        RuntimeError, match=r"^a leaf Variable that requires grad is being used in an in-place operation"
    ):
        optim.SGD([param], lr=0.1, differentiable=True).step()
    with pytest.raises(ValueError, match=r"^can't optimize a non-leaf Tensor"):
        optim.SGD([param * 2], lr=0.1)
