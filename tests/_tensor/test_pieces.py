"""Loops over positions: iteration, elements and parts that are read and written one after the other."""

from __future__ import annotations

import gc
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft._base.state import ambient
from weft._lazy import infer, program
from weft._lazy.interpreted import _is_alone

torch = weft


def signatures():
    return sum(len(call.signatures) + len(call.uncached) for call in infer._calls.values())


# --- iteration ----------------------------------------------------------------------------------------------------


def test_a_loop_over_elements_has_one_signature():
    x = weft.arange(300.0)
    next(iter(x)).item()
    before = signatures()
    assert sum(float(v) for v in x) == 300 * 299 / 2
    assert signatures() == before
    assert not ambient().pending  # what is in memory is shown, and nothing is recorded


def test_slices_are_made_when_it_is_their_turn():
    x = weft.arange(10_000.0)
    first = list(islice(x, 3))
    assert [v.item() for v in first] == [0, 1, 2]
    assert len(x._views) <= 4
    assert next(v for v in x if v > 2) == 3


def test_iteration_gives_views():
    x = weft.zeros(3, 2)
    rows = list(x)
    rows[1] += 1
    assert x.tolist() == [[0, 0], [1, 1], [0, 0]]
    x[2] = 5
    assert rows[2].tolist() == [5, 5]
    assert all(row._base is x for row in rows)
    a, b, c = x
    assert (a + b + c).tolist() == [6, 6]


@pytest.mark.parametrize("grad", [True, False])
def test_slices_of_what_is_in_memory_are_views_of_any_depth(grad):
    """Their way from the base is not known before it is needed: by a write, a read after a write, or a further view."""
    x = weft.zeros(2, 3)
    with weft.set_grad_enabled(grad):
        row = next(iter(x))
        element = row[1]
        x[0] = 5
        assert (row.tolist(), element.item()) == ([5, 5, 5], 5)
        element.add_(1)
        for v in row:
            v.mul_(2)
    assert x.tolist() == [[10, 12, 10], [0, 0, 0]]
    assert (element.storage_offset(), row.stride()) == (1, (1,))
    with weft.inference_mode():
        assert [v.is_inference() for v in weft.ones(2)] == [True, True]


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients_flow_through_slices(dim):
    x = weft.arange(6.0).reshape(2, 3).requires_grad_()
    sum((at + 1) * v.sum() for at, v in enumerate(x.unbind(dim))).backward()
    steps = np.arange(1, x.shape[dim] + 1)
    expected = np.broadcast_to(steps[:, None] if dim == 0 else steps, (2, 3))
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_gradients_flow_through_iteration_and_through_what_is_written():
    x = weft.ones(40, requires_grad=True)
    y = x * 1
    next(iter(y))
    before = signatures()
    for at, v in enumerate(y):
        v *= at
        if at == 4:  # the derivatives of the write come at the first of all passes
            before = signatures()
    assert signatures() == before
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.arange(40))


def test_zip_rows_of_rows_and_extremes():
    x = weft.arange(6.0).reshape(3, 2)
    assert [[v.item() for v in row] for row in x] == [[0, 1], [2, 3], [4, 5]]
    assert [(a.sum().item(), int(b)) for a, b in zip(x, weft.arange(3), strict=True)] == [(1, 0), (5, 1), (9, 2)]
    assert max(x[:, 0]) == 4
    assert sum(x).tolist() == [6, 9]
    assert {int(k): i for i, k in enumerate(weft.arange(3))} == {0: 0, 1: 1, 2: 2}


def test_a_zero_dim_tensor_is_refused_at_once():
    with pytest.raises(TypeError, match=r"^iteration over a 0-d tensor$"):
        iter(weft.tensor(1.0))


