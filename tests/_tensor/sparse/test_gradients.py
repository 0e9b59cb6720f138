"""Gradients of and through sparse tensors, and what becomes of them in files, copies, transforms and captures."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import weft as torch
from weft.autograd import gradcheck
from weft.utils.data._utils.transfer import pickled


def leaf(**options):
    return torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3), requires_grad=True, **options)


X = torch.arange(12.0).reshape(3, 4)


def test_the_gradient_of_a_leaf_is_sparse():
    s = leaf()
    assert (s.is_leaf, s.requires_grad, s.grad, s.grad_fn) == (True, True, None, None)
    torch.sparse.mm(s, X).sum().backward()
    assert (s.grad.layout, s.grad._indices().tolist()) == (torch.sparse_coo, s._indices().tolist())
    assert s.grad._values().tolist() == [38, 6, 38]
    (s * 2).to_dense().sum().backward()
    assert s.grad._values().tolist() == [40, 8, 40]
    assert (s * 2).grad_fn.name() == "MulBackward0"
    s.grad = None
    assert s.grad is None


def test_what_is_stored_twice_has_one_gradient():
    s = torch.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 3.0], (2,), requires_grad=True)
    (s.to_dense() ** 2).sum().backward()
    assert s.grad.to_dense().tolist() == [4, 8]
    (gradient,) = torch.autograd.grad(s.coalesce().values().sum(), s)
    assert gradient.to_dense().tolist() == [1, 1]


def test_gradients_flow_to_values_and_to_dense_tensors():
    values, dense = torch.tensor([1.0, 2.0], requires_grad=True), torch.eye(3, requires_grad=True)
    s = torch.sparse_coo_tensor([[0, 1], [1, 2]], values, (2, 3))
    assert not s.is_leaf
    s.to_sparse_csr().matmul(dense).sum().backward()
    assert values.grad.tolist() == [1, 1]
    assert dense.grad.tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    dense.grad = None
    dense.to_sparse().coalesce().values().square().sum().backward()
    assert dense.grad.tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]


def test_second_derivatives():
    values = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    dense = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)

    def product(values, dense):
        return (torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 1]], values, (2, 2)) ** 2) @ dense.sin()

    assert gradcheck(product, (values, dense))
    assert torch.autograd.gradgradcheck(product, (values, dense))


def test_a_gradcheck_of_sparse_arguments():
    check = torch.sparse.as_sparse_gradcheck(gradcheck)
    x = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,), dtype=torch.float64, requires_grad=True)
    assert check(lambda s: s * 3, x, masked=True)


def test_hooks_get_and_return_sparse_gradients():
    s = leaf()
    seen = []
    s.register_hook(lambda g: seen.append(g.layout) or g * 2)
    s.to_dense().sum().backward()
    assert seen == [torch.sparse_coo]
    assert s.grad.to_dense().tolist() == [[0, 0, 2], [2, 0, 2]]


def test_a_backward_pass_from_a_sparse_result():
    s = leaf()
    y = s * 2
    y.backward(torch.ones_like(y.detach().to_dense()).sparse_mask(y.detach()))
    assert s.grad._values().tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match=r"use y.backward\(gradient\), or y.to_dense\(\)"):
        torch.autograd.backward([s * 2], [s.detach()])
    with pytest.raises(RuntimeError, match=r"the gradient must have layout torch.sparse_coo and values of size"):
        (s * 2).backward(torch.ones(2, 3))


def test_writes_to_leaves():
    s = leaf()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        s.mul_(2)
    with torch.no_grad():
        s.mul_(2)
    assert s.is_leaf
    s.to_dense().square().sum().backward()
    assert s.grad._values().tolist() == [12, 16, 20]
    shared = s.detach()
    shared._values().zero_()
    assert s.to_dense().sum().item() == 0


def test_copies_and_files():
    s = leaf()
    saved = io.BytesIO()
    torch.save({"coo": s, "csr": s.detach().to_sparse_csr(), "values": s.detach()._values()}, saved)
    saved.seek(0)
    loaded = torch.load(saved)
    torch.testing.assert_close(loaded["csr"], s.detach().to_sparse_csr())
    for other in (loaded["coo"], copy.deepcopy(s), copy.copy(s), pickle.loads(pickle.dumps(s))):
        assert (other.requires_grad, other.is_leaf, other.layout) == (True, True, torch.sparse_coo)
        torch.testing.assert_close(other.detach(), s.detach())
        other.to_dense().sum().backward()
        assert s.grad is None
    with pytest.raises(RuntimeError, match=r"Only Tensors created explicitly by the user \(graph leaves\)"):
        copy.deepcopy(s * 2)


def test_workers_of_a_loader_send_them():
    s, n = leaf().detach(), torch.nested.nested_tensor([torch.ones(1), torch.zeros(2)], layout=torch.jagged)
    content, *buffers = pickled([s, n])
    received, nested = pickle.loads(content, buffers=buffers)
    torch.testing.assert_close(received, s)
    assert [x.tolist() for x in nested] == [[1], [0, 0]]


def test_comparisons_of_what_is_stored():
    s = leaf().detach()
    with pytest.raises(AssertionError, match="Tensor-likes are not close!"):
        torch.testing.assert_close(s, s * 2)
    with pytest.raises(AssertionError, match="number of specified values in sparse COO tensors does not match: 3 != 0"):
        torch.testing.assert_close(s, torch.zeros_like(s))
    with pytest.raises(AssertionError, match="The values for attribute 'layout' do not match"):
        torch.testing.assert_close(s, s.to_dense())


def test_transforms_of_functions():
    def product(values):
        return torch.sparse_coo_tensor([[0, 1], [1, 2]], values, (2, 3)) @ X

    values = torch.tensor([1.0, 2.0])
    several = torch.func.vmap(product)(torch.stack([values, 2 * values]))
    assert torch.equal(several[1], 2 * product(values))
    assert torch.func.grad(lambda v: product(v).sum())(values).tolist() == [22, 38]


def test_a_compiled_function_runs_and_follows_its_arguments():
    run = torch.compile(lambda s, x: (s @ x).sum())
    s = leaf().detach()
    with pytest.warns(UserWarning, match=r"needs a tensor with layout torch.sparse_coo .* it runs uncaptured"):
        first = run(s, X)
    assert run(s * 2, X).item() == 2 * first.item()


def test_autocast_and_devices():
    s = leaf()
    with torch.autocast("cpu"):
        assert (s @ X).dtype is torch.bfloat16
    with torch.inference_mode():
        assert (s * 2).to_dense().sum().item() == 24
    moved = s.to("xla")
    assert {moved.device.type, moved._indices().device.type} == {"xla"}
    assert (moved @ X.to("xla")).sum().item() == (s @ X).sum().item()


@pytest.mark.parametrize(
    "lookup",
    [
        lambda buffer, w: torch.nn.functional.embedding(buffer, w, sparse=True),
        lambda buffer, w: torch.nn.functional.embedding(buffer, w, padding_idx=0, sparse=True),
        lambda buffer, w: torch.nn.functional.embedding(buffer[None], w, sparse=True),
        lambda buffer, w: torch.nn.functional.embedding_bag(buffer, w, torch.tensor([0]), mode="sum", sparse=True),
    ],
)
@pytest.mark.parametrize("written", ["before the pass", "after the pass", "after a second pass"])
def test_a_sparse_gradient_keeps_its_indices(lookup, written):
    """The buffer of the indices is used again, and the optimizer updates the rows that were read."""
    weight = torch.zeros(10, 1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    buffer = torch.tensor([7, 1])
    out = lookup(buffer, weight).sum()
    if written == "before the pass":
        buffer.copy_(torch.tensor([2, 3]))
    out.backward()
    buffer.copy_(torch.tensor([2, 3]))
    rows = {7, 1}
    if written == "after a second pass":
        lookup(buffer, weight).sum().backward()
        buffer.fill_(0)
        rows |= {2, 3}
    optimizer.step()
    assert set(weight.detach().flatten().nonzero().flatten().tolist()) == rows


def test_a_tensor_shares_its_parts_and_what_is_computed_from_it_does_not():
    indices, values = torch.tensor([[1, 2]]), torch.ones(2)
    s = torch.sparse_coo_tensor(indices, values, (4,))
    results = [s * 2, s.coalesce(), s.to(torch.float64), s.clone(), -s]
    alias = s.detach()
    indices.fill_(0)
    values.fill_(3)
    assert s._indices().tolist() == alias._indices().tolist() == [[0, 0]]
    assert s._values().tolist() == alias._values().tolist() == [3, 3]
    for result in results:
        assert result._indices().tolist() == [[1, 2]]
    assert results[1].values().tolist() == [1, 1]

    crow, columns = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    compressed = torch.sparse_csr_tensor(crow, columns, torch.ones(2), (2, 2))
    doubled, coordinates = compressed * 2, compressed.to_sparse()
    again = coordinates.to_sparse_csr()
    columns.fill_(0)
    coordinates._indices().fill_(1)
    assert compressed.col_indices().tolist() == [0, 0]
    assert doubled.col_indices().tolist() == again.col_indices().tolist() == [0, 1]
