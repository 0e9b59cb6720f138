"""Nested tensors: operators give for each component what they give of it alone, and are refused otherwise."""

from __future__ import annotations

import copy
import io
import pickle
import re

import numpy as np
import pytest

import weft as torch
from weft import nested, nn
from weft.nn import functional as F

RNG = np.random.default_rng(0)
JAGGED, STRIDED = torch.jagged, torch.strided


def numbers(*shape):
    return torch.tensor(RNG.normal(size=shape))


WEIGHT, BIAS, ROW, MATRIX = numbers(2, 3), numbers(2), numbers(3), numbers(3, 5)
A, B = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3)


def two(layout=JAGGED, **options):
    return nested.nested_tensor([A, B], layout=layout, **options)


def test_construction_and_queries():
    j, s = two(), two(None)
    assert (j.layout, s.layout, j.is_nested, j.is_leaf, j.dtype) == (JAGGED, STRIDED, True, True, torch.float32)
    assert (j.ndim, s.dim(), len(j), j.numel(), s.numel()) == (3, 3, 2, 18, 18)
    assert (j.shape[0], j.size(2), s.size(0), s.size(-1)) == (2, 3, 2, 3)
    assert str(j.shape[1]) == str(j.size(1)) == str((j * 2).shape[1])
    assert (j * 2).shape == j.shape
    assert two().shape != j.shape
    assert (j.values().shape, j.offsets().tolist(), j.lengths(), j.is_contiguous()) == ((6, 3), [0, 2, 6], None, True)
    assert [x.tolist() for x in j.unbind()] == [x.tolist() for x in s] == [A.tolist(), B.tolist()]
    assert (j[1].tolist(), j[1, 2].tolist(), j[-2][0, 1].item()) == (B.tolist(), B[2].tolist(), 1)
    assert [x.tolist() for x in j[..., 1:]] == [A[:, 1:].tolist(), B[:, 1:].tolist()]
    assert nested.nested_tensor([[1.0, 2], [3]]).unbind()[1].tolist() == [3]
    assert [x.tolist() for x in nested.as_nested_tensor(A)] == A.tolist()
    assert nested.as_nested_tensor(j) is j
    assert len(nested.nested_tensor([])) == 0
    assert two(dtype=torch.float64).dtype is torch.float64


def test_jagged_parts():
    values, offsets, lengths = torch.arange(12.0).reshape(6, 2), torch.tensor([0, 2, 6]), torch.tensor([1, 3])
    x = nested.nested_tensor_from_jagged(values, offsets)
    values.add_(1)
    assert x.unbind()[0].tolist() == [[1, 2], [3, 4]]
    assert x.shape == nested.nested_tensor_from_jagged(values * 2, offsets).shape
    assert nested.nested_tensor_from_jagged(values, lengths=torch.tensor([2, 4])).offsets().tolist() == [0, 2, 6]
    gaps = nested.nested_tensor_from_jagged(values, offsets, lengths)
    assert (gaps.lengths().tolist(), gaps.is_contiguous(), gaps.numel()) == ([1, 3], False, 8)
    assert gaps.contiguous().values().tolist() == values[[0, 2, 3, 4]].tolist()
    assert gaps.sum().item() == values[[0, 2, 3, 4]].sum().item()
    assert gaps.mean(1).tolist() == [values[0].tolist(), values[2:5].mean(0).tolist()]
    across = nested.nested_tensor_from_jagged(values.t(), offsets, jagged_dim=2)
    assert (across.shape[1], across.unbind()[0].shape) == (2, (2, 2))
    assert [x.tolist() for x in nested.narrow(torch.arange(10).reshape(2, 5), 1, torch.tensor([0, 3]), 2)] == [
        [0, 1],
        [8, 9],
    ]
    mask = torch.tensor([[True, False, True], [False, True, False]])
    assert [x.tolist() for x in nested.masked_select(A, mask)] == [[0, 2], [4]]


@pytest.mark.parametrize("layout", [JAGGED, STRIDED])
def test_padding(layout):
    x = two(layout)
    assert x.to_padded_tensor(-1).tolist() == [[*A.tolist(), [-1] * 3, [-1] * 3], B.tolist()]
    assert nested.to_padded_tensor(x, 0.0, output_size=(2, 5, 3)).shape == (2, 5, 3)
    if layout is JAGGED:
        assert x.to_padded_tensor(0, (2, 1, 3)).tolist() == [A[:1].tolist(), B[:1].tolist()]
        return
    with pytest.raises(RuntimeError, match="Value in output_size is less than NestedTensor padded size"):
        x.to_padded_tensor(0, (2, 1, 3))
    mixed = nested.nested_tensor([torch.ones(2, 1), torch.ones(1, 3)])
    assert mixed.to_padded_tensor(0).tolist() == [[[1, 0, 0], [1, 0, 0]], [[1, 1, 1], [0, 0, 0]]]


