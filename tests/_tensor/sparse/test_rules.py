"""Operators on sparse tensors give what they give of dense ones, with the same gradients; others are refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import weft as torch
from weft.nn import functional as F

RNG = np.random.default_rng(0)


def numbers(*shape):
    return torch.tensor(RNG.normal(size=shape))


TALL, WIDE, SQUARE, ROW, COLUMN = numbers(4, 3), numbers(3, 4), numbers(3, 3), numbers(4), numbers(3)

UNARY = (
    "neg",
    "abs",
    "sin",
    "tanh",
    "sign",
    "relu",
    "expm1",
    "floor",
    "ceil",
    "trunc",
    "round",
    "asinh",
    "atan",
    "sinh",
    "tan",
    "erf",
    "square",
    "deg2rad",
    "sgn",
    "nan_to_num",
    "frac",
    "isnan",
    "isinf",
    "signbit",
)
ON_MATRICES = {
    **{name: lambda x, name=name: getattr(torch, name)(x) for name in UNARY},
    "sqrt": lambda x: x.abs().sqrt(),
    "log1p": lambda x: x.abs().log1p(),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "clamp": lambda x: x.clamp(-1, 1),
    "by number": lambda x: 2 * x / 3,
    "by tensor": lambda x: x * torch.tensor(3.0) / torch.tensor(2.0),
    "power": lambda x: x**3,
    "floor_divide": lambda x: x // 2,
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "permute": lambda x: x.permute(1, 0),
    "transpose": lambda x: x.transpose(0, -1),
    "add": lambda x: torch.add(x, x.sin(), alpha=3),
    "sub": lambda x: x - x.sin(),
    "mul": lambda x: x * x.sin(),
    "mul dense": lambda x: WIDE * x * ROW,
    "add dense": lambda x: WIDE + x,
    "sub dense": lambda x: WIDE - x,
    "dense sub": lambda x: x - WIDE,
    "mm": lambda x: x @ TALL,
    "rmm": lambda x: SQUARE @ x,
    "mv": lambda x: x @ ROW,
    "vm": lambda x: COLUMN @ x,
    "both": lambda x: x @ x.t(),
    "addmm": lambda x: torch.addmm(SQUARE, x, TALL, beta=0.5, alpha=2),
    "addmv": lambda x: torch.addmv(COLUMN, x, ROW),
    "linear": lambda x: F.linear(ROW[None], x, COLUMN),
    "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0),
    "sum 1 kept": lambda x: x.sum(1, keepdim=True),
    "norm": lambda x: x.norm(),
    "select": lambda x: x[1],
    "column": lambda x: x[:, -1],
    "slices": lambda x: x[1:3, ::2],
    "element": lambda x: x[1, 2],
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 0, 2])),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "stack": lambda x: torch.stack([x, x], 1),
    "unbind": lambda x: x.unbind(0),
    "split": lambda x: x.split(2, 1),
    "clone": lambda x: x.clone(),
    "type": lambda x: x.float(),
    "integers": lambda x: (x * 10).int(),
}
HYBRID = {
    "sum sparse": lambda x: x.sum((0, 1)),
    "sum dense": lambda x: x.sum(2),
    "sum some": lambda x: x.sum((0, 2)),
    "transpose": lambda x: x.transpose(0, 1),
    "dense column": lambda x: x[:, :, 1],
    "dense slice": lambda x: x[:, :, 1:],
    "row": lambda x: x[1],
    "cat dense": lambda x: torch.cat([x, x], 2),
    "mul": lambda x: x * torch.arange(2.0, dtype=torch.float64),
    "mul sparse": lambda x: x * x.sin(),
    "dense index_select": lambda x: x.index_select(2, torch.tensor([1, 0])),
    "unsqueeze last": lambda x: x.unsqueeze(3),
    "norm": lambda x: x.norm(),
}
BATCHED = {
    "bmm": lambda x: torch.bmm(x, torch.ones(3, 2, 5, dtype=torch.float64)),
    "matmul": lambda x: x @ torch.ones(3, 2, 5, dtype=torch.float64),
    "sum": lambda x: x.sum(1),
}
CASES = [
    *[((3, 4), 2, form, name, f) for name, f in ON_MATRICES.items() for form in ("as it is", "coalesced", "csr")],
    *[((3, 4, 2), 2, form, name, f) for name, f in HYBRID.items() for form in ("as it is", "coalesced")],
    *[((3, 4, 2), 3, "as it is", name, f) for name, f in BATCHED.items()],
]


def stored(shape, sparse_dim):
    """Indices, some of which are equal, and values."""
    rng = np.random.default_rng(1)
    return (
        torch.tensor(np.stack([rng.integers(0, n, 6) for n in shape[:sparse_dim]])),
        torch.tensor(rng.normal(size=(6, *shape[sparse_dim:]))),
    )


def in_form(x, form):
    return {"as it is": lambda: x, "coalesced": x.coalesce, "csr": x.to_sparse_csr}[form]()


@pytest.mark.parametrize(("shape", "sparse_dim", "form", "name", "function"), CASES)
def test_a_result_is_that_of_the_dense_tensor(shape, sparse_dim, form, name, function):
    indices, values = stored(shape, sparse_dim)
    ours, theirs = (values.clone().requires_grad_() for _ in range(2))
    results = function(in_form(torch.sparse_coo_tensor(indices, ours, shape), form))
    expected = function(torch.sparse_coo_tensor(indices, theirs, shape).to_dense())
    results, expected = ((x if isinstance(x, tuple) else (x,)) for x in (results, expected))
    pairs = [(x.to_dense(), y) for x, y in zip(results, expected, strict=True)]
    for x, y in pairs:
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x.detach(), y.detach(), atol=1e-6 if x.dtype is torch.float32 else 1e-12)
    if pairs[0][0].requires_grad:
        weights = [torch.tensor(RNG.normal(size=tuple(x.shape))) for x, _ in pairs]
        for at in range(2):
            sum((pair[at] * w).sum() for pair, w in zip(pairs, weights, strict=True)).backward()
        np.testing.assert_allclose(ours.grad, theirs.grad, atol=1e-6 if name == "type" else 1e-12)


def test_layouts_of_results():
    s = torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (2, 3))
    c = s.to_sparse_csr()
    assert {x.layout for x in (s * 2, s.sin(), s @ s.t(), s + s, s.sum(0), s * torch.ones(3))} == {torch.sparse_coo}
    assert {x.layout for x in (c * 2, c.sin(), c @ c.t().to_sparse_csr(), c + c)} == {torch.sparse_csr}
    assert (c.t().layout, c[0].layout) == (torch.sparse_csc, torch.sparse_coo)
    assert {x.layout for x in (s @ torch.ones(3, 1), s.sum(), torch.ones(2, 3) + s, s[0, 1])} == {torch.strided}


def test_products_are_scipys():
    a, b = (scipy.sparse.random_array((30, 30), density=0.1, rng=seed) for seed in range(2))
    ours = [torch.tensor(x.toarray()).to_sparse() for x in (a, b)]
    product = (ours[0] @ ours[1]).coalesce()
    theirs = (a.tocsr() @ b.tocsr()).tocoo()
    order = np.lexsort((theirs.coords[1], theirs.coords[0]))
    assert product.indices().tolist() == [x[order].tolist() for x in theirs.coords]
    np.testing.assert_allclose(product.values(), theirs.data[order])
    for function in (torch.mm, torch.spmm, torch.sparse.mm):
        np.testing.assert_allclose(function(ours[0], torch.tensor(b.toarray())), theirs.toarray(), atol=1e-12)


def test_results_in_place():
    s = torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, -2.0], (2, 3))
    same = s
    s *= 3
    s.add_(s.abs()).neg_()
    assert s is same
    assert s.to_dense().tolist() == [[0, -6, 0], [0, 0, 0]]
    dense = torch.ones(2, 3)
    dense += s
    assert dense.tolist() == [[1, -5, 1], [1, 1, 1]]
    assert s.zero_()._nnz() == 0
    s.copy_(torch.sparse_coo_tensor([[0], [0]], [1.0], (2, 3)))
    assert s.to_dense()[0, 0].item() == 1


def test_masks():
    mask = torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 1.0], (2, 3))
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    for form in (mask, mask.to_sparse_csr()):
        masked = x.sparse_mask(form)
        assert (masked.layout, masked.to_dense().tolist()) == (form.layout, [[0, 1, 0], [0, 0, 5]])
    masked.to_dense().sum().backward()
    assert x.grad.tolist() == mask.to_dense().tolist()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(("shape", "sparse_dim", "dim"), [((3, 4), 2, 0), ((3, 4), 2, 1), ((4,), 1, 0), ((3, 4), 1, 1)])
def test_softmax_ignores_what_is_not_stored(log, shape, sparse_dim, dim):
    indices, values = stored(shape, sparse_dim)
    x = torch.sparse_coo_tensor(indices, values, shape).coalesce()
    kept = torch.sparse_coo_tensor(x.indices(), torch.ones_like(x.values()), shape).to_dense() != 0
    dense = torch.where(kept, x.to_dense(), -torch.inf).softmax(dim)
    result = (torch.sparse.log_softmax if log else torch.sparse.softmax)(x, dim)
    assert result._nnz() == x._nnz()
    expected = torch.where(kept, dense.log() if log else dense, 0)
    np.testing.assert_allclose(result.to_dense(), expected, atol=1e-12)


def test_sampled_products():
    mask = torch.tensor([[0.0, 0, 3], [4, 0, 5]]).to_sparse_csr()
    a, b = torch.arange(8.0).reshape(2, 4).requires_grad_(), torch.ones(4, 3)
    result = torch.sparse.sampled_addmm(mask, a, b, beta=0.5, alpha=2)
    assert result.to_dense().tolist() == [[0, 0, 13.5], [46, 0, 46.5]]
    result.values().sum().backward()
    assert a.grad.tolist() == [[2] * 4, [4] * 4]
    with pytest.raises(RuntimeError, match=r"Expected self to have sparse csr layout, but got torch.sparse_coo"):
        torch.sparse.sampled_addmm(mask.to_sparse(), a, b)


REFUSED = {
    "exp": (lambda x: x.exp(), "exp() on tensors with layout torch.sparse_coo, since it makes other numbers of zeros"),
    "cos": (lambda x: x.cos(), "cos() on tensors"),
    "clamp": (lambda x: x.clamp(min=1), "clamp() on tensors"),
    "fill": (lambda x: x.fill_(1), "fill() on tensors"),
    "eq": (lambda x: x == x, "eq() on tensors"),
    "mean": (lambda x: x.mean(), "mean() on tensors"),
    "amax": (lambda x: x.max(), "amax() on tensors"),
    "softmax": (lambda x: x.softmax(0), "softmax() on tensors"),
    "reshape": (lambda x: x.reshape(6), "reshape() on tensors"),
    "cumsum": (lambda x: x.cumsum(0), "cumsum() on tensors"),
    "where": (lambda x: torch.where(x.bool(), x, 0), "where() on tensors"),
    "maximum": (lambda x: torch.maximum(x, x), "maximum() on tensors"),
    "dropout_train": (lambda x: F.dropout(x), "dropout_train() on tensors"),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(1, 2, 1)), "conv1d() on tensors"),
    "reciprocal": (lambda x: 2 / x, "reciprocal() on tensors"),
    "true_divide": (lambda x: x / 0, "true_divide() on tensors"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_by_name(name):
    call, text = REFUSED[name]
    with pytest.raises(NotImplementedError) as caught:
        call(torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (2, 3)))
    assert f"Could not run 'aten::{name}' with arguments from the 'SparseCPU' backend" in str(caught.value)
    assert text in str(caught.value)
    assert str(caught.value).endswith("use x.to_dense() first")


MISFITS = [
    (lambda s: s + torch.sparse_coo_tensor((3, 3)), r"sizes of 'self' and 'other' to match, but \[2, 3\] != \[3, 3\]"),
    (lambda s: s + torch.sparse_coo_tensor([[0]], [[1.0, 1, 1]], (2, 3)), "same number of sparse dimensions"),
    (lambda s: s * torch.sparse_coo_tensor((3, 3)), "incompatible sizes"),
    (lambda s: s * torch.ones(2, 2, 3), "does not broadcast"),
    (lambda s: s + 1, r"add\(sparse, dense\) is not supported"),
    (lambda s: s / torch.ones(2, 3), "Sparse division requires a scalar or zero-dim dense tensor divisor"),
    (lambda s: s @ s, r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)"),
    (lambda s: s @ torch.ones(3, 1, dtype=torch.float64), "same dtype, but got: Float != Double"),
    (lambda s: torch.cat([s, torch.ones(2, 3)]), "a dense tensor was found at position 1"),
    (lambda s: s.copy_(torch.ones(2, 3)), r"copy_\(\) between dense and sparse Tensors is not implemented"),
    (lambda s: torch.ones(2, 3).sparse_mask(torch.ones(2, 3)), "the mask must be sparse"),
    (lambda s: torch.sparse.softmax(torch.ones(2, 3), 1), "_sparse_softmax"),
]


@pytest.mark.parametrize(("call", "text"), MISFITS)
def test_arguments_that_do_not_fit(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (2, 3)))
