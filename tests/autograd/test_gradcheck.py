"""The checkers of derivatives find what is wrong, and pass what is right."""

from __future__ import annotations

import pytest

import weft
from weft.autograd import Function, gradcheck, gradgradcheck


class WrongSquare(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]  # a factor 2 is missing


class WrongSecond(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0].detach()


@pytest.fixture
def x():
    return weft.tensor([0.5, 2.0], dtype=weft.float64, requires_grad=True)


def test_a_right_derivative_passes(x):
    assert gradcheck(lambda x: (x.sin() * x, x.exp()), x)
    assert gradgradcheck(lambda x: x.sin() * x, [x])


def test_a_wrong_derivative_is_found(x):
    with pytest.raises(RuntimeError, match=r"^Jacobian mismatch for output 0 with respect to input 0,\nnumerical:"):
        gradcheck(WrongSquare.apply, [x])
    assert not gradcheck(WrongSquare.apply, [x], raise_exception=False)


def test_a_wrong_second_derivative_is_found(x):
    assert gradcheck(WrongSecond.apply, [x])
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradgradcheck(WrongSecond.apply, [x])


def test_inputs_that_need_no_gradient_are_left_alone(x):
    assert gradcheck(lambda x, y, n: x * y * n, [x, weft.ones(2, dtype=weft.float64), 3])
    with pytest.raises(ValueError, match=r"^gradcheck expects at least one input tensor to require gradient"):
        gradcheck(lambda x: x, [x.detach()])


def test_complex_inputs_and_results():
    z = weft.tensor([1 + 2j, -0.5j], dtype=weft.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z.conj() + z**2, [z])
    assert gradcheck(lambda z: z.abs(), [z])
