"""`vmap`: a function of one example as a function of many."""

from __future__ import annotations

import re

import pytest

import weft
from weft import func, nn
from weft.errors import TransformError
from weft.func import grad, vmap

X = weft.arange(6.0).reshape(2, 3)


def equal(one, other):
    return weft.equal(one, other)


def looped(function, *args):
    return weft.stack([function(*each) for each in zip(*args, strict=True)])


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a * 2 + a.sum(),
        lambda a: a.sort(descending=True)[0],
        lambda a: a[[2, 0]].cumsum(0),
        lambda a: weft.where(a > 1, a, -a),
        lambda a: a.clone().add_(1).mul_(a),
        lambda a: a.outer(a).t()[1:].reshape(-1),
        lambda a: weft.stack([a, a.flip(0)]).unbind(1)[1],
        lambda a: weft.zeros(3).copy_(a),
        lambda a: weft.linalg.vector_norm(a).expand(4),
        lambda a: weft.ones(2),
    ],
)
def test_it_is_a_loop(function):
    assert equal(vmap(function)(X), looped(function, X))


def test_dims_of_examples_are_hidden():
    seen = []

    def function(a):
        seen.append((a.shape, a.ndim, a.numel(), len(a)))
        return a

    vmap(function, in_dims=1)(weft.zeros(5, 2, 7))
    assert seen == [((5, 7), 2, 35, 5)]


def test_in_dims_and_out_dims_follow_the_structure():
    inputs = {"x": weft.ones(3, 2), "both": [X, X[0]]}
    result, (other, third) = vmap(
        lambda d, k: ({"y": d["x"].sum() + k}, (d["both"][0], d["both"][1])),
        in_dims=({"x": -1, "both": [0, None]}, None),
        out_dims=(0, (1, None)),
    )(inputs, 1)
    assert result["y"].tolist() == [4, 4]
    assert equal(other, X.t())
    assert third is inputs["both"][1] or equal(third, X[0])


def test_dicts_keep_their_order():
    assert list(vmap(lambda d: {k: v * 2 for k, v in d.items()})({"b": X, "a": X})) == ["b", "a"]


def test_keywords_are_shared():
    assert equal(vmap(lambda a, *, k: a * k)(X, k=2), 2 * X)


def test_levels_nest():
    assert equal(vmap(vmap(lambda a, b: a * b, (None, 0)), (0, None))(X[0], X[1]), X[0][:, None] * X[1])


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 7])
def test_chunks_give_the_same(chunk_size):
    x, y = weft.arange(10.0).reshape(5, 2), weft.ones(2)
    function = lambda a, b: (a * b.sum(), a.sum())  # noqa: E731
    expected = vmap(function, (0, None), (1, 0))(x, y)
    results = vmap(function, (0, None), (1, 0), chunk_size=chunk_size)(x, y)
    assert all(map(equal, results, expected))


def test_no_example_is_fine():
    assert vmap(lambda a: a.sum())(weft.zeros(0, 3)).shape == (0,)


# --- gradients ---


def test_gradients_flow_from_outside():
    x, w = X.clone().requires_grad_(), weft.ones(3, requires_grad=True)
    function = lambda a: (a * w).sin().sum()  # noqa: E731
    together = weft.autograd.grad(vmap(function)(x).sum(), (x, w))
    one_by_one = weft.autograd.grad(looped(function, x).sum(), (x, w))
    assert all(map(weft.allclose, together, one_by_one))


def test_gradients_stop_where_they_stop_in_the_function():
    x = X.clone().requires_grad_()

    def function(a):
        with weft.no_grad():
            b = a * 2
        return a * b + a.detach()

    (gradient,) = weft.autograd.grad(vmap(function)(x).sum(), x)
    assert equal(gradient, 2 * X)
    with weft.no_grad():
        assert not vmap(function)(x).requires_grad


def test_a_backward_pass_may_run_in_the_function():
    w = weft.ones(3, requires_grad=True)
    found = vmap(lambda a: weft.autograd.grad((a * w).sum(), w)[0])(X)
    assert equal(found, X)


