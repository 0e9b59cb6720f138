"""`scan`, `associative_scan` and `map`: functions over the slices of tensors."""

from __future__ import annotations

import pytest

import weft as torch
from weft.func._scans import associative_scan, map, scan


def linear(a, b):
    """Composition of the functions x -> m * x + c."""
    return a[0] * b[0], a[1] * b[0] + b[1]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_prefixes_in_a_tree_are_those_one_by_one(count, reverse, mode):
    m, c = torch.rand(2, count), torch.rand(2, count)

    def step(carry, x):
        carry = linear(carry, x)
        return carry, carry

    expected = scan(step, (torch.ones(2), torch.zeros(2)), (m, c), dim=1, reverse=reverse)[1]
    for result, one in zip(associative_scan(linear, (m, c), 1, reverse, mode), expected, strict=True):
        assert torch.allclose(result, one.T)


def test_functions_of_slices():
    turns = torch.linalg.qr(torch.randn(5, 3, 3)).Q
    products = associative_scan(torch.matmul, turns, 0, combine_mode="generic")
    assert torch.allclose(products[-1], torch.linalg.multi_dot(list(turns)), atol=1e-5)


def test_gradients():
    x, same = (torch.arange(1.0, 5.0).requires_grad_() for _ in range(2))
    associative_scan(torch.mul, x, 0)[-1].backward()
    scan(lambda carry, y: (carry * y, carry + 0), torch.ones(()), same)[0].backward()
    assert x.grad.tolist() == same.grad.tolist() == [24, 12, 8, 6]


def test_scan():
    x = torch.arange(6.0).view(3, 2)
    carry, sums = scan(lambda carry, y: (carry + y, carry * y), torch.zeros(2), x)
    assert (carry.tolist(), sums.tolist()) == ([6, 9], [[0, 0], [0, 3], [8, 20]])
    carry, sums = scan(lambda carry, y: (carry + y, carry * y), torch.zeros(2), x, reverse=True)
    assert (carry.tolist(), sums.tolist()) == ([6, 9], [[0, 8], [8, 15], [0, 0]])
    assert scan(lambda carry, y: (carry, y), torch.zeros(2), [])[1] == []


def test_map():
    x = torch.arange(6.0).view(3, 2)
    assert map(lambda y, k: y * k, x, torch.tensor(2.0)).tolist() == (x * 2).tolist()
    pairs = map(lambda y: {"sum": y[0] + y[1], "twice": y[0] * 2}, (x, x))
    assert torch.equal(pairs["sum"], x + x)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x: associative_scan(3, x, 0), ValueError, r"^Combine_fn must be a callable, but got 3$"),
        (lambda x: associative_scan(torch.add, x, 0, 2), RuntimeError, r"^Reverse must be a bool, but got <class 'in"),
        (lambda x: associative_scan(torch.add, x, 0, False, "all"), ValueError, r"^Combine_mode must either 'pointwis"),
        (lambda x: associative_scan(torch.add, x.sum(), 0), ValueError, r"^All xs leaves must at least have 'dim' num"),
        (lambda x: associative_scan(lambda a, b: (a, b), x, 0), AssertionError, r"must return what it takes"),
        (lambda x: scan(3, x[0], x), RuntimeError, r"^Combine_fn must be a callable, but got 3$"),
        (lambda x: scan(torch.add, [], x), RuntimeError, r"^scan\(\) operator requires init leaves.$"),
        (lambda x: scan(torch.add, 3, x), RuntimeError, r"^All init leaves must be a Tensor but got 3$"),
        (lambda x: scan(lambda c, y: c, x[0], x), RuntimeError, r"must return the carry and an output, got Tensor$"),
        (lambda x: scan(lambda c, y: (c[:1], y), x[0], x), RuntimeError, r"^scan: the carry that combine_fn returns m"),
        (lambda x: scan(torch.add, x[0], x[:0]), RuntimeError, r"scan dimension > 0$"),
        (lambda x: scan(torch.add, x[0], (x, x[:2])), RuntimeError, r"must have the same size along the scan dimensi"),
        (lambda x: map(torch.neg, 3), RuntimeError, r"^Mapped xs can only consist of tensors. Got xs \[3\].$"),
        (lambda x: map(torch.neg, (x, x[:2])), RuntimeError, r"^Leading dimensions of mapped xs must be consistent."),
    ],
)
def test_what_is_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call(torch.ones(3, 2))


def test_pytorchs_paths():
    from weft._higher_order_ops import while_loop
    from weft._higher_order_ops.associative_scan import associative_scan as by_path
    from weft._higher_order_ops.scan import scan as scan_by_path

    assert (by_path, scan_by_path, while_loop) == (associative_scan, scan, torch.while_loop)
    assert torch._higher_order_ops.scan is scan
