"""Views as copies, copies with a part written, and arbitrary strides."""

from __future__ import annotations

import pytest

import weft

X = weft.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("alias", ()),
        ("detach", ()),
        ("diagonal", ()),
        ("expand", ((2, 3),)),
        ("permute", ((1, 0),)),
        ("select", (0, 1)),
        ("squeeze", ()),
        ("t", ()),
        ("transpose", (0, 1)),
        ("unfold", (1, 2, 1)),
        ("unsqueeze", (0,)),
        ("view", ((3, 2),)),
        ("narrow", (1, 0, 2)),
    ],
)
def test_copies_of_views_share_nothing(name, arguments):
    base = X.clone()
    copied = getattr(weft, f"{name}_copy")(base, *arguments)
    wanted = base.clone() if name == "alias" else getattr(base, name)(*arguments)
    assert weft.equal(copied, wanted)
    copied.zero_()
    assert weft.equal(base, X)


def test_copies_of_several_views():
    assert [part.tolist() for part in weft.unbind_copy(X)] == X.tolist()
    assert [part.shape for part in weft.split_copy(X, 2, 1)] == [(2, 2), (2, 1)]
    assert [part.shape for part in weft.split_with_sizes_copy(X, (1, 2), 1)] == [(2, 1), (2, 2)]
    assert weft.slice_copy(X, 1, 0, 3, 2).tolist() == [[0, 2], [3, 5]]
    assert X.narrow_copy(0, 1, 1).tolist() == [[3, 4, 5]]
    assert [part.shape for part in X.unsafe_chunk(2)] == [part.shape for part in X.unsafe_split(1)] == [(1, 3)] * 2


def test_parts_are_written_in_a_copy():
    x, src = X.clone().requires_grad_(), weft.zeros(3, requires_grad=True)
    found = weft.select_scatter(x, src, 0, 1)
    assert found.tolist() == [[0, 1, 2], [0, 0, 0]]
    found.sum().backward()
    assert (x.grad.tolist(), src.grad.tolist()) == ([[1] * 3, [0] * 3], [1] * 3)
    assert X.slice_scatter(weft.zeros(2, 2), dim=1, start=0, step=2).tolist() == [[0, 1, 0], [0, 4, 0]]
    assert X.diagonal_scatter(weft.ones(2) * 9, offset=1).tolist() == [[0, 9, 2], [3, 4, 9]]
    with pytest.raises(
        RuntimeError, match=r"^expected src to have a size equal to the slice of self\. src size = \[2\]"
    ):
        weft.select_scatter(X, weft.ones(2), 0, 1)


def test_strides_pick_elements_of_the_base():
    base = X.clone().requires_grad_()
    windows = base.as_strided((2, 2), (1, 1), 1)
    assert windows.tolist() == [[1, 2], [2, 3]]
    windows.sum().backward()
    assert base.grad.tolist() == [[0, 1, 2], [1, 0, 0]]
    assert X[1:].as_strided((2,), (2,)).tolist() == [3, 5]
    assert X.t().as_strided((3,), (1,)).tolist() == [0, 1, 2]
    assert not base.detach().as_strided((2,), (1,)).requires_grad
    assert X.as_strided((), ()).item() == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (((2,), (1, 1)), "mismatch in length of strides and shape"),
        (((2,), (-1,)), r"as_strided: Negative strides are not supported at the moment, got strides: \[-1\]"),
        (
            ((3, 3), (3, 1)),
            r"setStorage: sizes \[3, 3\], strides \[3, 1\], storage offset 0, and itemsize 4 requiring a "
            "storage size of 36 are out of bounds for storage of size 24",
        ),
    ],
)
def test_strides_that_do_not_fit(arguments, text):
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        X.as_strided(*arguments)


@pytest.mark.parametrize(
    ("reduce", "wanted"),
    [
        ("prod", [[0, 4, 10], [0, 0, 0]]),
        ("amax", [[3, 4, 5], [3, 4, 5]]),
        ("amin", [[0, 1, 2], [0, 0, 0]]),
    ],
)
def test_slices_are_combined(reduce, wanted):
    index, source = weft.tensor([0, 1]), weft.tensor([[3.0, 4, 5], [0, 0, 0]])
    assert weft.index_reduce(X, 0, index, source, reduce).tolist() == wanted
    y = X.clone()
    assert y.index_reduce_(0, index, source, reduce) is y
    assert y.tolist() == wanted


def test_slices_that_are_not_combined():
    with pytest.raises(RuntimeError, match=r"Expected reduce to be one of prod, mean, amax or amin but got sum\.$"):
        weft.index_reduce(X, 0, weft.tensor([0, 1]), X, "sum")
    with pytest.raises(RuntimeError, match=r"Number of indices \(1\) should be equal to source\.size\(dim\): \(2\), f"):
        weft.index_reduce(X, 0, weft.tensor([0]), X, "prod")


def test_empty_strided():
    made = weft.empty_strided((2, 3), (1, 2), dtype=weft.float64)
    assert made.stride() == (1, 2)
    assert made.dtype is weft.float64
    assert made.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert weft.empty_strided((0, 2), (1, 2)).shape == (0, 2)


def test_as_subclass_shares_elements():
    class Mine(weft.Tensor):
        pass

    x = weft.ones(2)
    y = x.as_subclass(Mine)
    assert type(y) is Mine
    y.zero_()
    assert x.tolist() == [0, 0]


def test_layouts_are_given_by_the_order_of_dims():
    x = weft.empty_permuted((2, 3, 4), (0, 2, 1), dtype=weft.int32)
    assert (x.shape, x.stride(), x.dtype) == ((2, 3, 4), (12, 1, 3), weft.int32)
    assert x.new_empty_strided((2, 2), (1, 2)).stride() == (1, 2)
    for order, text in (
        ((0, 0, 1), "Duplicate dim not allowed"),
        ((0,), "does not match the length"),
        ((0, 1, 3), "3"),
    ):
        with pytest.raises(RuntimeError, match=text):
            weft.empty_permuted((2, 3, 4), order)
