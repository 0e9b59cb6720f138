import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native import formulas
from tests.native.formulas import close, draw
from weft.errors import ShapeError
from weft.ops._kernels import recurrent


@given(
    st.integers(0, 4),
    st.sampled_from([0, 1, 2, 15, 16, 17, 40]),
    st.sampled_from([0, 1, 3, 8, 16, 17, 33, 64, 100]),
    st.booleans(),
)
def test_lstm(steps, batch, hidden, reverse):
    z, wh = draw(1, steps, batch, 4 * hidden), draw(2, 4 * hidden, hidden) / max(1, hidden) ** 0.5
    h, c = draw(3, batch, hidden), draw(4, batch, hidden)
    wide = [x.astype(np.float64) for x in (z, h, c, wh)]
    ys, cells, gates = recurrent.lstm(z, h, c, wh.astype(np.float32), reverse)
    expected = formulas.lstm(*wide, reverse)
    for result, value in zip((ys, cells, gates), expected, strict=True):
        close(result, value)
    grads = draw(5, steps, batch, hidden), draw(6, batch, hidden), draw(7, batch, hidden)
    results = recurrent.lstm_backward(*grads, gates, cells, c, wh.astype(np.float32), reverse)
    wide_grads = [x.astype(np.float64) for x in grads]
    expected = formulas.lstm_backward(*wide_grads, expected[2], expected[1], wide[2], wide[3], reverse)
    for result, value in zip(results, expected, strict=True):
        close(result, value, 1e-4)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_sequence(special):
    z, h, wh = draw(1, 3, 4, 20), draw(2, 4, 5), draw(3, 20, 5)
    z[1, 2, 7] = special
    results = recurrent.lstm(z, h, h, wh)
    expected = formulas.lstm(*(x.astype(np.float64) for x in (z, h, h, wh)), False)
    for result, value in zip(results, expected, strict=True):
        close(result, value)


def test_saturated_gates():
    z, h, wh = 100 * draw(1, 2, 3, 68), draw(2, 3, 17), draw(3, 68, 17)
    for result, value in zip(recurrent.lstm(z, h, h, wh), formulas.lstm(z, h, h, wh, False), strict=True):
        close(result, value)


def test_refused():
    with pytest.raises(ShapeError, match=r"wh has shape \(20, 4\), expected \(20, 5\)"):
        recurrent.lstm(draw(1, 3, 4, 20), draw(2, 4, 5), draw(2, 4, 5), draw(3, 20, 4))