def test_cotangents_may_be_batched():
    x = weft.arange(3.0).requires_grad_()
    y, z = x * x, x.sum()
    found = weft.autograd.grad((y, z), x, (weft.eye(3), weft.ones(3)), is_grads_batched=True)
    assert equal(found[0], weft.diag(2 * x.detach()) + 1)
    with pytest.raises(RuntimeError, match=r"grad_output\[0\] has a shape of torch.Size\(\[4, 4\]\)"):
        weft.autograd.grad(x * 2, x, weft.eye(4), is_grads_batched=True)
    with pytest.raises(
        ValueError, match=r"^vmap: Expected all tensors to have the same size .* got sizes \[3, 2\] for"
    ):
        weft.autograd.grad((y, z), x, (weft.eye(3), weft.ones(2)), is_grads_batched=True)
    with pytest.raises(RuntimeError, match=r"^grad can be implicitly created only for scalar outputs"):
        weft.autograd.grad(y, x, is_grads_batched=True)
    with pytest.raises(
        ValueError, match=r"^is_grads_batched=True: expected a Tensor as grad_output\[1\].*got NoneType$"
    ):
        weft.autograd.grad((y, z), x, (weft.eye(3), None), is_grads_batched=True)


def test_a_user_derivative_serves_each_example():
    class Square(weft.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            return 3 * g * ctx.saved_tensors[0]

    assert equal(vmap(Square.apply)(X), X * X)
    assert equal(vmap(grad(lambda a: Square.apply(a).sum()))(X), 3 * X)


# --- random numbers ---


def test_random_numbers_are_refused_shared_or_different():
    with pytest.raises(RuntimeError, match=r"^vmap: called random operation while in randomness error mode"):
        vmap(lambda a: a + weft.rand(3))(X)
    same = vmap(lambda a: a + weft.rand(3), randomness="same")(weft.zeros(4, 3))
    assert equal(same, same[:1].expand(4, 3))
    different = vmap(lambda a: a + weft.rand(3), randomness="different")(weft.zeros(4, 3))
    assert different.unique().numel() == 12


@pytest.mark.parametrize(("outer", "inner", "count"), [("different", "different", 6), ("different", "same", 2)])
def test_random_numbers_of_nested_levels(outer, inner, count):
    draw = vmap(vmap(lambda a: a + weft.rand(()), randomness=inner), randomness=outer)
    assert draw(weft.zeros(2, 3)).unique().numel() == count


def test_a_seed_gives_the_numbers_again():
    def draw(randomness, chunk_size):
        weft.manual_seed(3)
        return vmap(lambda a: a + weft.randn(2), randomness=randomness, chunk_size=chunk_size)(weft.zeros(4, 2))

    assert equal(draw("different", None), draw("different", None))
    assert equal(draw("same", None), draw("same", 2))


# --- writes and reads ---


def test_writes_to_an_example_are_writes_to_the_argument():
    x = X.clone()
    assert vmap(lambda a: a.add_(1).sum(), in_dims=1)(x).tolist() == [5, 7, 9]
    assert equal(x, X + 1)


def test_what_all_examples_share_takes_values_that_they_share():
    w = weft.zeros(3)
    view = w[1:]
    vmap(lambda a: a + w.add_(1))(X)
    assert w.tolist() == [1, 1, 1]
    assert view.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match=r"^vmap: inplace arithmetic\(self, \*extra_args\) is not possible because"):
        vmap(lambda a: w.add_(a))(X)
    assert w.tolist() == [1, 1, 1]


def test_running_statistics_are_refused_until_they_are_gone():
    norm, x = nn.BatchNorm1d(3), weft.rand(2, 4, 3)
    with pytest.raises(RuntimeError, match=r"^vmap: inplace arithmetic"):
        vmap(norm)(x)
    assert func.replace_all_batch_norm_modules_(norm) is norm
    assert weft.allclose(vmap(norm)(x), looped(norm, x))


def test_what_does_not_depend_on_the_example_can_be_read():
    w = weft.ones(3)
    assert equal(vmap(lambda a: a * w.sum().item() + weft.arange(3).sum().item())(X), 3 * X + 3)
    assert equal(vmap(lambda a: sum(a * float(i) for i in weft.arange(3)))(X), 3 * X)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            lambda a: a.sum().item(),
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over",
        ),
        (lambda a: a if a.sum() > 0 else -a, "vmap: It looks like you're attempting to use a Tensor in some data-dep"),
        (lambda a: a[a > 1], "vmap: It looks like you're calling .item() on a Tensor"),
        (lambda a: a.sum().backward(), "element 0 of tensors does not require grad"),
    ],
)
def test_what_depends_on_the_example_has_no_value(function, text):
    with pytest.raises(RuntimeError, match="^" + re.escape(text)):
        vmap(function)(X)


def test_backward_in_the_function_is_refused():
    w = weft.zeros(3, requires_grad=True)
    for transformed in (vmap(lambda a: (a * w).sum().backward()), grad(lambda a: (a * w).sum().backward())):
        with pytest.raises(RuntimeError, match=r"^backward\(\) called inside a functorch transform"):
            transformed(X)
    assert w.grad is None


