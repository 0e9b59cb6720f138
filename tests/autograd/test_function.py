"""Operators with a derivative written by the user."""

from __future__ import annotations

from typing import ClassVar

import pytest

import weft
from weft._base.state import ambient
from weft.autograd import Function, grad, gradcheck, gradgradcheck, once_differentiable
from weft.autograd.function import BackwardCFunction, FunctionCtx, InplaceFunction
from weft.autograd.graph import Node


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Split(Function):
    """Two results, told apart by what `backward` gets."""

    seen: list = []  # noqa: RUF012  read by the tests

    @staticmethod
    def forward(ctx, x, materialize):
        ctx.set_materialize_grads(materialize)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        Split.seen[:] = [a, b]
        total = sum(g * k for g, k in ((a, 2), (b, 3)) if g is not None)
        return total, None


@pytest.fixture
def x():
    return weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)


def test_the_derivative_is_the_users(x):
    y = Cube.apply(x)
    assert y.grad_fn.name() == "CubeBackward"
    y.sum().backward()
    assert x.grad.tolist() == [3, 12]


def test_it_may_be_differentiated_twice(x):
    assert gradcheck(Cube.apply, [x])
    assert gradgradcheck(Cube.apply, [x])
    (first,) = grad(Cube.apply(x).sum(), x, create_graph=True)
    assert grad(first.sum(), x)[0].tolist() == [6, 12]


def test_saved_tensors_are_as_they_were(x):
    doubled = x * 2
    y = Cube.apply(doubled)
    doubled.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [2 * 3 * 4, 2 * 3 * 16]


def test_it_works_between_other_operators_and_after_reading(x):
    y = Cube.apply(x * 2)
    assert y.tolist() == [8, 64]
    (y * y).sum().backward()
    assert x.grad.tolist() == [6 * 2**6, 6 * 2**6 * 2**5]


def test_a_second_backward_needs_retain_graph(x):
    y = Cube.apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [6, 24]
    with pytest.raises(RuntimeError, match=r"a second time"):
        y.backward()


def test_without_gradients_it_only_computes(x):
    with weft.no_grad():
        assert not Cube.apply(x).requires_grad
    assert Cube.apply(x.detach()).tolist() == [1, 8]


@pytest.mark.parametrize(("materialize", "absent"), [(True, [0, 0]), (False, None)])
def test_a_result_without_a_gradient_gives_zeros_or_none(x, materialize, absent):
    first, _ = Split.apply(x, materialize)
    first.sum().backward()
    assert x.grad.tolist() == [2, 2]
    got = Split.seen[1]
    assert (got if got is None else got.tolist()) == absent


def test_both_results_contribute(x):
    first, second = Split.apply(x, True)
    (first + 10 * second).sum().backward()
    assert x.grad.tolist() == [32, 32]


def test_results_may_be_marked_as_not_differentiable(x):
    class WithPlace(Function):
        @staticmethod
        def forward(ctx, x):
            value, place = x.max(0)
            rest = x * 0
            ctx.mark_non_differentiable(place, rest)
            ctx.save_for_backward(place)
            return value, place, rest

        @staticmethod
        def backward(ctx, g, *_):
            (place,) = ctx.saved_tensors
            return weft.zeros(2, dtype=g.dtype).index_add(0, place.reshape(1), g.reshape(1))

    value, place, rest = WithPlace.apply(x)
    assert [t.requires_grad for t in (value, place, rest)] == [True, False, False]
    value.backward()
    assert x.grad.tolist() == [0, 1]


def test_arguments_that_are_no_tensors_need_no_gradient(x):
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor, other):
            ctx.factor = factor
            assert ctx.needs_input_grad == (True, False, False)
            return x * factor + other

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None, None

    Scale.apply(x, 4, weft.ones(2)).sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_context_may_be_set_up_apart(x):
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs, output)

        @staticmethod
        def backward(ctx, g):
            x, _ = ctx.saved_tensors
            return 2 * g * x

    Square.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_an_input_may_be_written_and_returned(x):
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = x * 1
    z = Twice.apply(y)
    assert z is y
    z.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_once_differentiable_leaves_the_tape(x):
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    (first,) = grad(Once.apply(x).sum(), x, create_graph=True)
    assert not first.requires_grad


