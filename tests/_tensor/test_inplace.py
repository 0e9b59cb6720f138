"""In-place operators: what they change, what they refuse, and the gradients through them."""

from __future__ import annotations

import numpy as np
import pytest

import weft

LEAF = r"^a leaf Variable that requires grad is being used in an in-place operation\."
VIEW_OF_LEAF = r"^a view of a leaf Variable that requires grad is being used in an in-place operation\."


def test_the_handle_changes_and_stays_the_same_object():
    x = weft.tensor([1.0, 2.0])
    y = x
    assert x.add_(1) is x
    x *= 3
    assert y is x
    assert y.tolist() == [6, 9]


FORMS = [
    ("augmented", lambda x: x.__iadd__(2), [3, 4]),
    ("method", lambda x: x.mul_(weft.tensor([2.0, 3.0])), [2, 6]),
    ("function", weft.relu_, [1, 2]),
    ("composite", lambda x: x.addcmul_(x, x, value=2), [3, 10]),
    ("copy", lambda x: x.copy_(weft.tensor(5)), [5, 5]),
    ("fill", lambda x: x.fill_(7), [7, 7]),
    ("zero", lambda x: x.zero_(), [0, 0]),
    ("out", lambda x: weft.add(x, 1, out=x), [2, 3]),
]


@pytest.mark.parametrize(("write", "result"), [row[1:] for row in FORMS], ids=[row[0] for row in FORMS])
def test_every_form_writes(write, result):
    x = weft.tensor([1.0, 2.0])
    alias = x[:]
    assert write(x) is x
    assert x.tolist() == result
    assert alias.tolist() == result
    assert x.dtype is weft.float32


def test_the_type_stays_and_must_hold_the_result():
    assert weft.tensor([1.0, 2.0]).add_(weft.tensor([1, 1])).dtype is weft.float32
    assert weft.ones(2).add_(weft.ones(2, dtype=weft.float64)).dtype is weft.float32
    with pytest.raises(RuntimeError, match=r"^result type Float can't be cast to the desired output type Long$"):
        weft.tensor([1, 2]).add_(0.5)
    with pytest.raises(RuntimeError, match=r"^result type Float can't be cast to the desired output type Int$"):
        weft.tensor([1, 2], dtype=weft.int32).div_(2)
    with pytest.raises(
        RuntimeError, match=r"^result type ComplexFloat can't be cast to the desired output type Float$"
    ):
        weft.ones(1).mul_(1j)


def test_a_leaf_that_collects_a_gradient_is_written_only_without_gradients():
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=LEAF):
        x.add_(1)
    with pytest.raises(RuntimeError, match=VIEW_OF_LEAF):
        x[0] = 2
    with pytest.raises(RuntimeError, match=LEAF):
        x[:] = 2
    with pytest.raises(RuntimeError, match=VIEW_OF_LEAF):
        x[0].add_(1)
    with weft.no_grad():
        x.add_(1)
        x[0].mul_(5)
    assert x.tolist() == [10, 2]
    assert x.is_leaf
    (x * x).sum().backward()
    assert x.grad.tolist() == [20, 4]


def test_detached_aliases_write_to_a_leaf():
    x = weft.ones(2, requires_grad=True)
    x.detach()[0] = 5
    x.data.mul_(2)
    assert x.tolist() == [10, 2]
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_data_may_be_replaced():
    x = weft.ones(2, requires_grad=True)
    x.data = weft.tensor([4.0, 5.0])
    (x * x).sum().backward()
    assert x.grad.tolist() == [8, 10]


def test_gradients_flow_through_a_chain_of_writes():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    y.mul_(x)
    y.add_(x)
    y.pow_(2)
    y.sum().backward()
    assert x.grad.tolist() == [2 * 2 * 3, 2 * 6 * 5]


def test_a_write_of_a_tracked_value_makes_the_receiver_tracked():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    buffer = weft.zeros(2)
    buffer += x * 3
    assert buffer.requires_grad
    buffer.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_write_without_gradients_is_invisible_to_the_tape():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    with weft.no_grad():
        y.add_(100)
    assert y.tolist() == [102, 104]
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_overwriting_ends_the_gradient():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.copy_(weft.zeros(2))
    (y.sum() + x.sum()).backward()
    assert x.grad.tolist() == [1, 1]