def test_an_index_out_of_range_is_an_error_for_its_example():
    with pytest.raises(IndexError, match="9 is out of bounds for dimension 0 with size 5"):
        vmap(nn.Embedding(5, 3))(weft.tensor([[1, 2], [3, 9]])).sum().item()


def test_control_flow_has_an_operator():
    found = vmap(lambda a: weft.cond(a.sum() > 5, lambda b: b * 2, lambda b: -b, (a,)))(X)
    assert equal(found, weft.stack([-X[0], X[1] * 2]))


# --- arguments that do not fit: the texts are PyTorch's ---


def f(*args):
    return args[0]


IN, OUT = "vmap(f, in_dims={})(<inputs>): ", "vmap(f, ..., out_dims={})"
MISFITS = [
    (lambda: vmap(f)(X, weft.zeros(5)), "vmap: Expected all tensors to have the same size in the mapped dimension, got "
     "sizes [2, 5] for the mapped dimension"),
    (lambda: vmap(f, (0,))(X, X), IN.format("(0,), ...") + "in_dims is not compatible with the structure of `inputs`."),
    (lambda: vmap(f, ({"a": 0},))({"b": X}), IN.format("({'a': 0},), ...") + "in_dims is not compatible"),
    (lambda: vmap(f, [0])(X), IN.format("[0], ...") + "expected `in_dims` to be int or a (potentially nested) tuple "
     "matching the structure of inputs, got: <class 'list'>."),
    (lambda: vmap(f, (3,))(X), IN.format("(3,), ...") + "Got in_dim=3 for some input, but that input is a Tensor of "
     "dimensionality 2 so expected in_dim to satisfy -2 <= in_dim < 2."),
    (lambda: vmap(f, (0, 0))(X, 3), IN.format("(0, 0), ...") + "Got in_dim=0 for an input but the input is of type "
     "<class 'int'>. We cannot vmap over non-Tensor arguments, please use None as the respective in_dim"),
    (lambda: vmap(f, ("x",))(X), IN.format("('x',), ...") + "Got in_dim=x for an input but in_dim must be either an "
     "integer dimension or None."),
    (lambda: vmap(f, (None,))(X), "vmap: Expected at least one Tensor to vmap over"),
    (lambda: vmap(f)(), "vmap(f)(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
     "over a function with no inputs. The latter is unsupported."),
    (lambda: vmap(f, chunk_size=0), "vmap: chunk_size should be None or greater than 0. (got 0)"),
    (lambda: vmap(f, out_dims="x")(X), OUT.format("x") + ": `out_dims` must be an int, None or a python collection of "
     "ints representing where in the outputs the vmapped dimension should appear."),
    (lambda: vmap(f, out_dims=(0, 1))(X), OUT.format("(0, 1)") + "(<inputs>): out_dims is not compatible with the "
     "structure of `outputs`. out_dims has structure"),
    (lambda: vmap(f, out_dims=None)(X), "vmap(f, ...): `f` can not return a BatchedTensor when out_dim is None"),
    (lambda: vmap(f, (None, 0))(3, X), "vmap(f, ...): `f` must only return Tensors, got type <class 'int'>. Did you "
     "mean to set out_dims= to None for output?"),
]  # fmt: skip
"""Calls that raise `ValueError`, with PyTorch's texts."""


@pytest.mark.parametrize(("call", "text"), MISFITS)
def test_arguments_that_do_not_fit(call, text):
    with pytest.raises(ValueError, match="^" + re.escape(text)):
        call()


def test_options_that_do_not_exist():
    with pytest.raises(RuntimeError, match=r"^Only allowed values for randomness are 'error', 'different', or 'same'"):
        vmap(f, randomness="x")
    with pytest.raises(
        IndexError, match=r"^Dimension out of range \(expected to be in range of \[-2, 1\], but got 5\)"
    ):
        vmap(f, out_dims=5)(X)


def test_what_is_no_tensor_passes_with_out_dim_none():
    assert vmap(lambda a: (a, 3), out_dims=(0, None))(X)[1] == 3


# --- within other things ---


