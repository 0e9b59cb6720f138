"""Tensors from data, with another type, and functions whose results are as large as the elements say."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import tensor


def same(found, data, dtype):
    assert found.dtype is dtype
    assert found.tolist() == data


# ---- tensor()

DATA = [
    ([1, 2.5], [1.0, 2.5], weft.float32),
    ([True, 2], [1, 2], weft.int64),
    ([True, False], [True, False], weft.bool),
    ([1, 2j], [1 + 0j, 2j], weft.complex64),
    ([], [], weft.float32),
    ([[], []], [[], []], weft.float32),
    (range(3), [0, 1, 2], weft.int64),
    ([(1, 2), [3, 4]], [[1, 2], [3, 4]], weft.int64),
    (np.float64(1), 1.0, weft.float64),
    (np.int32(1), 1, weft.int32),
    ([np.float32(1), 2], [1.0, 2.0], weft.float32),
    ([np.array([1, 2]), np.array([3, 4])], [[1, 2], [3, 4]], weft.int64),
    ([np.array([1, 2]), [3, 4]], [[1, 2], [3, 4]], weft.int64),
    ([[1, 2], np.array([3, 4])], [[1, 2], [3, 4]], weft.int64),
    ([np.array([1, 2]), np.array([3, 4], np.float32)], [[1.0, 2.0], [3.0, 4.0]], weft.float32),
    ([np.array([1, 2]), tensor([3, 4])], [[1, 2], [3, 4]], weft.int64),
    ([tensor(1.0), 2], [1.0, 2.0], weft.float32),
    ([weft.ones(1), weft.ones(1)], [1.0, 1.0], weft.float32),
    (1e39, float("inf"), weft.float32),
]


@pytest.mark.parametrize(("data", "elements", "dtype"), DATA, ids=[repr(data) for data, _, _ in DATA])
def test_tensor_of(data, elements, dtype):
    same(tensor(data), elements, dtype)


TYPED = [
    ([0.1], weft.float64, [0.1]),
    ([1.5], weft.int32, [1]),
    ([-1], weft.uint8, [255]),
    ([1, 0], bool, [True, False]),
    ([1], float, [1.0]),
    (2**63, weft.uint64, 2**63),
    (70000.0, weft.float16, float("inf")),
]


@pytest.mark.parametrize(("data", "dtype", "elements"), TYPED)
def test_tensor_of_a_type(data, dtype, elements):
    assert tensor(data, dtype=dtype).tolist() == elements


REFUSED = [
    ([[1, 2], [3]], {}, ValueError, r"^expected sequence of length 2 at dim 1 \(got 1\)$"),
    ([[1], 2], {}, TypeError, "^not a sequence: expected length 1 at dim 1, got 2$"),
    ([1, [2]], {}, TypeError, "^expected a number at dim 1, got a sequence of length 1$"),
    ([np.ones(2), [3]], {}, ValueError, r"^expected entries of one shape at dim 1, got \(2,\) and \(1,\)$"),
    ("a", {}, TypeError, r"^new\(\): invalid data type 'str'$"),
    (["a"], {}, ValueError, "^too many dimensions 'str'$"),
    ([None], {}, RuntimeError, "^Could not infer dtype of NoneType$"),
    ({1}, {}, RuntimeError, "^Could not infer dtype of set;"),
    (2**63, {}, ValueError, "^Overflow when unpacking long long"),
    ([300], {"dtype": weft.uint8}, RuntimeError, "^value cannot be converted to type uint8 without overflow$"),
    ([float("nan")], {"dtype": weft.int32}, RuntimeError, "^value cannot be converted to type int32"),
    ([1j], {"dtype": weft.float32}, TypeError, "^must be real number, not complex"),
    ([weft.ones(2)], {}, ValueError, "^only one element tensors can be converted"),
]


@pytest.mark.parametrize(("data", "options", "kind", "text"), REFUSED, ids=[repr(row[0])[:30] for row in REFUSED])
def test_tensor_refuses(data, options, kind, text):
    with pytest.raises(kind, match=text):
        tensor(data, **options)


# ---- to() and its kin


def test_to_returns_the_tensor_itself_if_nothing_changes():
    x = weft.ones(2)
    assert x.to() is x.to("cpu") is x.to(weft.float32) is x.to(weft.zeros(1)) is x.float() is x.cpu() is x
    assert x.to(copy=True) is not x


@pytest.mark.parametrize(
    ("method", "dtype"),
    [
        ("double", weft.float64),
        ("half", weft.float16),
        ("bfloat16", weft.bfloat16),
        ("int", weft.int32),
        ("long", weft.int64),
        ("short", weft.int16),
        ("char", weft.int8),
        ("byte", weft.uint8),
        ("bool", weft.bool),
        ("cfloat", weft.complex64),
        ("cdouble", weft.complex128),
    ],
)
def test_casts(method, dtype):
    x = weft.ones(2)
    assert getattr(x, method)().dtype is x.to(dtype).dtype is x.type(dtype).dtype is dtype
    assert x.to("cpu", dtype).dtype is x.to(weft.zeros(1, dtype=dtype)).dtype is dtype


def test_cast_passes_gradients():
    x = weft.ones(2, requires_grad=True)
    x.double().sum().backward()
    same(x.grad, [1.0, 1.0], weft.float32)


def test_python_float_means_double():
    assert weft.ones(1).to(float).dtype is weft.float64


def test_type_names():
    x = weft.ones(2)
    assert x.type() == "torch.FloatTensor"
    assert x.type("torch.LongTensor").type() == "torch.LongTensor"
    with pytest.raises(ValueError, match=r"^invalid type: 'foo'$"):
        x.type("foo")


def test_complex_to_real_warns():
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        assert tensor([1 + 2j]).float().tolist() == [1.0]


def test_unknown_device():
    with pytest.raises(RuntimeError, match="at start of device string: foo"):
        weft.ones(1).to("foo")


def test_new_tensor_keeps_the_type():
    same(weft.ones(2).new_tensor([1, 2]), [1.0, 2.0], weft.float32)


# ---- writes


def test_copy_writes_through_views():
    x = weft.zeros(2, 2)
    x[0].copy_(tensor([1, 2]))
    x[1].copy_(3)
    assert x.tolist() == [[1.0, 2.0], [3.0, 3.0]]


def test_resize():
    x = weft.arange(6)
    assert x.resize_(3, 2) is x
    assert x.tolist() == [[0, 1], [2, 3], [4, 5]]
    view = x[0]
    assert x.resize_(7).tolist() == [0, 1, 2, 3, 4, 5, 0]
    x[0] = 9
    assert view.tolist() == [9, 1]
    with pytest.raises(RuntimeError, match=r"^cannot resize variables that require grad$"):
        weft.ones(2, requires_grad=True).resize_(1, 2)


# ---- questions


def test_comparisons_of_whole_tensors():
    x = weft.ones(2)
    assert weft.equal(x, tensor([1, 1]))
    assert not x.equal(weft.ones(3))
    assert not weft.equal(tensor(float("nan")), tensor(float("nan")))
    assert weft.allclose(x, x + 1e-9)
    assert not x.allclose(x + 1)
    assert x.is_same_size(weft.zeros(2))


def test_facts():
    assert weft.is_tensor(weft.ones(1))
    assert not weft.is_tensor(1)
    assert weft.numel(weft.ones(2, 3)) == 6
    assert weft.is_floating_point(weft.ones(1))
    assert not weft.is_complex(weft.ones(1))
    assert not weft.is_nonzero(tensor([0.0]))
    with pytest.raises(TypeError, match=r"^numel\(\): argument 'input' must be Tensor, not list$"):
        weft.numel([1])
    with pytest.raises(RuntimeError, match=r"^Boolean value of Tensor with no values is ambiguous$"):
        weft.is_nonzero(tensor([]))


def test_result_types():
    assert weft.result_type(weft.ones(2), 1) is weft.float32
    assert weft.result_type(tensor(1), 1.5) is weft.float32
    assert weft.result_type(weft.ones(2).int(), tensor(1.5).double()) is weft.float64
    assert not weft.can_cast(weft.float64, weft.int32)


def test_limits():
    assert repr(weft.finfo(weft.float16)) == (
        "finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, smallest_normal=6.10352e-05, "
        "tiny=6.10352e-05, dtype=float16)"
    )
    assert weft.finfo(weft.complex64) == weft.finfo() == weft.finfo(weft.float32)
    assert weft.finfo(weft.bfloat16).max == 3.3895313892515355e38
    assert repr(weft.iinfo(weft.int8)) == "iinfo(min=-128, max=127, dtype=int8)"
    assert weft.iinfo(weft.uint64).max == 2**64 - 1
    with pytest.raises(TypeError, match="requires an integer input type"):
        weft.iinfo(weft.float32)
    with pytest.raises(TypeError, match="requires a floating point input type"):
        weft.finfo(weft.int8)


def test_default_dtype():
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.get_default_dtype() is tensor([1.5]).dtype is weft.float64
        assert weft.finfo() == weft.finfo(weft.float64)
    finally:
        weft.set_default_dtype(weft.float32)
    assert str(weft.get_default_device()) == "cpu"


# ---- sizes that depend on elements


def test_nonzero():
    x = tensor([[0, 1], [2, 0]])
    assert weft.nonzero(x).tolist() == x.argwhere().tolist() == [[0, 1], [1, 0]]
    assert [places.tolist() for places in x.nonzero(as_tuple=True)] == [[0, 1], [1, 0]]
    assert tuple(weft.nonzero(tensor(5)).shape) == (1, 0)
    assert [places.tolist() for places in weft.nonzero(tensor(5), as_tuple=True)] == [[0]]


def test_masked_select_broadcasts_and_passes_gradients():
    x = weft.ones(2, 3, requires_grad=True)
    found = x.masked_select(tensor([True, False, True]))
    assert tuple(found.shape) == (4,)
    found.sum().backward()
    assert x.grad.tolist() == [[1.0, 0.0, 1.0]] * 2
    with pytest.raises(RuntimeError, match=r"^masked_select: expected BoolTensor for mask$"):
        x.masked_select(tensor([1, 0, 1]))


def lists(tensors):
    return [t.tolist() for t in tensors]


def test_unique():
    x = tensor([[3, 1], [1, 2.0]])
    assert x.unique().tolist() == [1.0, 2.0, 3.0]
    assert lists(weft.unique(x, return_inverse=True, return_counts=True)) == [
        [1.0, 2.0, 3.0],
        [[2, 0], [0, 1]],
        [2, 1, 1],
    ]
    rows = tensor([[3, 1], [1, 2], [3, 1]])
    assert lists(rows.unique(dim=0, return_inverse=True, return_counts=True)) == [
        [[1, 2], [3, 1]],
        [1, 0, 1],
        [1, 2],
    ]
    assert tuple(weft.unique(tensor([float("nan"), float("nan")])).shape) == (2,)


def test_unique_consecutive():
    x = tensor([1, 1, 2, 2, 1])
    found = x.unique_consecutive(return_inverse=True, return_counts=True)
    assert lists(found) == [[1, 2, 1], [0, 0, 1, 1, 2], [2, 2, 1]]
    assert weft.unique_consecutive(tensor([[1, 1], [1, 1], [2, 2]]), dim=0).tolist() == [[1, 1], [2, 2]]


def test_bincount():
    x = tensor([0, 1, 1])
    same(x.bincount(minlength=4), [1, 2, 0, 0], weft.int64)
    same(weft.bincount(x, tensor([0.5, 1, 1])), [0.5, 2.0], weft.float32)
    same(weft.bincount(x, tensor([5, 1, 1])), [5.0, 2.0], weft.float64)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((tensor([-1]),), "^bincount only supports 1-d non-negative integral inputs.$"),
        ((tensor([1.0]),), "^\"bincount_cpu\" not implemented for 'Float'$"),
        ((tensor([1]), None, -1), "^minlength should be >= 0$"),
        ((tensor([1]), tensor([1, 2])), "^weights should be 1-d and have the same length as input$"),
    ],
)
def test_bincount_refuses(arguments, text):
    with pytest.raises(RuntimeError, match=text):
        weft.bincount(*arguments)


def test_of_a_complex_tensor_without_dims_only_the_kind_counts():
    z = weft.full((), 0.5, dtype=weft.complex128)
    assert (weft.ones(2) + z).dtype is weft.complex64
    assert weft.where(weft.tensor([True, False]), weft.ones(2), z).dtype is weft.complex64
    assert (weft.ones(2, dtype=weft.float64) + z).dtype is weft.complex128
    assert (weft.ones(2, dtype=weft.int32) + z).dtype is weft.complex128


def test_what_can_be_indexed_is_a_sequence():
    assert weft.tensor(bytearray(b"ab")).tolist() == [97, 98]


def test_an_imaginary_number_is_true():
    assert weft.zeros(2, dtype=weft.bool).copy_(tensor(1j)).tolist() == [True, True]
    assert weft.zeros(2, dtype=weft.bool).copy_(tensor([0j, 2])).tolist() == [False, True]
