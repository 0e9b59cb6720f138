"""Names of dims through operators: which have to match, which results have, and how writes and gradients go."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import weft
from weft import Tensor, nn
from weft.nn import functional as F
from weft.utils.checkpoint import checkpoint


def _numbered(shape: tuple[int, ...], *names: str | None) -> Tensor:
    return weft.arange(float(prod(shape))).reshape(shape).rename(*names)


@pytest.fixture
def x() -> Tensor:
    """[[0, 1, 2], [3, 4, 5]] with dims N and C."""
    return _numbered((2, 3), "N", "C")


_MISMATCH = (
    r"^Error when attempting to broadcast dims \['N', 'C'\] and dims \['N'\]: dim 'C' and dim 'N' are at the same "
    r"position from the right but do not match\.$"
)
_OUT_MISMATCH = (
    r"^Name mismatch: specified out tensor with names \['A', 'B'\] are not the same as the computed output names "
    r"\['N', 'C'\]\. Please rename the out tensor's dims with `Tensor\.rename`\.$"
)

# --- broadcasting ---


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (("N", "C"), ("N", "C"), ("N", "C")),
        (("N", None), (None, "C"), ("N", "C")),
        (("N", "C"), ("C",), ("N", "C")),
        (("B", "N", "C"), ("N", "C"), ("B", "N", "C")),
        (("N", "C"), (None, None), ("N", "C")),
        (("N", "C"), (None, None, None), (None, "N", "C")),
        ((None, None), (None, None), (None, None)),
        ((), ("N",), ("N",)),
    ],
)
@pytest.mark.parametrize("function", [weft.add, weft.mul, weft.atan2, weft.lt, weft.maximum, weft.pow])
def test_names_of_two_operands_are_unified(function, left, right, result):
    a, b = (weft.ones((3,) * len(names)).rename(*names) if names else weft.tensor(1.0) for names in (left, right))
    assert function(a, b).names == function(b, a).names == result
    assert (a.names, b.names) == (left, right)


def test_numbers_have_no_names(x):
    assert (x + 1).names == (2**x).names == (x > 2).names == (-x).names == x.clamp(0, 1).names == ("N", "C")
    assert (x * weft.tensor(2.0)).names == weft.where(x > 2, x, 0.0).names == x.masked_fill(x > 2, 0).names == x.names


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        (("N", "C"), ("N",), _MISMATCH),
        (
            ("N", None),
            ("N",),
            r"^Misaligned dims when attempting to broadcast dims \['N'\] and dims \['N', None\]: dim 'N' appears in a "
            r"different position from the right across both lists\.$",
        ),
        (("N", None), (None, "N"), r"^Misaligned dims when attempting to broadcast dims "),
    ],
)
def test_names_that_do_not_match(left, right, text):
    a, b = (weft.ones((3,) * len(names), names=names) for names in (left, right))
    for call in (lambda: a + b, lambda: a.eq(b), lambda: a.add_(b) if a.ndim >= b.ndim else a + b):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_names_that_do_not_match_are_an_error_of_ours(x):
    with pytest.raises(weft.errors.DimNameError):
        x + x.rename(N="B")


# --- products, and operators of other families ---


@pytest.mark.parametrize(
    ("call", "left", "right", "result"),
    [
        (weft.mm, ("N", "D"), ("in", "out"), ("N", "out")),
        (weft.mm, ("N", "D"), ("D", "out"), ("N", "out")),
        (weft.mm, (None, None), ("i", "o"), (None, "o")),
        (weft.mv, ("N", "D"), ("something",), ("N",)),
        (weft.dot, ("N",), ("D",), ()),
        (weft.matmul, ("M",), ("N", "D"), ("D",)),
        (weft.matmul, ("A", "B", "C", "D"), ("B", "E", "F"), ("A", "B", "C", "F")),
        (weft.bmm, ("B", "N", "D"), ("B", "i", "o"), ("B", "N", "o")),
        (weft.outer, ("N",), ("D",), ("N", "D")),
        (lambda a, b: weft.einsum("nd,md->nm", a, b), ("N", "D"), ("M", "C"), ("N", "M")),
        (lambda a, b: weft.einsum("nd,md->nm", a, b), ("N", "D"), ("N", "D"), ("N", None)),
        (F.linear, ("N", "D"), ("out", "in"), ("N", "out")),
        (lambda a, b: weft.tensordot(a, b, ([1], [1])), ("N", "D"), ("M", "C"), ("N", "M")),
        (lambda a, b: weft.addmm(weft.ones(3, names=("o",)), a, b), ("N", "D"), ("i", "o"), ("N", "o")),
    ],
)
def test_contracted_names_disappear_without_being_compared(call, left, right, result):
    a, b = (weft.ones((3,) * len(names), names=names) for names in (left, right))
    assert call(a, b).names == result


@pytest.mark.parametrize(
    ("call", "left", "right", "text"),
    [
        (
            weft.matmul,
            ("A", "B", "C", "D"),
            ("Q", "E", "F"),
            r"^matmul: Expected 'B' \(index 1 of \['A', 'B', 'C', 'D'\]\) to match 'Q' \(index 0 of \['Q', 'E', "
            r"'F'\]\) but they do not match\.$",
        ),
        (
            weft.mm,
            ("N", "D"),
            ("in", "N"),
            r"^Matrix multiplying Tensor\['N', 'D'\] with Tensor\['in', 'N'\] would produce output tensor with "
            r"duplicate names \['N', 'N'\]\. Please rename the input tensors with `Tensor\.rename`",
        ),
        (weft.bmm, ("B", "N", "D"), ("Q", "i", "o"), r"^bmm: Expected 'B' \(index 0 of .* to match 'Q' \(index 0 of "),
    ],
)
def test_products_whose_names_do_not_fit(call, left, right, text):
    a, b = (weft.ones((3,) * len(names), names=names) for names in (left, right))
    with pytest.raises(RuntimeError, match=text):
        call(a, b)


_IMAGE = ("N", "C", "H", "W")


@pytest.mark.parametrize(
    ("call", "names", "result"),
    [
        (lambda x: nn.Linear(4, 5)(x), _IMAGE, ("N", "C", "H", None)),
        (lambda x: nn.LayerNorm(4)(x), _IMAGE, _IMAGE),
        (lambda x: nn.BatchNorm2d(4)(x), _IMAGE, _IMAGE),
        (lambda x: nn.Conv2d(4, 5, 3, padding=1)(x), _IMAGE, ("N", None, "H", "W")),
        (lambda x: F.max_pool2d(x, 2), _IMAGE, _IMAGE),
        (lambda x: F.adaptive_avg_pool2d(x, 1), _IMAGE, _IMAGE),
        (lambda x: nn.Embedding(300, 5)(x.long()), _IMAGE, (*_IMAGE, None)),
        (lambda x: F.scaled_dot_product_attention(x, x, x), _IMAGE, _IMAGE),
        (lambda x: F.gelu(F.normalize(x, dim=1)), _IMAGE, _IMAGE),
        (lambda x: F.one_hot(x.long()), ("N", "C"), ("N", "C", None)),
        (lambda x: nn.MultiheadAttention(4, 2, batch_first=True)(x, x, x)[0], ("N", "T", "C"), ("N", "T", None)),
        (lambda x: nn.LSTM(4, 5, batch_first=True)(x)[0], ("N", "T", "C"), ("N", "T", None)),
        (lambda x: F.cross_entropy(x, weft.zeros(4, 1, names=("N", "one")).squeeze("one").long(), reduction="none"),
         ("N", "C"), ("N",)),
        (lambda x: weft.stack([x, x]), ("N", "C"), (None, "N", "C")),
        (lambda x: weft.cat([x, x.rename(N=None)]), ("N", "C"), ("N", "C")),
        (lambda x: x.unsqueeze(0).expand(3, -1, -1), ("N", "C"), (None, "N", "C")),
        (lambda x: x.repeat(2, 1, 1), ("N", "C"), (None, "N", "C")),
        (lambda x: x.roll(1, 0).tril(), ("N", "C"), ("N", "C")),
        (lambda x: weft.linalg.inv(x + 16 * weft.eye(4)), ("N", "C"), ("C", "N")),
        (lambda x: x.topk(2).indices, ("N", "C"), ("N", "C")),
        (lambda x: x.gather(1, x.long() % 4), ("N", "C"), ("N", "C")),
        (lambda x: x.index_select(0, weft.tensor([2, 0])), ("N", "C"), ("N", "C")),
        (lambda x: weft.meshgrid(x, x.rename("M"), indexing="ij")[0], ("N",), ("N", "M")),
        (lambda x: x.reshape(2, 8), ("N", "C"), (None, None)),
        (lambda x: x.nonzero(), ("N", "C"), (None, None)),
        (lambda x: x.view(4, 2, 2), ("N", None), ("N", None, None)),
        (lambda x: weft.utils.data.default_collate([x, x]), ("N", "C"), (None, "N", "C")),
    ],
)  # fmt: skip
def test_names_of_results(call, names, result):
    assert call(_numbered((4,) * len(names), *names)).names == result


def test_losses_and_attention_compare_names(x):
    with pytest.raises(RuntimeError, match=r"^mse_loss: Expected 'N' \(index 0 of \['N', 'C'\]\) to match 'B' "):
        F.mse_loss(x, x.rename(N="B"))
    with pytest.raises(RuntimeError, match=r"^cross_entropy: Expected 'N' \(index 0 of \['N', 'C'\]\) to match "):
        F.cross_entropy(x, weft.zeros(2, dtype=weft.int64, names=("B",)))
    q = _numbered((2, 3, 4), "N", "T", "D")
    with pytest.raises(RuntimeError, match=r"^scaled_dot_product_attention: Expected 'N' "):
        F.scaled_dot_product_attention(q, q.rename(N="B"), q)
    assert F.scaled_dot_product_attention(q, q.rename(T="S"), q.rename(T="S")).names == ("N", "T", "D")


def test_equal_compares_names(x):
    assert weft.equal(x, x.clone())
    assert not weft.equal(x, x.rename(N=None))
    assert weft.allclose(x, x.rename(None))


# --- out= and writes ---


def test_out_without_names_receives_them(x):
    for out in (weft.zeros(2, 3), weft.zeros(0)):
        assert weft.add(x, 1, out=out) is out
        assert out.names == ("N", "C")


def test_out_with_names_must_have_those_of_the_result(x):
    assert weft.exp(x, out=weft.zeros(2, 3, names=("N", "C"))).names == ("N", "C")
    with pytest.raises(RuntimeError, match=_OUT_MISMATCH):
        weft.exp(x, out=weft.zeros(2, 3, names=("A", "B")))
    partly = weft.zeros(2, 3, names=("N", None))
    with pytest.raises(RuntimeError, match=r"^Name mismatch: specified out tensor with names \['N', None\] are not "):
        weft.exp(x, out=partly)
    assert partly.sum().item() == 0
    with pytest.raises(RuntimeError, match=r"^Name mismatch: .* computed output names \[None, None\]\. "):
        weft.exp(x.rename(None), out=weft.zeros(2, 3, names=("A", "B")))


@pytest.mark.parametrize("write", [Tensor.add_, Tensor.mul_, Tensor.copy_, Tensor.sub_])
def test_a_tensor_without_names_receives_those_that_are_written(x, write):
    plain = weft.ones(2, 3)
    assert write(plain, x).names == plain.names == ("N", "C")


def test_writes_keep_and_compare_names(x):
    for write in (lambda: x.add_(1), lambda: x.zero_(), lambda: x.mul_(weft.ones(3, names=("C",))), lambda: x.exp_()):
        assert write().names == ("N", "C")
    with pytest.raises(RuntimeError, match=_MISMATCH):
        x.mul_(weft.ones(3, names=("N",)))
    with pytest.raises(RuntimeError, match=r"^Error when attempting to broadcast dims \['N', 'C'\] and dims \['A', "):
        x.copy_(x.rename(N="A"))
    with pytest.raises(RuntimeError, match=r"^Name mismatch: specified out tensor with names \['N', None\] are not "):
        weft.ones(2, 3, names=("N", None)).add_(x)


def test_writes_through_views(x):
    x[0].add_(5)
    x[:, 1] = weft.zeros(2, names=("N",))
    x.align_to("C", "N")[2] = 9
    x.rename(None)[1, 0] = 7
    assert x.tolist() == [[5, 0, 9], [7, 0, 9]]
    assert x.names == ("N", "C")
    with pytest.raises(RuntimeError, match=r"^Error when attempting to broadcast dims \['C'\] and dims \['N'\]: "):
        x[0] = weft.zeros(3, names=("N",))


def test_a_view_has_names_of_its_own(x):
    view, transposed = x.rename(None), x.T
    x.add_(1)
    assert (view.names, transposed.names) == ((None, None), ("C", "N"))
    view.rename_("A", "B")
    assert (view.names, x.names) == (("A", "B"), ("N", "C"))


# --- gradients ---


def test_a_gradient_has_the_names_of_its_tensor(x):
    x.requires_grad_()
    for loss in ((x * 2).sum(), (x @ _numbered((3, 2), "C", "D")).sum("D").sum(), x.align_to("C", "N").exp().sum()):
        x.grad = None
        loss.backward()
        assert x.grad.names == x.names
        assert weft.autograd.grad((x * 2).sum(), x)[0].names == x.names


def test_names_in_the_graph_are_not_those_of_the_gradient(x):
    x.requires_grad_()
    x.rename("A", "B").sum("A").mul(weft.tensor([1.0, 2, 3], names=("B",))).sum().backward()
    assert x.grad.names == ("N", "C")
    assert x.grad.tolist() == [[1, 2, 3], [1, 2, 3]]


def test_hooks_see_names(x):
    x.requires_grad_()
    seen: list[Any] = []
    y = x * 2
    y.register_hook(lambda grad: seen.append(grad.names))
    y.retain_grad()
    x.register_hook(lambda grad: grad * weft.tensor([1.0, 10, 100], names=("C",)))
    y.sum("C").sum().backward()
    assert seen == [y.grad.names] == [("N", "C")]
    assert x.grad.names == ("N", "C")
    assert x.grad.tolist() == [[2, 20, 200]] * 2


def test_hooks_may_drop_names_but_not_change_them(x):
    x.requires_grad_()
    handle = x.register_hook(lambda grad: grad.rename(None))
    (x * 2).sum().backward()
    assert x.grad.names == ("N", "C")
    handle.remove()

    def wrong(grad: Tensor) -> Tensor:
        return grad.rename("A", "B")

    x.register_hook(wrong)
    with pytest.raises(RuntimeError, match=r"^Mismatch in names: the result of hook '.*wrong' has dims \['A', 'B'\], "):
        (x * 2).sum().backward()


def test_a_gradient_that_is_given_must_have_the_names(x):
    x.requires_grad_()
    y = x.tanh()
    for gradient in (weft.ones(2, 3), weft.ones(2, 3, names=("N", "C"))):
        y.backward(gradient, retain_graph=True)
    assert x.grad.names == ("N", "C")
    with pytest.raises(
        RuntimeError, match=r"^Mismatch in names: grad_output\[0\] has dims \['C', 'N'\], and what it is "
    ):
        y.backward(weft.ones(2, 3, names=("C", "N")))


def test_second_derivatives(x):
    x.requires_grad_()
    (first,) = weft.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    assert (first.names, second.names) == (x.names, x.names)
    assert second.tolist() == (6 * x).tolist()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: weft.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: weft.optim.Adam(p, lr=0.1),
        lambda p: weft.optim.RMSprop(p, lr=0.1),
    ],
)
def test_optimizers_update_parameters_with_names(x, optimizer):
    named, plain = nn.Parameter(x.clone()), nn.Parameter(x.rename(None).clone())
    for parameter in (named, plain):
        updates = optimizer([parameter])
        for _ in range(2):
            updates.zero_grad()
            (parameter * parameter).sum().backward()
            updates.step()
    assert named.names == ("N", "C")
    assert named.tolist() == plain.tolist()


# --- compiled functions and checkpoints ---


def test_compiled_functions_see_names():
    total = weft.compile(lambda x: (x * 2).sum("C"))
    for _ in range(3):
        for names, values in ((("N", "C"), [6, 24]), (("C", "N"), [6, 10, 14])):
            result = total(_numbered((2, 3), *names))
            assert (result.names, result.tolist()) == (("N",), values)
    with pytest.raises(RuntimeError, match=r"^Name 'C' not found in Tensor\['N', 'D'\]\.$"):
        total(_numbered((2, 3), "N", "D"))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_keep_names(x, use_reentrant):
    x.requires_grad_()
    y = checkpoint(lambda x: x.tanh().align_to("C", "N"), x, use_reentrant=use_reentrant)
    y.sum("N").sum().backward()
    assert (y.names, x.grad.names) == (("C", "N"), ("N", "C"))


def test_a_bias_or_target_of_more_dims_lends_its_names(x):
    square = weft.ones(3, 3)
    assert F.linear(x, square, weft.ones(2, 3).rename("N", "out")).names == ("N", "out")
    assert F.multilabel_soft_margin_loss(square, weft.ones(2, 3, 3).rename("B", "N", "C")).names == ()


def test_eigenpairs_have_no_names():
    values, vectors = weft.lobpcg(weft.diag(weft.arange(1.0, 7)).rename(None, "C"))
    assert values.item() == pytest.approx(6, rel=1e-3)
    assert vectors.names == (None, None)