def test_it_is_compiled_exported_to_jax_and_cast():
    layer = nn.Linear(3, 2)
    per_example = vmap(grad(lambda a: layer(a).sin().sum()))
    compiled = weft.compile(per_example)
    for shift in range(3):
        assert weft.allclose(compiled(X + shift), per_example(X + shift))
    assert weft.to_jax(per_example)(X.numpy()).shape == (2, 3)
    with weft.autocast("cpu"):
        assert vmap(layer)(X).dtype is weft.bfloat16


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.ReLU(), nn.MaxPool2d(2)), (1, 2, 6, 6)),
        (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (1, 5, 8)),
        (lambda: nn.GRU(3, 4, batch_first=True), (1, 5, 3)),
    ],
)
def test_modules_run_on_examples(module, shape):
    module, x = module(), weft.randn(3, *shape)
    first = lambda y: y[0] if isinstance(y, tuple) else y  # noqa: E731
    found = vmap(lambda a: first(module(a)))(x)
    assert weft.allclose(found, looped(lambda a: first(module(a)), x), atol=1e-5)


class Scale(weft.autograd.Function):
    """A product with a derivative that is three times too large."""

    @staticmethod
    def forward(ctx, a, w):
        ctx.save_for_backward(a, w)
        return a * w, (a * w).sum()

    @staticmethod
    def backward(ctx, g, h):
        a, w = ctx.saved_tensors
        return 3 * (g + h) * w, 3 * (g + h) * a


def test_gradients_from_outside_pass_user_derivatives():
    x, w = X.clone().requires_grad_(), weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for weight, dims in ((w, (0, None)), (w.expand(2, 3), (0, 0))):
        product, total = vmap(Scale.apply, dims)(x, weight)
        together = weft.autograd.grad((product * X).sum() + total.sum(), (x, w))
        assert weft.allclose(together[0], 3 * (X + 1) * w)
        assert weft.allclose(together[1], (3 * (X + 1) * X).sum(0))
    nested = vmap(vmap(lambda a: Scale.apply(a, w)[0], 0), 0)
    assert weft.allclose(weft.autograd.grad(nested(x[None]).sum(), w)[0], 3 * X.sum(0))
    through = weft.func.jacrev(lambda b: vmap(Scale.apply, (0, None))(b, w)[1])(X)
    assert weft.allclose(through[0, 0], 3 * w)


def test_user_derivatives_are_differentiated_through():
    x, w = X.clone().requires_grad_(), weft.ones(3, requires_grad=True)
    (first,) = weft.autograd.grad(vmap(Scale.apply, (0, None))(x, w)[0].sum(), w, create_graph=True)
    (second,) = weft.autograd.grad((first * weft.tensor([1.0, 2.0, 3.0])).sum(), x)
    assert weft.allclose(second, 3 * weft.tensor([1.0, 2.0, 3.0]).expand(2, 3))


def test_hooks_within_are_for_passes_within():
    def function(a):
        b = a * 1
        b.register_hook(lambda g: g * 2)
        return b

    with pytest.raises(RuntimeError, match=r"^vmap: gradients would flow from outside to a tensor with hooks"):
        vmap(function)(X.clone().requires_grad_())
    assert equal(vmap(grad(lambda a: function(a).sum()))(X), weft.full((2, 3), 2.0))


def test_errors_are_of_one_class():
    with pytest.raises(TransformError):
        vmap(lambda a: a.item())(X[0])


def test_a_tensor_of_an_example_has_no_elements_outside():
    left = []
    assert weft.vmap(lambda x: left.append(x) or x.sum())(weft.ones(2, 3)).tolist() == [3, 3]
    assert left[0].shape == (3,)
    for use in (lambda x: x.tolist(), lambda x: (x + 1).tolist(), lambda x: (x * weft.ones(3)).sum().item(), repr):
        with pytest.raises(RuntimeError, match=r"^vmap: a tensor that stands for one example has left the function"):
            use(left[0])
    assert (weft.ones(2) + 1).tolist() == [2, 2]


def test_tensors_are_shown_with_all_examples():
    texts = []
    shared = weft.zeros(1)

    def function(x):
        texts.extend([str(x), f"{shared + 1}", repr(x * 2)])
        return x.sum()

    weft.vmap(function)(weft.ones(2, 3))
    rows = "    tensor([[{0}., {0}., {0}.],\n            [{0}., {0}., {0}.]])"
    one, two = (f"BatchedTensor(lvl=1, bdim=0, value=\n{rows.format(n)}\n)" for n in (1, 2))
    assert texts == [one, "tensor([1.])", two]
    texts.clear()
    weft.vmap(weft.vmap(function))(weft.ones(1, 1, 1))
    inner = "    BatchedTensor(lvl=1, bdim=0, value=\n        tensor([[[1.]]])\n    )"
    assert texts[0] == f"BatchedTensor(lvl=2, bdim=0, value=\n{inner}\n)"