def test_texts_are_pytorchs():
    assert re.fullmatch(
        r"NestedTensor\(size=\(2, j\d+, 3\), offsets=tensor\(\[0, 2, 6\]\), contiguous=True\)", repr(two())
    )
    assert (
        repr(two(None))
        == """nested_tensor([
  tensor([[0., 1., 2.],
          [3., 4., 5.]]),
  tensor([[ 0.,  1.,  2.],
          [ 3.,  4.,  5.],
          [ 6.,  7.,  8.],
          [ 9., 10., 11.]])
])"""
    )
    assert "grad_fn=<MulBackward0>, contiguous=True" in repr(two(requires_grad=True) * 2)


OPERATORS = {
    "sin": lambda x: x.sin(),
    "number": lambda x: 1 - x / 2,
    "both": lambda x: x + x * x,
    "clamp": lambda x: x.clamp(0, 1),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "gelu": lambda x: F.gelu(x),
    "linear": lambda x: F.linear(x, WEIGHT, BIAS),
    "softmax": lambda x: x.softmax(-1),
    "softmax ragged": lambda x: x.softmax(1),
    "log_softmax ragged": lambda x: F.log_softmax(x, dim=1),
    "cumsum ragged": lambda x: x.cumsum(1),
    "sum kept": lambda x: x.sum(-1, keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, (3,), ROW, ROW),
    "rms_norm": lambda x: F.rms_norm(x, (3,), ROW),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.unsqueeze(-1).squeeze(-1),
    "transpose": lambda x: x.transpose(1, 2),
    "permute": lambda x: x.permute(0, 2, 1).transpose(1, 2),
    "cat": lambda x: torch.cat([x, x * 2], -1),
    "unflatten": lambda x: x.unflatten(-1, (3, 1)),
    "glu": lambda x: F.glu(torch.cat([x, x], -1)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "clone": lambda x: x.clone(),
    "slice": lambda x: x[:, :, 1:],
}
ON_JAGGED = {
    "row": lambda x: x + ROW,
    "matmul": lambda x: x @ MATRIX,
    "mv": lambda x: x @ ROW,
    "sum": lambda x: x.sum(2),
    "sum ragged": lambda x: x.sum(1),
    "sum ragged kept": lambda x: x.sum(1, keepdim=True),
    "sum both": lambda x: x.sum((1, 2)),
    "mean": lambda x: x.mean(2),
    "mean ragged": lambda x: x.mean(1),
    "amax": lambda x: x.amax(-1),
    "amax ragged": lambda x: x.amax(1),
    "argmax": lambda x: x.argmax(-1),
    "std": lambda x: x.std(-1),
    "sort": lambda x: x.sort(-1)[0],
    "view": lambda x: x.view(x.shape[0], -1, 3, 1),
    "transposed sum": lambda x: x.transpose(1, 2).sum(1),
    "transposed column": lambda x: x.transpose(1, 2) + ROW[:, None],
}
WITH_HEADS = {
    "linear": lambda x: F.linear(x, WEIGHT, BIAS),
    "heads first": lambda x: F.linear(x.transpose(1, 2), WEIGHT),
    "dense of heads": lambda x: x + torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.transpose(1, 2)] * 3, is_causal=True).transpose(1, 2),
    "sums": lambda x: x.sum((1, 3)),
}
CASES = [
    *[(layout, ((2, 3), (4, 3), (1, 3)), name, f) for name, f in OPERATORS.items() for layout in (JAGGED, STRIDED)],
    *[(JAGGED, ((2, 3), (4, 3), (1, 3)), name, f) for name, f in ON_JAGGED.items()],
    *[(JAGGED, ((2, 2, 3), (4, 2, 3)), name, f) for name, f in WITH_HEADS.items()],
    *[(STRIDED, ((2, 3), (4, 1)), name, OPERATORS[name]) for name in ("sin", "softmax", "transpose", "sum kept")],
]


@pytest.mark.parametrize(("layout", "shapes", "name", "function"), CASES)
def test_a_result_is_that_of_each_component(layout, shapes, name, function):
    del name
    ours, theirs = ([numbers(*shape).requires_grad_() for shape in shapes] for _ in range(2))
    for a, b in zip(ours, theirs, strict=True):
        b.data.copy_(a.detach())
    result = function(nested.as_nested_tensor(ours, layout=layout))
    pairs = list(zip(result.unbind(), [function(x[None])[0] for x in theirs], strict=True))
    for x, y in pairs:
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x.detach(), y.detach(), atol=1e-12)
    if result.requires_grad:
        weights = [numbers(*x.shape) for x, _ in pairs]
        for at in range(2):
            sum((pair[at] * w).sum() for pair, w in zip(pairs, weights, strict=True)).backward()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.grad, b.grad, atol=1e-12)


def test_beside_a_dense_tensor_with_an_entry_for_each_component():
    x, dense = two(), torch.tensor([[[1.0, 2, 3]], [[4, 5, 6]]])
    assert [y.tolist() for y in x + dense] == [(A + dense[0]).tolist(), (B + dense[1]).tolist()]
    assert [y.tolist() for y in x * torch.ones(1, 1, 3)] == [A.tolist(), B.tolist()]


