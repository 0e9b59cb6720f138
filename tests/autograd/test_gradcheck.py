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


def _with_hook(hook):
    def func(x):
        y = x.clone()
        y.register_hook(hook)
        return y

    return func


class Unsteady(Function):
    """Another gradient every time."""

    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        Unsteady.calls += 1
        return g * (1 + 1e-6 * Unsteady.calls)


FAILING = [
    ("constant that moves", lambda x: weft.tensor([x[0].item()]), "Numerical gradient for function expected to be"),
    ("cotangent of zero", _with_hook(lambda g: g + 1e-6), "backward not multiplied by grad_output"),
    ("not twice the same", Unsteady.apply, "Backward is not reentrant, i.e., running backward"),
    (
        "imaginary part",
        lambda x: _with_hook(lambda g: g + 1e-2)(weft.complex(x, x)),
        "While considering the imaginary part of complex outputs only, Jacobian mismatch for output 0",
    ),
]


@pytest.mark.parametrize(("func", "text"), [row[1:] for row in FAILING], ids=[row[0] for row in FAILING])
def test_what_else_is_checked(x, func, text):
    with pytest.raises(weft.errors.GradcheckError, match=f"^{text}"):
        gradcheck(func, x)
    assert not gradcheck(func, x, raise_exception=False)


def test_some_nondeterminism_may_be_allowed(x):
    assert gradcheck(Unsteady.apply, x, nondet_tol=1e-3)


def test_what_cannot_be_checked_is_refused_in_any_case(x):
    with pytest.raises(RuntimeError, match=r"^The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x, (x[:1].expand(2, 2),), raise_exception=False)
    ones = weft.ones(1, dtype=weft.float64, requires_grad=True)
    with pytest.raises(AssertionError, match=r"same shape when .* perturbed on index \(0,\) by 1e-06, but"):
        gradcheck(lambda x: weft.cat([x, x]) if (x >= 1).all() else x, (ones,), raise_exception=False)
    with pytest.raises(AssertionError, match=r"same dtype when inputs .*: dtypes torch.float64 and torch.float32\.$"):
        gradcheck(lambda x: x.float() if (x >= 1).all() else x, (ones,))


def test_inputs_without_elements():
    assert gradcheck(
        lambda x, y: x.sum() + y * 2, [weft.ones(0).requires_grad_(), weft.ones(1).double().requires_grad_()]
    )