def test_overriding_classes_and_modes_see_unbind():
    seen = []

    class Own(weft.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    rows = list(weft.ones(2, 2).as_subclass(Own))
    assert all(type(row) is Own for row in rows)
    assert "unbind" in seen


def test_iteration_within_vmap():
    result = weft.vmap(lambda row: sum(v * v for v in row))(weft.arange(6.0).reshape(2, 3))
    assert result.tolist() == [5, 50]


def test_names_of_slices():
    assert next(iter(weft.ones(2, 3, names=("N", "C")))).names == ("C",)


def test_slices_of_a_compiled_result_and_of_what_overwrites_it():
    x = weft.arange(5.0)
    first = x[0]
    x += 1
    assert [v.item() for v in x] == [1, 2, 3, 4, 5]
    assert first.item() == 1
    kept = x[1].clone()
    x *= 0
    assert kept.item() == 2


# --- one program for all positions ------------------------------------------------------------------------------


def test_positions_are_no_structure():
    y = weft.zeros(64)

    def step(i):
        y[i : i + 2] = y[i + 1] * 2 + 1
        y.narrow(0, i, 2).add_(y.select(0, i + 3))
        return weft.roll(y, i)[i].item()

    for i in range(3):
        step(i)
    before = signatures(), len(program._programs)
    for i in range(3, 40):
        step(i)
    assert (signatures(), len(program._programs)) == before


def test_memory_does_not_grow_with_positions():
    x = weft.zeros(20_000)

    def loop():
        for v in x:
            float(v)

    loop()
    gc.collect()
    before = len(gc.get_objects())
    loop()
    gc.collect()
    assert len(gc.get_objects()) < before + 100
    assert len(x._views) < 32


def test_many_pieces_have_the_signature_of_one():
    weft.ones(8).split(1)
    before = signatures()
    assert len(weft.ones(8).unbind()) == len(weft.ones(8).split(1)) == 8
    assert signatures() <= before + 4
    assert len(weft.ones(8).tensor_split(8)) == len(weft.ones(8).chunk(8)) == 8


# --- reads and writes like NumPy's ------------------------------------------------------------------------------

_SIZE = 5
POSITIONS = st.integers(-_SIZE, _SIZE - 1)
SLICES = st.tuples(st.integers(-_SIZE, _SIZE), st.integers(-_SIZE, _SIZE), st.integers(1, 3)).map(lambda t: slice(*t))
INDICES = st.one_of(POSITIONS, SLICES, st.tuples(POSITIONS, POSITIONS), st.tuples(SLICES, POSITIONS), st.just(...))
ACTIONS = st.lists(
    st.tuples(st.sampled_from(("view", "fill", "add", "copy", "turn", "read")), st.integers(0, 7), INDICES, POSITIONS),
    max_size=12,
)


@given(ACTIONS)
def test_views_and_writes_are_numpys(actions):
    arrays = [np.arange(float(_SIZE * _SIZE)).reshape(_SIZE, _SIZE)]
    tensors = [weft.tensor(arrays[0])]
    for kind, which, index, number in actions:
        a, t = arrays[which % len(arrays)], tensors[which % len(tensors)]
        try:
            part = a[index]
        except IndexError:
            continue
        if kind == "view":
            arrays.append(part if isinstance(part, np.ndarray) else a[(*np.atleast_1d(index), ...)])
            tensors.append(t[index])
        elif kind == "fill":
            a[index] = number
            t[index] = number
        elif kind == "add":
            a[index] += number
            t[index] += number
        elif kind == "copy":
            a[index] = part * 2
            t[index] = t[index] * 2
        elif kind == "turn" and a.ndim == 2:
            arrays.append(a.T)
            tensors.append(t.t())
        else:
            assert t[index].tolist() == np.asarray(part).tolist()
    for a, t in zip(arrays, tensors, strict=True):
        assert t.tolist() == a.tolist()


def test_a_row_may_be_written_by_an_index_tensor():
    out, places = weft.zeros(4), weft.tensor([1, 1, 3, -1])
    for i in range(4):
        out[places[i]] += i + 1
    assert out.tolist() == [0, 3, 0, 7]
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 0 with size 4"):
        out[weft.tensor(4)]


def test_an_array_is_overwritten_only_if_nothing_else_refers_to_it():
    fresh = [np.zeros(3)]
    whole = _is_alone(fresh)
    part = fresh[0][1:]
    beside_a_part = _is_alone(fresh)
    of_a_part = _is_alone([part])
    del part
    other = fresh[0]
    beside_another = _is_alone(fresh)
    del other
    assert (whole, beside_a_part, of_a_part, beside_another, _is_alone(fresh)) == (True, False, False, False, True)


def test_what_is_read_before_a_write_stays():
    x = weft.zeros(50, 3) + 0
    rows = []
    for i in range(50):
        x[i] = x[i - 1] + 1
        rows.append(x[i] * 1)
        x[i, 0] = -1
    assert [row[1].item() for row in rows] == list(range(1, 51))
    assert x[:, 0].tolist() == [-1] * 50


# --- sparse tensors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1])
def test_index_select_of_many_stored_elements(dim):
    rng = np.random.default_rng(0)
    dense = rng.random((300, 300)) * (rng.random((300, 300)) < 0.02)
    x = weft.tensor(dense).to_sparse()
    index = rng.integers(0, 300, 500)
    result = x.index_select(dim, weft.tensor(index))
    np.testing.assert_array_equal(result.to_dense().numpy(), np.take(dense, index, dim))
