"""Tensors that share elements and differ in everything else: `detach()`, `.data`, parameters, flat buffers."""

from __future__ import annotations

import copy

import pytest

import weft
from weft import nn


def numbers(count):
    return weft.arange(float(count)).clone()


SHARES = [
    ("detach", lambda x: x.detach()),
    ("data", lambda x: x.data),
    ("parameter", nn.Parameter),
    ("frozen", lambda x: nn.Parameter(x, requires_grad=False)),
    ("buffer", nn.Buffer),
    ("of data", lambda x: nn.Parameter(x.data)),
]


@pytest.mark.parametrize("alias", [row[1] for row in SHARES], ids=[row[0] for row in SHARES])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
def test_writes_are_seen_in_both_directions(alias, part):
    x = numbers(6)
    source = x[2:5] if part else x
    before = source[1:]
    same = alias(source)
    after = same.detach()[1:]
    with weft.no_grad():
        source.add_(10)
        same.mul_(2)
        after[0] = -1
    for tensor in (x[2:5] if part else x, source, same):
        assert tensor.tolist()[:2] == [24 if part else 20, -1]
    assert before.tolist() == after.tolist() == source.tolist()[1:]
    assert same.data_ptr() == source.data_ptr()


def test_each_keeps_its_own_place_in_the_graph():
    x = numbers(3)
    p = nn.Parameter(x)
    y = p.detach()
    assert (x.requires_grad, p.requires_grad, y.requires_grad) == (False, True, False)
    factor = weft.full((3,), 2.0, requires_grad=True)
    y.mul_(factor)
    assert (y.requires_grad, p.is_leaf, p.tolist()) == (True, True, [0, 2, 4])
    x.add_(1)
    (p * p).sum().backward()
    assert p.grad.tolist() == [2, 6, 10]
    y.sum().backward()
    assert factor.grad.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match=r"^a leaf Variable that requires grad is being used in an in-place"):
        p.add_(1)


def test_a_leaf_that_is_a_view_keeps_collecting():
    x = numbers(4)
    leaf = x[1:3].requires_grad_()
    shown = leaf.view(2, 1)
    x.mul_(10)
    (shown * leaf.view(2, 1)).sum().backward()
    assert leaf.grad.tolist() == [20, 40]
    assert not x.requires_grad


def test_data_of_an_interior_tensor_keeps_its_graph():
    w = weft.ones(2, requires_grad=True)
    h = w * 3
    h.data.add_(1)
    assert (h.tolist(), h.requires_grad) == ([4, 4], True)
    h.sum().backward()
    assert w.grad.tolist() == [3, 3]


def test_assigned_data_is_shared():
    p, b = nn.Parameter(weft.ones(2, 3)), weft.zeros(2, 3)
    row = p.detach()[0]
    p.data = b
    b.add_(5)
    assert p.tolist() == [[5] * 3] * 2
    with weft.no_grad():
        p[0] = 1
    assert b.tolist() == [[1] * 3, [5] * 3]
    assert row.tolist() == [1, 1, 1]  # of the storage before
    row.zero_()
    assert p.tolist() == [[1] * 3, [5] * 3]
    p.data = p.data.t()
    assert (list(p.shape), p.requires_grad) == ([3, 2], True)
    b.zero_()
    assert p.sum() == 0


def test_data_that_is_refused():
    p = nn.Parameter(weft.ones(2))
    with pytest.raises(TypeError, match=r"^Variable data has to be a tensor, but got int"):
        p.data = 3
    with pytest.raises(RuntimeError, match=r"^data set to a tensor that requires gradients must be floating point or"):
        p.data = weft.zeros(2, dtype=weft.int32)


def test_a_gradient_of_another_shape_than_the_leaf_is_refused():
    w = weft.ones(2, 3, requires_grad=True)
    loss = w.t().square().sum()
    w.data = weft.ones(3, 2)
    with pytest.raises(
        RuntimeError, match=r"invalid gradient for a leaf - got \[2, 3\] but expected .* \[3, 2\]; was its"
    ):
        loss.backward()
    assert w.grad is None


def flattened(params):
    """One buffer of all elements and one of all gradients; the parameters are views of them."""
    count = sum(p.numel() for p in params)
    flat, grads, at = weft.zeros(count), weft.zeros(count), 0
    for p in params:
        end = at + p.numel()
        flat[at:end].copy_(p.data.view(-1))
        p.data = flat[at:end].view_as(p)
        p.grad = grads[at:end].view_as(p)
        at = end
    return flat, grads


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: weft.optim.SGD(ps, lr=0.1, momentum=0.9),
        lambda ps: weft.optim.Adam(ps, lr=0.1),
    ],
    ids=["SGD", "Adam"],
)
def test_training_in_one_flat_buffer_is_training(make):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    twin = copy.deepcopy(net)
    flat, grads = flattened(list(net.parameters()))
    x = weft.arange(12.0).reshape(4, 3) / 10
    for model, optimizer in ((net, make(net.parameters())), (twin, make(twin.parameters()))):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=model is twin)
            model(x).pow(2).sum().backward()
            optimizer.step()
    whole = weft.cat([p.detach().reshape(-1) for p in twin.parameters()])
    assert weft.allclose(flat, whole)
    assert weft.allclose(grads, weft.cat([p.grad.reshape(-1) for p in twin.parameters()]))
    flat.zero_()
    assert net[0].weight.sum() == 0
    assert all(p.requires_grad for p in net.parameters())
    net.load_state_dict(twin.state_dict())
    assert weft.allclose(flat, whole)
    weft.nn.utils.vector_to_parameters(whole * 2, net.parameters())
    assert weft.allclose(weft.nn.utils.parameters_to_vector(net.parameters()), whole * 2)


def test_copies_share_where_the_originals_do():
    flat = numbers(4)
    leaf = flat[:2].requires_grad_()
    twin, part = copy.deepcopy([flat, leaf])
    twin.add_(10)
    assert (part.tolist(), part.requires_grad, leaf.tolist()) == ([10, 11], True, [0, 1])


def test_versions_are_those_of_the_elements():
    x = numbers(3)
    y = x.detach()
    y.add_(1)
    x[0].add_(1)
    assert x._version == y._version == 2
    assert x[1:]._base is x
    assert x[1:]._is_view()
    assert not y._is_view()


def test_compiled_functions_see_writes_through_aliases():
    x = numbers(3)
    part = x[1:]

    @weft.compile
    def step(y):
        part.add_(y)
        return x * 1

    for n in range(1, 4):
        assert step(weft.ones(2)).tolist() == [0, 1 + n, 2 + n]


def test_a_view_of_what_is_apart_is_read_anew_after_it_was_written():
    x = weft.ones(1, requires_grad=True) * 1
    with weft.no_grad():
        apart = x.unfold(-1, 1, 1).detach()
    view, other = apart.mT, x.unfold(-1, 1, 1)
    del apart
    with weft.no_grad():
        view.fill_(2)
        assert [t.tolist() for t in (x, view, other)] == [[2], [[2]], [[2]]]
        other.fill_(3)
        assert [t.tolist() for t in (x, view, other)] == [[3], [[3]], [[3]]]


def test_places_in_a_leaf_that_has_become_its_own_view_are_written_without_gradients():
    x = weft.ones(3, 2, requires_grad=True)
    with weft.no_grad():
        x.t_()
        x.as_strided((3,), (1,), 0).add_(2)
    assert x.tolist() == [[3, 3, 1], [3, 1, 1]]
    assert x.requires_grad
    assert x.is_leaf
