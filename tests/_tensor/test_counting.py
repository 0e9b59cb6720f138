"""Membership, histograms, differences along a grid, and positions, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft

RNG = np.random.default_rng(11)
X = RNG.standard_normal((4, 5))


def test_membership():
    x = weft.tensor([[1.0, 2.0], [float("nan"), 4.0]])
    tested = weft.tensor([4, 1, 1])
    assert weft.isin(x, tested).tolist() == [[True, False], [False, True]]
    assert weft.isin(x, tested, invert=True).tolist() == [[False, True], [True, False]]
    assert weft.isin(x, 2).tolist() == [[False, True], [False, False]]
    assert weft.isin(4, tested).item() is True
    assert not weft.isin(x, weft.ones(0)).any()
    with pytest.raises(RuntimeError, match=r"^Unsupported input type encountered for isin\(\): Bool$"):
        weft.isin(x > 1, x > 1)


def test_places_of_what_is_not_zero():
    x = weft.tensor([[0, 3], [5, 7]])
    assert x.nonzero_static(size=2).tolist() == [[0, 1], [1, 0]]
    assert weft.nonzero_static(x, size=4, fill_value=9).tolist() == [[0, 1], [1, 0], [1, 1], [9, 9]]
    with pytest.raises(RuntimeError, match=r"^nonzero_static: 'size' must be an non-negative integer$"):
        x.nonzero_static(size=-1)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("options", [{}, {"range": (-1.0, 0.5)}])
def test_histograms(options, density):
    found = weft.histogram(weft.tensor(X), 4, density=density, **options)
    counts, edges = np.histogram(X, 4, density=density, **options)
    np.testing.assert_allclose(found.hist.numpy(), counts)
    np.testing.assert_allclose(found.bin_edges.numpy(), edges)


def test_histograms_with_weights_and_edges():
    weights, edges = np.abs(X), np.array([-1.0, 0.0, 2.0])
    found = weft.histogram(weft.tensor(X), weft.tensor(edges), weight=weft.tensor(weights))
    np.testing.assert_allclose(found.hist.numpy(), np.histogram(X, edges, weights=weights)[0])
    assert weft.histogram(weft.full((3,), 2.0), 2).bin_edges.tolist() == [1.5, 2.0, 2.5]


def test_histograms_that_are_refused():
    with pytest.raises(RuntimeError, match=r"^torch\.histogram\(\): bins must be > 0, but got 0 for dimension 0$"):
        weft.histogram(weft.ones(2), 0)
    with pytest.raises(RuntimeError, match=r"min should not exceed max, but got min 3 max 1 for dimension 0$"):
        weft.histogram(weft.ones(2), 2, range=(3.0, 1.0))
    with pytest.raises(RuntimeError, match=r"got input with shape \[2, 1\] and weight with shape \[3\]$"):
        weft.histogram(weft.ones(2), 2, weight=weft.ones(3))
    with pytest.raises(NotImplementedError, match=r"^\"histogramdd\" not implemented for 'Long'$"):
        weft.histogram(weft.tensor([1, 2]), weft.tensor([1, 2]))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("spacing", [0.5, np.array([0.0, 1.0, 1.5, 4.0])])
def test_slopes(order, spacing):
    given = weft.tensor(spacing) if isinstance(spacing, np.ndarray) else spacing
    (found,) = weft.gradient(weft.tensor(X), spacing=(given,), dim=0, edge_order=order)
    np.testing.assert_allclose(found.numpy(), np.gradient(X, spacing, axis=0, edge_order=order))


def test_slopes_along_every_dim():
    for found, wanted in zip(weft.gradient(weft.tensor(X)), np.gradient(X), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted)
    assert weft.gradient(weft.tensor(1.0)) == ()


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((2, 2), {"edge_order": 3}, r"torch\.gradient only supports edge_order=1 and edge_order=2\."),
        ((2, 2), {"edge_order": 2}, r"torch\.gradient expected each dimension size to be at least edge_order\+1"),
        ((2, 2), {"dim": (0, 0)}, r"dim 0 appears multiple times in the list of dims"),
        (
            (2, 2),
            {"spacing": (1.0,)},
            r"torch\.gradient expected spacing to be unspecified, a scalar or a list of length "
            r"equal to 'self\.dim\(\) = 2', since dim argument was not given, but got a spacing argument of length 1",
        ),
    ],
)
def test_slopes_that_are_refused(shape, options, text):
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        weft.gradient(weft.ones(shape), **options)


def test_positions_from_flat_indices():
    rows, columns = weft.unravel_index(weft.tensor([[5, 7]]), (2, 3))
    assert (rows.tolist(), columns.tolist()) == ([[1, 0]], [[2, 1]])
    with pytest.raises(TypeError, match=r"^expected 'indices' to be integer dtype, but got torch\.float32$"):
        weft.unravel_index(weft.ones(1), (2,))
    with pytest.raises(ValueError, match=r"^'shape' cannot have negative values, but got \(2, -3\)$"):
        weft.unravel_index(weft.tensor([1]), (2, -3))


def test_ranges_include_their_end():
    with pytest.warns(UserWarning, match=r"^torch\.range is deprecated"):
        found = weft.range(0, 5, 2.5)
    assert found.tolist() == [0, 2.5, 5]
    assert found.dtype is weft.float32
    with pytest.warns(UserWarning, match="deprecated"), pytest.raises(RuntimeError, match=r"^step must be nonzero$"):
        weft.range(0, 1, 0)
    with (
        pytest.warns(UserWarning, match="deprecated"),
        pytest.raises(RuntimeError, match=r"inconsistent with step sign$"),
    ):
        weft.range(5, 0)


def test_incomplete_gamma_functions():
    a, x = weft.tensor([2.0, 1.0], requires_grad=True), weft.tensor([1.0, 3.0], requires_grad=True)
    lower = weft.igamma(a, x)
    np.testing.assert_allclose(lower.detach().numpy(), [1 - 2 * np.exp(-1), 1 - np.exp(-3)], rtol=1e-6)
    np.testing.assert_allclose((lower + weft.igammac(a, x)).detach().numpy(), 1, rtol=1e-6)
    lower.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [np.exp(-1), np.exp(-3)], rtol=1e-6)
    y = weft.tensor([1.0])
    assert y.igamma_(weft.tensor([3.0])) is y


def test_ranges_of_elements_that_are_not_finite_are_refused():
    for bad in (float("inf"), float("nan")):
        with pytest.raises(RuntimeError, match=r"torch\.histc: the range of the elements is not finite"):
            weft.histc(weft.tensor([1.0, bad]))
        assert weft.histc(weft.tensor([1.0, bad]), 2, 0, 2).tolist() == [0, 1]


def test_more_dims_than_there_can_be_are_refused():
    assert weft.ones([1] * 64).sum().item() == 1
    with pytest.raises(RuntimeError, match=r"^only tensors with up to 64 dims are supported$"):
        weft.ones([1] * 65)


def test_numbers_that_scale_keep_their_types():
    x = weft.ones(2)
    assert weft.add(x, x, alpha=1.0).tolist() == [2, 2]
    assert weft.addmm(x.long().reshape(1, 2), weft.ones(1, 1).long(), weft.ones(1, 2).long(), alpha=1.0).tolist() == [
        [2, 2]
    ]
    assert weft.ones(2, dtype=weft.bool).add(weft.ones(2, dtype=weft.bool), alpha=True).tolist() == [True, True]


@pytest.mark.parametrize("density", [False, True])
def test_histograms_of_points(density):
    points, weight = RNG.standard_normal((50, 3)), RNG.uniform(size=50)
    edges = [np.array([-1.0, 0.0, 0.5, 2.0]), np.array([-2.0, 2.0]), np.array([-1.0, 0.0, 1.0])]
    expected, _ = np.histogramdd(points, edges, weights=weight, density=density)
    hist, given = weft.histogramdd(
        weft.tensor(points), [weft.tensor(e) for e in edges], weight=weft.tensor(weight), density=density
    )
    np.testing.assert_allclose(hist.numpy(), expected)
    assert [e.tolist() for e in given] == [e.tolist() for e in edges]
    expected, bounds = np.histogramdd(points, [2, 3, 1], range=[(-1, 1), (0, 2), (-3, 3)])
    result = weft.histogramdd(weft.tensor(points), [2, 3, 1], range=[-1.0, 1.0, 0.0, 2.0, -3.0, 3.0])
    np.testing.assert_array_equal(result.hist.numpy(), expected)
    np.testing.assert_allclose(result.bin_edges[1].numpy(), bounds[1])
    assert weft.histogramdd(weft.tensor(points), 4).hist.sum().item() == 50


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((weft.ones(3), [2]), "input tensor should have at least 2 dimensions"),
        ((weft.ones(3, 2), [2]), "The size of bins must be equal to the innermost dimension"),
        ((weft.ones(3, 2), [2, 0]), "bins must be > 0, but got 0 for dimension 1"),
    ],
)
def test_histograms_of_points_are_refused(arguments, text):
    with pytest.raises(RuntimeError, match=text):
        weft.histogramdd(*arguments)


def test_hashes_are_bits_combined_by_exclusive_or():
    x = np.array([[1.5, 2.5], [-3.0, 0.0]])
    bits = np.bitwise_xor.reduce(x.view(np.uint64), axis=0)
    assert weft.hash_tensor(weft.tensor(x), 0).tolist() == bits.tolist()
    assert weft.hash_tensor(weft.tensor(x).float(), 0, keepdim=True).tolist() == [bits.tolist()]
    assert weft.hash_tensor(weft.tensor([3, -1], dtype=weft.int8)).item() == 2**64 - 4
    with pytest.raises(RuntimeError, match="Unknown hash_tensor mode: 1"):
        weft.hash_tensor(weft.tensor(x), mode=1)


def test_boundaries_and_values_may_have_different_types():
    floats, ints = weft.tensor([1.5, 2.5]), weft.tensor([1, 2, 3])
    assert weft.searchsorted(ints, floats).tolist() == weft.bucketize(floats, ints).tolist() == [1, 2]
    assert weft.searchsorted(floats, ints.int()).tolist() == [0, 1, 2]
    assert weft.searchsorted(floats.double(), floats.half(), right=True).tolist() == [1, 2]


def test_a_histogram_has_a_hundred_bins_by_default():
    counts, edges = weft.histogram(weft.tensor(X))
    expected = np.histogram(X, 100)
    assert counts.tolist() == expected[0].tolist()
    np.testing.assert_allclose(edges.numpy(), expected[1])
