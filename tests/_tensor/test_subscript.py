"""`x[index]` and `x[index] = values`, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft


def both():
    """The same numbers as a tensor and as an array."""
    host = np.arange(24.0).reshape(2, 3, 4)
    return weft.tensor(host), host


MASK = np.arange(24).reshape(2, 3, 4) % 5 == 0
INDICES = [
    ("number", 1),
    ("from the end", -1),
    ("numbers", (0, 1, 2)),
    ("slice", slice(1, None)),
    ("step", (slice(None), slice(None, None, 2))),
    ("empty slice", (slice(1, 1),)),
    ("beyond", (slice(0, 100), slice(-100, 2))),
    ("ellipsis", (..., 1)),
    ("ellipsis alone", ...),
    ("nothing", ()),
    ("None", (None, 1, None, ..., None)),
    ("list", [0, 1, 0]),
    ("list of NumPy's numbers", list(np.array([0, 1, 0]))),
    ("list with one of NumPy's numbers", [1, np.int32(0)]),
    ("list and slice", (slice(None), [2, 0], slice(1, 3))),
    ("negative list", (0, [-1, -3])),
    ("two lists", (slice(None), [0, 2], [1, 3])),
    ("lists apart", ([0, 1], slice(None), [1, 3])),
    ("lists broadcast", ([[0], [1]], [0, 2])),
    ("two dims", (np.array([[0, 1], [1, 0]]),)),
    ("mask", MASK),
    ("mask of a dim", (slice(None), np.array([True, False, True]))),
    ("mask of two dims", MASK[:, :, 0]),
    ("mask and list", (np.array([True, True]), [0, 2])),
    ("empty", (np.zeros(0, int),)),
    ("bool", True),
    ("bool and None", (None, False)),
]
CASES = pytest.mark.parametrize("index", [row[1] for row in INDICES], ids=[row[0] for row in INDICES])


def as_weft(index):
    """An index in which arrays are tensors."""
    if isinstance(index, tuple):
        return tuple(as_weft(i) for i in index)
    return weft.tensor(index) if isinstance(index, np.ndarray) else index


@CASES
def test_reading(index):
    x, host = both()
    expected = host[index]
    found = x[as_weft(index)]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@CASES
@pytest.mark.parametrize("kind", ["number", "broadcast", "whole"])
def test_assigning(index, kind):
    x, host = both()
    alias = x.view(24)
    shape = host[index].shape[-1 if kind == "broadcast" else None :]
    values = -7.0 if kind == "number" else -1 - np.arange(float(np.prod(shape))).reshape(shape)
    host[index] = values
    x[as_weft(index)] = values if kind == "number" else weft.tensor(values)
    np.testing.assert_array_equal(x, host)
    np.testing.assert_array_equal(alias, host.reshape(24))


def test_where_pytorch_is_not_numpy():
    x, host = both()
    np.testing.assert_array_equal(x[0, :, [1, 3]], host[0][:, [1, 3]])  # the number goes first
    np.testing.assert_array_equal(x[..., 0, ...], host[..., 0])  # a second `...` is `:`


def test_values_take_the_type_of_the_tensor():
    x = weft.tensor([1, 2, 3])
    x[0] = 7.9
    x[weft.tensor([False, True, False])] = weft.tensor([4.9])
    x[[2]] = True
    assert x.tolist() == [7, 4, 1]
    assert x.dtype is weft.int64


def test_sequences_and_arrays_are_assigned():
    x = weft.zeros(2, 2)
    x[0] = [1, 2]
    x[1] = np.array([3.0, 4.0])
    assert x.tolist() == [[1, 2], [3, 4]]


def test_augmented_assignment_writes_through_the_index():
    x, host = both()
    x[:, 1] += 5
    host[:, 1] += 5
    x[[0, 1], 2] *= 2
    host[[0, 1], 2] *= 2
    np.testing.assert_array_equal(x, host)


def test_gradients_of_reading():
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[1:] * 2).sum().backward()
    x[weft.tensor([0, 0, 2])].sum().backward()
    x[x > 2].sum().backward()
    assert x.grad.tolist() == [2, 2, 4]


def test_gradients_of_assigning():
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = weft.tensor([5.0], requires_grad=True)
    y = x * 1
    y[0] = v[0]
    y[weft.tensor([1])] = v * 2
    (y * y).sum().backward()
    assert x.grad.tolist() == [0, 0, 6]
    assert v.grad.tolist() == [2 * 5 + 2 * 2 * 10]


def test_a_new_start_of_a_slice_of_one_element_compiles_nothing(compilations):
    x, _ = both()
    (x[0] * 2).tolist()
    assert len(compilations()) == 1
    (x[1] * 2).tolist()
    assert not compilations()


WRONG = [
    ("too many", (0, 0, 0, 0), IndexError, r"^too many indices for tensor of dimension 3$"),
    ("out of range", 2, IndexError, r"^index 2 is out of bounds for dimension 0 with size 2$"),
    (
        "mask's shape",
        np.array([True] * 3),
        IndexError,
        r"^The shape of the mask \[3\] at index 0 does not match the shape",
    ),
    (
        "lists do not broadcast",
        ([0, 1], [0, 1, 2]),
        IndexError,
        r"^shape mismatch: indexing tensors could not be broadca",
    ),
    ("backwards", slice(None, None, -1), ValueError, r"step must be greater than zero"),
    ("float", 1.5, IndexError, r"^only integers, slices \(`:`\), ellipsis \(`\.\.\.`\), None and long or byte"),
    ("text", "a", TypeError, r"invalid data type 'str'"),
]


@pytest.mark.parametrize(("index", "kind", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_no_index(index, kind, text):
    x, _ = both()
    with pytest.raises(kind, match=text):
        x[as_weft(index)]
    with pytest.raises(kind, match=text):
        x[as_weft(index)] = 1.0


def test_values_must_fit():
    x, _ = both()
    with pytest.raises(
        RuntimeError, match=r"shape mismatch: value tensor of shape \[5\] cannot be broadcast to indexing re"
    ):
        x[[0, 1]] = weft.ones(5, dtype=weft.float64)
    with pytest.raises(RuntimeError) as error:
        x[0] = weft.ones(5, dtype=weft.float64)
    assert str(error.value) == (
        "The expanded size of the tensor (4) must match the existing size (5) at non-singleton dimension 1.  "
        "Target sizes: [3, 4].  Tensor sizes: [5]"
    )
    assert not hasattr(error.value, "__notes__")
    with pytest.raises(TypeError, match=r"^can't assign a str to a torch.DoubleTensor$"):
        x[0] = "a"


def test_a_dim_without_elements_has_none_to_name():
    with pytest.raises(IndexError, match=r"^index is out of bounds for dimension with size 0$"):
        weft.ones(2, 0)[:, weft.tensor([0])]
    with pytest.raises(IndexError, match=r"^index 0 is out of bounds for dimension 1 with size 0$"):
        weft.ones(2, 0)[:, weft.tensor(0)]
    assert weft.ones(2, 0)[:, weft.zeros(0, dtype=weft.int64)].shape == (2, 0)


def test_complex_numbers_are_assigned_where_they_fit():
    x, mask = weft.zeros(3), weft.tensor([False, False, False])
    x[0] = 2 + 0j
    mask[weft.tensor([1])] = 1j
    mask[:1].fill_(2j)
    assert x.tolist() == [2, 0, 0]
    assert mask.tolist() == [True, True, False]
    for index in (0, slice(0, 1), weft.tensor([0]), weft.tensor([True, False, False])):
        with pytest.raises(RuntimeError, match=r"^value cannot be converted to type float without overflow"):
            x[index] = 1j


def test_masks_of_bytes_are_warned_of():
    x, mask = weft.arange(3), weft.tensor([1, 0, 1], dtype=weft.uint8)
    with pytest.warns(UserWarning, match=r"^indexing with dtype torch.uint8 is now deprecated"):
        assert x[mask].tolist() == [0, 2]


def test_a_mask_is_filled_with_one_element_of_any_type():
    x, mask = weft.arange(3), weft.tensor([True, False, True])
    assert x.index_put_((mask,), weft.tensor(4.5)).tolist() == [4, 1, 4]
    flags = weft.tensor([True, False])
    flags[flags] = False
    assert flags.tolist() == [False, False]


def test_truth_itself_selects_all_or_nothing():
    x = weft.zeros(2, dtype=weft.int64)
    x[False] = weft.ones(5)
    assert x.tolist() == [0, 0]
    x[True] = weft.tensor([1.5, 2.5])
    assert x.tolist() == [1, 2]


# --- devices ---


def test_indices_on_the_cpu_index_tensors_of_any_device():
    x = weft.arange(12.0, device="xla").reshape(3, 4).requires_grad_()
    rows, mask = weft.tensor([2, 0]), weft.tensor([True, False, True])
    read = x[rows, rows]
    assert read.device == x.device
    assert read.tolist() == [10, 0]
    assert x[:, rows].tolist() == [[2, 0], [6, 4], [10, 8]]
    assert x[mask].tolist() == x[mask.to("xla")].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert x[weft.tensor(1)].tolist() == [4, 5, 6, 7]
    read.sum().backward()
    assert x.grad.device == x.device
    assert x.grad.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert weft.zeros(3, 4, device="meta")[rows].shape == (2, 4)
    assert weft.arange(3)[weft.tensor(1, device="xla")].device.type == "cpu"  # as the number that it is
    with pytest.raises(RuntimeError, match="same device"):
        weft.zeros(3)[rows.to("xla")]


def test_writes_by_indices_on_the_cpu():
    x = weft.zeros(3, 2, device="xla")
    x[weft.tensor([0])] = 1
    x[weft.tensor([False, True, False])] = weft.tensor(2.0)
    assert x.tolist() == [[1, 1], [2, 2], [0, 0]]
    x[x.cpu() == 2] = 3
    x[2:] = weft.tensor([4.0, 5.0])  # a copy, which may come from any device
    assert x.tolist() == [[1, 1], [3, 3], [4, 5]]
    x.index_put_((weft.tensor([0, 1]), weft.tensor([1, 1])), weft.tensor(6.0), accumulate=True)
    assert x.tolist() == [[1, 7], [3, 9], [4, 5]]
    with pytest.raises(RuntimeError, match="same device"):
        x[weft.tensor([0, 1])] = weft.ones(2)