def function(**members):
    """A function made of these: methods, which are static, and options."""
    return type("F", (Function,), {name: staticmethod(x) if callable(x) else x for name, x in members.items()})


def returns(*gradients):
    """A function whose `backward` returns these."""
    return function(forward=lambda ctx, x: x * 1, backward=lambda ctx, g: gradients)


WRONG = [
    (
        "too many",
        [weft.ones(2), weft.ones(2)],
        r"^function FBackward returned an incorrect number of gradients \(exp",
    ),
    ("too few", [], r"^function FBackward returned an incorrect number of gradients \(expected 1, got 0\)$"),
    (
        "shape",
        [weft.ones(3)],
        r"^Function FBackward returned an invalid gradient at index 0 - got \[3\] but expected ",
    ),
    ("kind", [1.0], r"^expected Variable or None \(got float\)$"),
    (
        "complex",
        [weft.ones(2) * 1j],
        r"^Function FBackward returned a complex gradient at index 0 for a real input$",
    ),
]


@pytest.mark.parametrize(("gradients", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_gradients_are_refused(x, gradients, text):
    with pytest.raises(RuntimeError, match=text):
        returns(*gradients).apply(x).sum().backward()


def test_a_gradient_gets_the_type_and_the_shape_of_its_input(x):
    returns(weft.tensor([[1.0, 2.0]] * 3)).apply(x).sum().backward()
    assert x.grad.dtype is weft.float64
    assert x.grad.tolist() == [3, 6]


def test_none_is_no_gradient(x):
    (returns(None).apply(x).sum() + x.sum()).backward()
    assert x.grad.tolist() == [1, 1]


def test_trailing_nones_are_dropped(x):
    (returns(weft.ones(2, dtype=weft.float64), None).apply(x)).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_what_is_missing_is_named(x):
    with pytest.raises(NotImplementedError, match=r"^You must implement the forward function for custom autograd"):
        function().apply(x)
    with pytest.raises(NotImplementedError, match=r"^You must implement either the backward or vjp method"):
        function(forward=lambda ctx, x: x * 1).apply(x).sum().backward()


def test_it_is_called_by_apply_alone(x):
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = function(forward=lambda ctx, x: x)()
    with pytest.raises(RuntimeError, match=r"^Legacy autograd function with non-static forward method is deprecated"):
        instance(x)


def test_vjp_is_another_name_of_backward(x):
    methods = {"forward": lambda ctx, x: x * 2, "vjp": lambda ctx, g: g * 2}
    function(**methods).apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    both = function(**methods, backward=methods["vjp"])
    with pytest.raises(RuntimeError, match=r"^Implementing both 'backward' and 'vjp' for a custom Function is not all"):
        both.apply(x).sum().backward()


def _written(ctx, x):
    ctx.mark_dirty(x)
    return x, x * 1


def _not_given(ctx, x):
    y = x.clone()[:1]
    ctx.mark_dirty(y)
    return y


MARKS = [
    (
        "saved number",
        lambda ctx, x: ctx.save_for_backward(x, 3),
        "save_for_backward can only save variables, but argument 1",
    ),
    (
        "plain number",
        lambda ctx, x: ctx.mark_non_differentiable(3),
        "mark_non_differentiable only accepts variable argume",
    ),
    ("dirty number", lambda ctx, x: ctx.mark_dirty(3), "mark_dirty can only accept variables, but argument 0"),
    ("dirty view beside another result", _written, "If your Function modifies inplace an input that is a view of ano"),
    ("dirty view that was not given", _not_given, r"ctx.mark_dirty\(\) received a tensor that was not an input"),
]


@pytest.mark.parametrize(("forward", "text"), [row[1:] for row in MARKS], ids=[row[0] for row in MARKS])
def test_marks_that_make_no_sense_are_refused(x, forward, text):
    with pytest.raises((RuntimeError, TypeError), match=f"^{text}"):
        function(forward=forward).apply((x * 1)[:1])


def test_saved_tensors_may_be_for_a_single_reading(x):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * ctx.saved_tensors[0]

    for once in (False, True):
        y = function(forward=forward, backward=backward, clear_saved_tensors_on_access=once).apply(x)
        if once:
            with pytest.raises(RuntimeError, match=r"^saved_tensors can only be accessed once when clear_saved"):
                y.sum().backward()
        else:
            y.sum().backward()


class _Exp(Function):
    """The exponential, whose derivative reads the result."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y


def test_a_saved_result_is_on_the_tape():
    x = weft.tensor([0.1, 0.4], dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradgradcheck(lambda t: _Exp.apply(t) ** 2, x)


class Doubling(weft.autograd.Function):
    """In place, with a gradient that tells it from the ordinary one."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 10


def test_a_dirty_view_hands_its_gradient_to_the_base():
    w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    h = w * 1
    part = h[:2]
    assert Doubling.apply(part) is part
    assert (h.tolist(), part.tolist()) == ([2, 4, 3], [2, 4])
    h.sum().backward()
    assert w.grad.tolist() == [10, 10, 1]


def test_views_of_what_is_dirty_follow():
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    h = w * 1
    part = h[:1]
    Doubling.apply(h)
    (part * 5).sum().backward()
    assert w.grad.tolist() == [50, 0]


def test_leaves_must_not_be_dirty(x):
    with pytest.raises(
        RuntimeError, match=r"^a leaf Variable that requires grad has been used in an in-place operation"
    ):
        Doubling.apply(x)
    with pytest.raises(RuntimeError, match=r"^a view of a leaf Variable that requires grad"):
        Doubling.apply(weft.ones(2, requires_grad=True)[:1])


def test_what_is_dirty_must_be_returned(x):
    class Hidden(Doubling):
        @staticmethod
        def forward(ctx, x):
            return Doubling.forward(ctx, x) * 3

    with pytest.raises(
        RuntimeError, match=r"^Some elements marked as dirty during the forward method were not returned"
    ):
        Hidden.apply(x * 1)


def test_a_function_that_saved_nothing_is_passed_again(x):
    class Tripling(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * 3

    loss = Tripling.apply(x).sum()
    loss.backward()
    loss.backward()
    assert x.grad.tolist() == [6, 6]


class ByContext(Function):
    """Twice its argument, as a function without `ctx`."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        assert g.names == ("N", "C")
        return g * 2


class Same(ByContext):
    """Its argument."""

    @staticmethod
    def forward(x):
        return x.view_as(x)


class Swapped(ByContext):
    """Its argument with the dims swapped, and its sum."""

    @staticmethod
    def forward(x):
        return x.transpose(0, 1), x.sum(0)

    @staticmethod
    def backward(ctx, g, h):
        assert (g.names, h.names) == (("C", "N"), ("C",))
        return g.transpose(0, 1)


@pytest.mark.parametrize("function", [ByContext, Same, Swapped])
def test_results_keep_their_names_when_they_are_differentiated(function):
    def names(results):
        return [r.names for r in (results if isinstance(results, tuple) else (results,))]

    x = weft.ones(2, 3, names=("N", "C"))
    plain = names(function.apply(x))
    results = function.apply(x.requires_grad_())
    assert names(results) == plain
    first = results[0] if isinstance(results, tuple) else results
    first.sum().backward()
    assert x.grad.names == ("N", "C")


# --- nodes of functions ---


class Scaled(Function):
    """Doubles by default; takes keywords."""

    @staticmethod
    def forward(x, factor=2):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


def test_arguments_have_defaults_and_names(x):
    assert Scaled.apply(x).tolist() == [2, 4]
    assert Scaled.apply(factor=3, x=x).tolist() == [3, 6]
    with pytest.raises(TypeError, match=r"missing a required argument: 'x'"):
        Scaled.apply()


def test_the_context_is_the_node(x):
    y = Scaled.apply(x.exp(), 5)
    node = y.grad_fn
    assert isinstance(node, Scaled._backward_cls)
    assert issubclass(BackwardCFunction, (FunctionCtx, Node))
    assert y.grad_fn is node
    assert (node.factor, node.name(), type(node).__name__) == (5, "ScaledBackward", "ScaledBackward")
    assert node.needs_input_grad == (True, False)
    assert [type(each).__name__ for each, _ in node.next_functions] == ["ExpBackward0"]
    assert [None if g is None else g.tolist() for g in node.apply(weft.ones(2))] == [[5, 5], None]
    seen = []
    node.register_hook(lambda grads, outputs: seen.append((grads[0].tolist(), outputs[0].tolist())))
    node.metadata["key"] = 1
    y.sum().backward()
    assert seen == [([5, 5], [1, 1])]
    assert node.metadata == {"key": 1}


def test_a_node_does_not_keep_its_graph(x):
    node = Scaled.apply(x).grad_fn
    weft.zeros(1).tolist()
    ambient().pending.clear()
    with pytest.raises(RuntimeError, match=r"invalid for this instance of autograd\.Function"):
        node.next_functions


def test_results_without_gradients_may_be_arguments(x):
    same = function(forward=lambda ctx, x: ctx.mark_non_differentiable(x) or x)
    assert not same.apply(x).requires_grad
    assert x.requires_grad


def test_what_is_differentiable_once_raises_the_second_time(x):
    @once_differentiable
    def derivative(ctx, g):
        assert not weft.is_grad_enabled()
        return g * 2

    double = function(forward=lambda ctx, x: x * 2, backward=derivative)
    weights = weft.ones(2, dtype=weft.float64, requires_grad=True)
    (first,) = weft.autograd.grad(double.apply(x), x, weights, create_graph=True)
    assert first.requires_grad
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with @once_diff"):
        first.sum().backward()


def test_instances_are_of_no_use():
    with pytest.warns(DeprecationWarning, match=r"should not be instantiated\. Methods on autograd functions are all"):
        InplaceFunction(True)


# --- vmap ---


class Mapped(Scaled):
    calls: ClassVar[list] = []

    @staticmethod
    def vmap(info, in_dims, x, factor):
        Mapped.calls.append((info.batch_size, info.randomness, in_dims, tuple(x.shape), factor))
        return Scaled.apply(x, factor) * 10, in_dims[0]


def test_a_rule_computes_all_examples():
    Mapped.calls.clear()
    y = weft.vmap(lambda t: Mapped.apply(t, 3) + 1, in_dims=1)(weft.ones(3, 2))
    assert y.tolist() == [[31] * 3] * 2
    assert Mapped.calls == [(2, "error", (0, None), (2, 3), 3)]
    assert weft.vmap(weft.vmap(lambda t: Mapped.apply(t, 3)))(weft.ones(2, 2)).tolist() == [[30] * 2] * 2
    assert Mapped.apply(weft.ones(1)).tolist() == [2]


def test_gradients_flow_through_rules():
    x = weft.ones(3, 2, requires_grad=True)
    weft.vmap(lambda t: Mapped.apply(t, 3))(x).sum().backward()
    assert x.grad.tolist() == [[30] * 2] * 3


def test_derivatives_inside_of_a_mapped_function_are_those_of_one_example():
    Mapped.calls.clear()
    gradient = weft.func.grad(lambda t: Mapped.apply(t, 3).sum())
    assert weft.vmap(gradient)(weft.ones(3, 2)).tolist() == [[3] * 2] * 3
    assert not Mapped.calls


def test_rules_that_are_refused():
    class Both(Mapped):
        generate_vmap_rule = True

    class Uneven(Scaled):
        @staticmethod
        def vmap(info, in_dims, x, factor):
            return (x, x), (0,)

    with pytest.raises(
        RuntimeError, match=r"^You tried to vmap over Both, but it has both generate_vmap_rule=True and"
    ):
        weft.vmap(lambda t: Both.apply(t, 3))(weft.ones(3, 2))
    with pytest.raises(RuntimeError, match=r"one out_dim for each of the 2 outputs, got 1$"):
        weft.vmap(lambda t: Uneven.apply(t, 3))(weft.ones(3, 2))
