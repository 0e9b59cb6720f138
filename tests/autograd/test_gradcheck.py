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


# --- forward mode, and several directions at once ---

EVERYTHING = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}


class WrongForward(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * tangent


class OnHost(Function):
    """A derivative that reads elements, and so cannot be computed for several cotangents together."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return weft.tensor([2 * a * b for a, b in zip(g.tolist(), ctx.saved_tensors[0].tolist(), strict=True)]).double()


def test_right_derivatives_pass_in_both_modes_and_together(x):
    y = weft.tensor([[1.0], [0.7]], dtype=weft.float64, requires_grad=True)

    def func(x, y):
        return (x * y).sin().sum(0), y.exp() * x.sum(), weft.ones(2, dtype=weft.float64), (x > 1)

    assert gradcheck(func, (x, y), fast_mode=True, masked=False, **EVERYTHING)
    assert gradcheck(func, (x, y), check_forward_ad=True, check_backward_ad=False)
    z = weft.tensor([1 + 2j, -0.5j], dtype=weft.complex128, requires_grad=True)
    assert gradcheck(lambda z: (z * z.conj() + z**2, z.abs()), z, **EVERYTHING)


def test_second_derivatives_in_forward_mode(x):
    def func(x):
        return x.sin() * x, x.exp().sum()

    assert gradgradcheck(func, x, check_fwd_over_rev=True, check_batched_grad=True, gen_non_contig_grad_outputs=True)
    assert gradgradcheck(func, x, check_fwd_over_rev=True, check_rev_over_rev=False, check_undefined_grad=False)


def test_what_is_wrong_in_forward_mode_or_together_is_found(x):
    assert gradcheck(WrongForward.apply, x)
    with pytest.raises(
        RuntimeError, match=r"^Jacobian computed with forward mode mismatch for output 0 with respect to"
    ):
        gradcheck(WrongForward.apply, x, check_forward_ad=True)
    assert gradcheck(OnHost.apply, x)
    with pytest.raises(weft.errors.GradcheckError, match=r"^While computing batched gradients, got: vmap: "):
        gradcheck(OnHost.apply, x, check_batched_grad=True)
    assert not gradcheck(OnHost.apply, x, check_batched_grad=True, raise_exception=False)


def test_an_output_without_a_cotangent_counts_as_zero(x):
    class Pair(Function):
        """Wrong only where one cotangent is there and zero, and the other is not."""

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            there = [scale * each for scale, each in ((2, g), (3, h)) if each is not None]
            return sum(there) + (1.0 if len(there) == 1 and not there[0].any() else 0.0)

    with pytest.raises(weft.errors.GradcheckError, match=r"^Expected all input grads to be undefined or zero when all"):
        gradcheck(Pair.apply, x)
    assert gradcheck(Pair.apply, x, check_undefined_grad=False)


@pytest.mark.parametrize(
    ("check", "options", "text"),
    [
        (
            gradcheck,
            {"check_backward_ad": False},
            "Expected at least one of check_forward_ad or check_backward_ad to be",
        ),
        (
            gradcheck,
            {"check_batched_forward_grad": True},
            "Setting check_batched_forward_grad=True requires check_forw",
        ),
        (
            gradcheck,
            {"check_forward_ad": True, "check_backward_ad": False, "check_batched_grad": True},
            "Setting check_batched_grad=True requires check_backward_ad to be True",
        ),
        (
            gradgradcheck,
            {"check_rev_over_rev": False},
            "Expected at least one of check_fwd_over_rev or check_rev_over_",
        ),
        (
            gradgradcheck,
            {"check_fwd_over_rev": True, "check_rev_over_rev": False},
            "Setting check_undefined_grad=True requires check_rev_over_rev to be True",
        ),
    ],
)
def test_checks_that_rely_on_others(x, check, options, text):
    with pytest.raises(AssertionError, match=f"^{text}"):
        check(lambda x: x * 2, x, **options)
