import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.native import formulas
from tests.native.formulas import close, draw
from weft import nn
from weft._base import config
from weft.errors import ShapeError
from weft.ops._kernels import channels


def check(*shape):
    close(channels.channel_sums(draw(5, *shape)), draw(5, *shape).astype(np.float64).sum((0, *range(2, len(shape)))))
    x, weight, bias = 3 * draw(1, *shape) + 5, draw(2, shape[1]), draw(3, shape[1])
    y, mean, variance, rstd = channels.batch_norm(x, weight, bias, 1e-3)
    expected = formulas.batch_norm(x.astype(np.float64), weight, bias, 1e-3)
    for result, value in zip((y, mean, variance, rstd), expected, strict=True):
        close(result, value)
    g = draw(4, *shape)
    results = channels.batch_norm_backward(g, x, mean, rstd, weight)
    for result, value in zip(results, formulas.batch_norm_backward(g, x.astype(np.float64), weight, 1e-3), strict=True):
        close(result, value, eps=3e-4)


@given(st.integers(2, 6), st.integers(1, 70), st.lists(st.integers(1, 9), max_size=3))
def test_sums_and_batch_norm(batch, width, spatial):
    check(batch, width, *spatial)


@pytest.mark.parametrize("shape", [(32, 16, 32, 32), (2, 700, 3, 5), (1, 33, 2000), (17, 5)])
def test_shapes_of_training(shape):
    check(*shape)


def test_channels_of_equal_numbers():
    one = np.ones(3, np.float32)
    y, mean, variance, _ = channels.batch_norm(np.full((5, 3, 7, 11), 3.1, np.float32), one, 0 * one, 1e-5)
    assert (np.asarray(y) == 0).all()
    assert (np.asarray(variance) == 0).all()
    assert (np.asarray(mean) == np.float32(3.1)).all()


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_values_stay_in_their_channel(special):
    x = draw(1, 3, 20, 4, 4)
    x[1, 17, 2, 2] = special
    y = np.asarray(channels.batch_norm(x, np.ones(20, np.float32), np.zeros(20, np.float32), 1e-5)[0])
    assert np.isnan(y[:, 17]).any()
    assert np.isfinite(np.delete(y, 17, axis=1)).all()


@pytest.mark.compiled
@pytest.mark.parametrize("affine", [True, False])
def test_modules_train_as_without_it(affine, monkeypatch):
    def trained():
        weft.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16, affine=affine), nn.ReLU(), nn.Conv2d(16, 4, 3))
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        @weft.compile
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(weft.randn(8, 3, 12, 12)).item() for _ in range(4)]
        return losses, {name: tensor.numpy() for name, tensor in model.state_dict().items()}

    losses, state = trained()
    assert weft.explain()[-1].native
    monkeypatch.setattr(config, "NATIVE", False)
    expected_losses, expected_state = trained()
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name, array in expected_state.items():
        np.testing.assert_allclose(state[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_mistakes():
    x = draw(1, 2, 3, 4)
    with pytest.raises(ShapeError, match=r"weight has shape \(4,\), expected \(3,\)"):
        channels.batch_norm(x, draw(2, 4), draw(3, 3), 1e-5)
    for unfit in (x[0, :, 0],):
        with pytest.raises(ShapeError, match=r"expected \(batch, channels, ...\), got \("):
            channels.batch_norm(unfit, draw(2, 3), draw(3, 3), 1e-5)


@pytest.mark.compiled
def test_empty_batches_are_left_to_xla():
    model = weft.compile(nn.BatchNorm2d(16))
    assert all(model(weft.zeros(0, 16, 4, 4)).shape == (0, 16, 4, 4) for _ in range(3))