def test_reductions_of_all_components():
    for x in (two(), two(STRIDED)):
        assert (x.sum().item(), x.max().item(), x.mean().item(), x.gt(-1).all().item()) == (81, 11, 4.5, True)
    assert two().sum((0, 1)).tolist() == [21, 27, 33]


def test_products_of_components():
    s = two(STRIDED)
    for product in (torch.bmm(s, s.transpose(1, 2)), s @ s.transpose(1, 2)):
        assert [x.tolist() for x in product] == [(A @ A.t()).tolist(), (B @ B.t()).tolist()]


def test_embeddings_and_layers():
    index = nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([0])], layout=JAGGED)
    model = nn.Sequential(nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 2), nn.ReLU(), nn.Dropout(0.0))
    result = model(index)
    np.testing.assert_allclose(result.values().detach(), model(torch.tensor([1, 2, 0])).detach(), atol=1e-6)
    result.sum().backward()
    assert model[0].weight.grad.shape == (3, 4)


def test_gradients_of_leaves_writes_and_copies():
    x = two(requires_grad=True)
    (x * x).sum().backward()
    assert (x.grad.is_nested, x.grad.shape) == (True, x.shape)
    assert x.grad.values().tolist() == (2 * x.values()).tolist()
    saved = io.BytesIO()
    torch.save([x, two(None)], saved)
    saved.seek(0)
    jagged, strided = torch.load(saved)
    for other in (jagged, copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (other.requires_grad, other.offsets().tolist()) == (True, [0, 2, 6])
        assert other.values().tolist() == x.values().tolist()
    assert repr(strided) == repr(two(None))
    y = two()
    y.add_(1).mul_(2)
    assert y[0].tolist() == (2 * (A + 1)).tolist()
    assert (y.double().dtype, torch.zeros_like(y).sum().item(), torch.ones_like(y).sum().item()) == (
        torch.float64,
        0,
        18,
    )


REFUSED = [
    (lambda: two().sum(0), "reducing along the batch dimension but not the ragged dimension is not supported"),
    (lambda: two() + two(), "cannot call binary pointwise function add with inputs of shapes"),
    (lambda: two() + torch.ones(2, 2, 3), r"add\(\): no rule for a nested tensor .* beside a dense one"),
    (lambda: two() + torch.ones(6, 3), "has another size than the ragged dim 1"),
    (lambda: two() @ torch.ones(2, 3, 3), r"matmul\(\): no rule"),
    (lambda: two() @ two().transpose(1, 2), "cannot call binary pointwise function matmul"),
    (lambda: two().softmax(0), "not supported for NestedTensor on dim=0"),
    (lambda: torch.cat([two()], 0), "not supported for NestedTensor on dim=0"),
    (lambda: two()[:, 0:1], r"slice\(\) on tensors with layout torch.jagged along the ragged dim"),
    (lambda: two()[0:1], "not supported for NestedTensor on dim=0"),
    (
        lambda: F.conv1d(two(), torch.ones(2, 3, 1)),
        "Could not run 'aten::conv1d' with arguments from the 'NestedTensorCPU'",
    ),
    (lambda: F.batch_norm(two(), torch.zeros(3), torch.ones(3)), r"use x.unbind\(\), or x.to_padded_tensor\(padding\)"),
    (lambda: F.prelu(two(), torch.ones(3)), "aten::prelu"),
    (lambda: two().flatten(1, 2), "aten::flatten"),
    (lambda: two().reshape(-1, 3), "aten::(re)?(shape|view)"),
    (lambda: F.mse_loss(two(), two()), "aten::mse_loss"),
    (lambda: two(None).shape, "Internal error: NestedTensorImpl doesn't support sizes"),
    (lambda: two(None).size(1), "Given dimension 1 is irregular and does not have a size"),
    (lambda: two(None).sum(-1), "NestedTensor always requires keepdim=True for now"),
    (lambda: two(None) + torch.ones(3), "Expected both self and other to be nested"),
    (lambda: two(None) + two(), "must have the same layout"),
    (lambda: nested.nested_tensor([A, B.reshape(3, 4)], layout=JAGGED), "only allows for a single ragged dimension"),
    (
        lambda: nested.nested_tensor([A, torch.ones(3)]),
        "All Tensors given to nested_tensor must have the same dimension",
    ),
    (lambda: nested.nested_tensor([], layout=JAGGED), "Cannot construct a nested tensor from an empty tensor list"),
    (lambda: nested.nested_tensor_from_jagged(A), "At least one of offsets or lengths is required"),
    (lambda: nested.as_nested_tensor([A], layout=torch.sparse_coo), "layout is unsupported for nested tensors"),
    (lambda: nn.Parameter(two()), "cannot be a parameter of a module"),
    (lambda: two().copy_(two()), "must match"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_has_no_rule_is_refused_by_name(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_types_of_arguments():
    with pytest.raises(TypeError, match=r"Only lists \(List\[Tensor\] and List\[List...\[Scalar\]\]\) are accepted"):
        nested.nested_tensor(A)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'offsets'"):
        two(None).offsets()
    with pytest.raises(TypeError, match=r"a tensor with layout torch.jagged has no single array"):
        two().numpy()
