"""Aliases: every view sees every write, through whatever path it was made."""

from __future__ import annotations

import numpy as np
import pytest

import weft


def numbers(*shape, dtype=weft.float64):
    return weft.arange(float(np.prod(shape)), dtype=dtype).reshape(shape).clone()


PATHS = [
    ("select", lambda x: x[1], lambda a: a[1]),
    ("slice", lambda x: x[:, 1:3], lambda a: a[:, 1:3]),
    ("step", lambda x: x[::2, ::3], lambda a: a[::2, ::3]),
    ("transpose", lambda x: x.t(), lambda a: a.T),
    ("reshape", lambda x: x.view(2, 6), lambda a: a.reshape(2, 6)),
    ("unsqueeze", lambda x: x[None, :, 1:2], lambda a: a[None, :, 1:2]),
    ("squeeze", lambda x: x.unsqueeze(0).squeeze(0)[0], lambda a: a[0]),
    ("diagonal", lambda x: x.diagonal(), lambda a: np.einsum("ii->i", a[:, :3])),
    ("narrow", lambda x: x.narrow(1, 2, 2), lambda a: a[:, 2:4]),
    ("permute", lambda x: x.view(3, 2, 2).permute(2, 0, 1)[1], lambda a: a.reshape(3, 2, 2).transpose(2, 0, 1)[1]),
    ("chunk", lambda x: x.chunk(2, 1)[1], lambda a: a[:, 2:]),
    ("unbind", lambda x: x.unbind(1)[3], lambda a: a[:, 3]),
    ("flatten", lambda x: x.flatten()[2:9:2], lambda a: a.reshape(-1)[2:9:2]),
    ("deep", lambda x: x.t()[1:].t()[::2][1:], lambda a: a[::2, 1:][1:]),
    ("unfold", lambda x: x[0].unfold(0, 2, 2), lambda a: a[0].reshape(2, 2)),
]
VIEWS = pytest.mark.parametrize(("view", "of_numpy"), [row[1:] for row in PATHS], ids=[row[0] for row in PATHS])


@VIEWS
def test_a_view_sees_writes_to_its_base_and_the_base_those_to_it(view, of_numpy):
    x, a = numbers(3, 4), np.arange(12.0).reshape(3, 4)
    part, same = view(x), of_numpy(a)
    x.mul_(2)
    a *= 2
    np.testing.assert_array_equal(part, same)
    part.add_(100)
    same += 100
    np.testing.assert_array_equal(part, same)
    np.testing.assert_array_equal(x, a)


@VIEWS
def test_gradients_flow_through_a_write_to_a_view(view, of_numpy):
    leaf = numbers(3, 4).requires_grad_()
    x = leaf * 1
    part = view(x)
    factor = weft.full(part.shape, 10.0, dtype=weft.float64, requires_grad=True)
    part.mul_(factor)
    (x * x).sum().backward()
    a = np.arange(12.0).reshape(3, 4)
    scale = np.ones((3, 4))
    of_numpy(scale)[...] = 10
    np.testing.assert_allclose(leaf.grad, 2 * a * scale**2)
    np.testing.assert_allclose(factor.grad, 20 * of_numpy(a) ** 2)


@pytest.mark.parametrize("dtype", [weft.bool, weft.int64, weft.uint8, weft.float16, weft.complex64], ids=repr)
@VIEWS
def test_writes_through_views_keep_every_type_exact(view, of_numpy, dtype):
    host = (np.arange(12).reshape(3, 4) % 2 + (2**60 if dtype is weft.int64 else 0)).astype(dtype.numpy)
    x = weft.tensor(host)
    part = view(x)
    part.copy_(weft.ones(part.shape, dtype=dtype))
    of_numpy(host)[...] = 1
    assert x.tolist() == host.tolist()


def test_aliases_of_aliases_share():
    x = numbers(2, 3)
    row = x[1]
    last = row[2:]
    column = x.t()[2]
    last.fill_(-1)
    assert column.tolist() == [2, -1]
    column.mul_(10)
    assert row.tolist() == [3, 4, -10]
    assert last.tolist() == [-10]
    x.zero_()
    assert [v.tolist() for v in (row, last, column)] == [[0, 0, 0], [0], [0, 0]]


