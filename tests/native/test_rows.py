import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
from tests.native import formulas
from tests.native.formulas import close, draw
from weft._base import config
from weft.errors import DTypeError, ShapeError
from weft.nn import functional
from weft.ops._kernels import rows

widths = st.sampled_from([1, 2, 7, 8, 15, 16, 17, 33, 64, 100, 300])


def check(results, expected, eps=3e-5):
    for result, value in zip(results, expected, strict=True):
        close(result, value, eps)


def check_norm(*shape):
    x, weight, bias = 3 * draw(1, *shape) + 5, draw(2, shape[-1]), draw(3, shape[-1])
    results = rows.layer_norm(x, weight, bias, 1e-3)
    expected = _, mean, rstd = formulas.layer_norm(x.astype(np.float64), weight, bias, 1e-3)
    check(results, expected)
    g = draw(4, *shape)
    grads = formulas.layer_norm_backward(g.astype(np.float64), x, mean, rstd, weight)
    check(rows.layer_norm_backward(g, x, *results[1:], weight), grads, 2e-4)


def check_cross_entropy(count, width):
    x, g = 5 * draw(1, count, width), draw(2, count)
    classes = np.random.default_rng(3).integers(-1, width, count)
    results = rows.cross_entropy(x, classes)
    expected = formulas.cross_entropy(x.astype(np.float64), classes)
    check(results, expected)
    grads = formulas.cross_entropy_backward(g, x.astype(np.float64), classes, expected[1])
    close(rows.cross_entropy_backward(g, x, classes, results[1]), grads)


@given(st.integers(0, 70), widths)
def test_rows(count, width):
    check_norm(count, width)
    check_cross_entropy(count, width)


@pytest.mark.parametrize("shape", [(2048, 128), (3, 700), (2, 20000)])
def test_shapes_of_training(shape):
    check_norm(*shape)
    check_cross_entropy(*shape)


def test_several_dims():
    x, weight = draw(1, 3, 2, 4, 5), draw(2, 4, 5)
    y, mean, rstd = rows.layer_norm(x, weight, weight, 1e-5)
    assert mean.shape == rstd.shape == (3, 2, 1, 1)
    flat = weight.reshape(-1)
    close(y.reshape(3, 2, 20), formulas.layer_norm(x.reshape(3, 2, 20).astype(np.float64), flat, flat, 1e-5)[0])


def test_large_numbers_that_are_equal():
    """Neither a mean nor a maximum may lose the digits in which they differ."""
    x = np.full((16, 1051), 3.1, np.float32)
    y, *_ = rows.layer_norm(x, np.ones(1051, np.float32), np.zeros(1051, np.float32), 1e-5)
    assert (y == 0).all()
    classes = np.arange(16)
    for size in (1e4, 1e20):
        losses, norms = rows.cross_entropy(np.full_like(x, size), classes)
        close(losses, np.full(16, np.log(1051)))
        g = rows.cross_entropy_backward(np.ones(16, np.float32), np.full_like(x, size), classes, norms)
        close(g, 1 / 1051 - (np.arange(1051) == classes[:, None]))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_row(special):
    x = draw(1, 40, 19)
    x[5, 18] = x[7] = special
    y, *_ = rows.layer_norm(x, np.ones(19, np.float32), np.zeros(19, np.float32), 1e-5)
    assert np.isnan(y[5]).all()
    assert np.isfinite(np.delete(y, (5, 7), 0)).all()
    classes = np.arange(40) % 19
    with np.errstate(invalid="ignore"):
        expected = formulas.cross_entropy(x.astype(np.float64), classes)
        losses, norms = rows.cross_entropy(x, classes)
        close(losses, expected[0])
        grads = formulas.cross_entropy_backward(np.ones(40), x.astype(np.float64), classes, expected[1])
    close(rows.cross_entropy_backward(np.ones(40, np.float32), x, classes, norms), grads)


def _normalised(affine, x, w, b):
    y = functional.layer_norm(x, (6, 50), *((w, b) if affine else ()))
    return [y, *torch.autograd.grad(y.sin().sum(), [x, w, b] if affine else [x])]


def _lost(weighted, reduction, x, classes, weight):
    loss = functional.cross_entropy(x, classes, weight if weighted else None, ignore_index=3, reduction=reduction)
    return [loss, torch.autograd.grad(loss.square().sum(), x)[0]]


def _images():
    return [torch.randn(*sizes, requires_grad=True) for sizes in ((70, 6, 50), (6, 50), (6, 50))]


def _logits():
    classes = torch.randint(0, 300, (70,))
    classes[::7] = 3
    return torch.randn(70, 300, requires_grad=True), classes, torch.rand(300)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("run", "options", "inputs"),
    [
        (_normalised, (True,), _images),
        (_normalised, (False,), _images),
        (_lost, (False, "mean"), _logits),
        (_lost, (True, "mean"), _logits),
        (_lost, (True, "none"), _logits),
    ],
)
def test_the_rows_of_the_table_take_them(run, options, inputs, monkeypatch):
    arrays = inputs()
    results = [y.detach().numpy() for y in torch.compile(run)(*options, *arrays)]
    assert torch.explain()[-1].native
    monkeypatch.setattr(config, "NATIVE", False)
    check(results, [y.detach().numpy() for y in torch.compile(run)(*options, *arrays)])


@pytest.mark.compiled
def test_no_row_has_a_class():
    x = torch.randn(100, 200, requires_grad=True)
    loss = functional.cross_entropy(x, torch.full((100,), -100))
    loss.backward()
    assert loss.isnan().item()
    assert not x.grad.any()


def test_refused():
    x = draw(1, 3, 4)
    with pytest.raises(ShapeError, match=r"expected rows of shape \(3,\) in the last dims, got \(3, 4\)"):
        rows.layer_norm(x, draw(2, 3), draw(2, 3), 1e-5)
    with pytest.raises(ShapeError, match=r"expected \(rows, classes\), got \(4,\)"):
        rows.cross_entropy(x[0], np.zeros(4, np.int64))
    with pytest.raises(DTypeError, match="classes are int64, got int32"):
        rows.cross_entropy(x, np.zeros(3, np.int32))