def test_out_refuses_gradients_and_resizes_the_empty():
    with pytest.raises(RuntimeError, match=r"^out=... arguments don't support automatic differentiation"):
        weft.add(weft.ones(2, requires_grad=True), 1, out=weft.empty(2))
    made = weft.empty(0)
    assert weft.add(weft.ones(2), 1, out=made) is made
    assert made.tolist() == [2, 2]
    with pytest.warns(UserWarning, match=r"^An output with one or more elements was resized since it had shape \[3\]"):
        weft.add(weft.ones(2), 1, out=weft.empty(3))


def test_every_write_moves_the_version():
    x = weft.ones(3)
    before = x._version
    x.add_(1)
    x[0] = 2
    assert x._version == before + 2


def test_an_operand_that_is_none_is_left_to_python():
    x = weft.ones(2)
    with pytest.raises(TypeError, match=r"^unsupported operand type\(s\) for \+=: 'Tensor' and 'str'$"):
        x += "a"


def shift(x):
    x[1:] = x[:-1] * 1


def shift_columns(x):
    x[:, 1:] = x[:, :-1] * 1


def shift_flat(x):
    flat = x.reshape(-1)
    flat[1:] = flat[:-1] * 1


def shift_transposed(x):
    x.T[1:] = x.T[:-1] * 1


@pytest.mark.parametrize("read", [lambda x: x, lambda x: x.reshape(-1), lambda x: x.reshape(1, -1, 1) * 2])
@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (4, 3), (8, 16)])
@pytest.mark.parametrize("write", [shift, shift_columns, shift_flat, shift_transposed])
def test_parts_are_written_from_other_parts(write, shape, read):
    """Reshapes around such writes make XLA:CPU read what it has overwritten, unless it is kept from fusing them."""
    host = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    wanted, x = host + 1, weft.tensor(host) + 1
    write(wanted)
    write(x)
    np.testing.assert_array_equal(read(x).numpy(), read(wanted))


def test_a_part_of_a_written_part_is_written():
    """As above, for a write through three views after another write."""
    host = np.arange(6.0).reshape(2, 3) + 1
    a = weft.tensor(host)
    x = a * weft.tensor(host * 2)
    x[:, 2].add_(a.sum())
    x.view(6)[1:5][weft.tensor([0])] = a.max()
    assert x.tolist() == [[2, 6, 39], [32, 50, 93]]


@pytest.mark.parametrize("write", [lambda x: x.eq_(x), lambda x: x.logical_not_(), lambda x: x.lt_(2)])
def test_a_write_without_a_slope_leaves_the_tensor_in_its_graph(write):
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    x = w * 1
    write(x)
    assert x.requires_grad
    (x + w).sum().backward()
    assert w.grad.tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(2, 2), (2, 3)])
def test_a_tensor_that_becomes_its_own_view_without_gradients_stays_in_its_graph(shape):
    w = weft.ones(shape, requires_grad=True)
    x = w * 2
    with weft.no_grad():
        x.t_()
    assert x.requires_grad
    assert x.shape == shape[::-1]
    x.sum().backward()
    assert w.grad.tolist() == np.full(shape, 2).tolist()


def test_an_expanded_view_of_a_part_that_is_apart_is_filled():
    x = weft.ones(2, 1, 2)
    with weft.no_grad():
        part = x.transpose(-1, 0)[:, :, :1]
    part.expand(2, 3, 1).fill_(4)
    assert x.tolist() == [[[4, 4]], [[1, 1]]]


def test_a_tensor_is_assigned_to_itself_with_a_dim_more():
    x = weft.arange(3.0)
    x[None] = x
    assert x.tolist() == [0, 1, 2]


def test_a_tensor_that_is_written_to_itself_stays_as_it_is():
    x = weft.ones(3).expand(2, 3)
    x[...] = x
    assert x.copy_(x) is x
    assert x.tolist() == [[1] * 3] * 2
    w = weft.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=LEAF):
        w.copy_(w)


def test_a_part_is_assigned_everywhere():
    x = weft.arange(3.0)
    x[...] = x[1:2]
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("p", [0, 1])
def test_a_whole_number_is_a_probability(p):
    assert weft.full((3,), 0.5).bernoulli_(p).tolist() == weft.full((3,), 0.5).bernoulli(p).tolist() == [p] * 3