def test_a_view_outlives_the_handle_of_its_base():
    x = numbers(3)
    part = x[1:]
    whole = x.view(3)
    del x
    part.add_(10)
    assert whole.tolist() == [0, 11, 12]


def test_a_view_taken_before_and_after_a_write_are_the_same():
    x = numbers(3)
    before = x[0]
    x.add_(1)
    after = x[0]
    after.mul_(7)
    assert before.item() == 7


def test_an_expanded_tensor_is_not_written():
    x = weft.ones(3, 1)
    with pytest.raises(
        RuntimeError, match=r"^unsupported operation: more than one element of the written-to tensor refe"
    ):
        x.expand(3, 4).add_(1)
    assert x.tolist() == [[1], [1], [1]]
    x.expand(3, 1).add_(1)
    assert x.tolist() == [[2], [2], [2]]


def test_copies_are_no_views():
    x = numbers(3)
    for copy in (x.clone(), x[weft.tensor([0, 1])], x + 0, x[x > 0]):
        copy.zero_()
    assert x.tolist() == [0, 1, 2]


def test_a_view_made_without_gradients_is_written_without_them():
    x = numbers(3).requires_grad_()
    with weft.no_grad():
        part = x[1:]
    part.mul_(5)
    assert x.tolist() == [0, 5, 10]
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_views_of_an_interior_tensor_stay_on_the_tape_after_a_write():
    leaf = numbers(3).requires_grad_()
    x = leaf * 2
    part = x[1:]
    x.mul_(3)
    part.sum().backward()
    assert leaf.grad.tolist() == [0, 6, 6]


def test_the_value_of_a_view_is_kept_by_a_backward_pass():
    leaf = numbers(3).requires_grad_()
    x = leaf * 1
    part = x[1:]
    loss = (part * part).sum()
    part.zero_()
    x.add_(50)
    loss.backward()
    assert leaf.grad.tolist() == [0, 2, 4]


def test_many_views_do_not_pile_up():
    x = numbers(3)
    for _ in range(1000):
        x[0]
    assert len(x._views) <= 32


def test_views_of_complex_parts_write():
    z = weft.tensor([1 + 2j, 3 + 4j])
    z.real.mul_(10)
    z.imag[0] = -1
    assert z.tolist() == [10 - 1j, 30 + 4j]


def test_complex_parts_are_assigned_to():
    z, x = weft.tensor([1 + 2j, 3 + 4j]), numbers(2)
    z.imag = 5
    z.real = weft.tensor([-1, -2])
    x.real = 7
    assert z.tolist() == [-1 + 5j, -2 + 5j]
    assert x.tolist() == [7, 7]
    with pytest.raises(RuntimeError, match=r"^imag is not implemented for tensors with non-complex dtypes\."):
        x.imag = 1


ITSELF = [
    lambda x: x.flatten(),
    lambda x: x.flatten(-1, 0),
    weft.conj,
    weft.real,
    lambda x: x.real,
    weft.positive,
    lambda x: +x,
    weft.conj_physical,
    lambda x: weft.broadcast_tensors(x, x)[1],
]


@pytest.mark.parametrize("function", ITSELF)
def test_what_has_nothing_to_do_gives_its_input(function):
    x = weft.ones(3, requires_grad=True)
    assert function(x) is x
    with weft.no_grad():
        assert function(x) is x


def test_what_has_something_to_do_gives_a_tensor_of_its_own():
    z, out = weft.tensor([1 + 2j]), weft.zeros(3)
    assert z.conj() is not z
    assert z.conj_physical().tolist() == [1 - 2j]
    assert weft.conj_physical(weft.ones(3), out=out) is out
    assert out.tolist() == [1, 1, 1]
    assert weft.ones(()).flatten().shape == (1,)
    with pytest.raises(IndexError, match="Dimension out of range"):
        weft.ones(3).flatten(5, 5)
    with pytest.raises(RuntimeError, match="on a bool tensor is not supported"):
        weft.positive(weft.tensor([True]))
