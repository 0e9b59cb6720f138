import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
from tests.native import formulas
from tests.native.formulas import close, draw
from weft._lazy import infer
from weft.errors import ShapeError
from weft.ops._kernels import recurrent

sizes = st.tuples(
    st.integers(0, 4),
    st.sampled_from([0, 1, 2, 15, 16, 17, 40]),
    st.sampled_from([0, 1, 3, 8, 16, 17, 33, 64, 100]),
)
lengths = st.sampled_from([None, "descending", "mixed"])


def wide(*arrays):
    return [x.astype(np.float64) for x in arrays]


def weight(seed, gates, hidden):
    return (draw(seed, gates * hidden, hidden) / max(1, hidden) ** 0.5).astype(np.float32)


def drawn(kind, steps, batch):
    """The lengths for the kernel, and those for the formula."""
    if kind is None:
        return None, np.full(batch, steps)
    found = np.random.default_rng(0).integers(0, steps + 1, batch)
    found = np.sort(found)[::-1].copy() if kind == "descending" else found
    return found, found


def check(results, expected, eps=3e-5):
    for result, value in zip(results, expected, strict=True):
        close(result, value, eps)


@given(sizes, lengths, st.booleans())
def test_lstm(size, kind, reverse):
    steps, batch, hidden = size
    given, found = drawn(kind, steps, batch)
    z, wh = draw(1, steps, batch, 4 * hidden), weight(2, 4, hidden)
    h, c = draw(3, batch, hidden), draw(4, batch, hidden)
    results = recurrent.lstm(z, h, c, wh, given, reverse)
    *_, cells, gates = expected = formulas.lstm(*wide(z, h, c, wh), found, reverse)
    check(results, expected)
    g = draw(5, steps, batch, hidden), draw(6, batch, hidden), draw(7, batch, hidden)
    grads = formulas.lstm_backward(*wide(*g), gates, cells, *wide(c, wh), found, reverse)
    check(recurrent.lstm_backward(*g, results[4], results[3], c, wh, given, reverse), grads, 1e-4)


@given(sizes, lengths, st.booleans())
def test_gru(size, kind, reverse):
    steps, batch, hidden = size
    given, found = drawn(kind, steps, batch)
    z, wh, bias, h = (
        draw(1, steps, batch, 3 * hidden),
        weight(2, 3, hidden),
        draw(3, 3 * hidden),
        draw(4, batch, hidden),
    )
    results = recurrent.gru(z, h, wh, bias, given, reverse)
    *_, gates, inner = expected = formulas.gru(*wide(z, h, wh, bias), found, reverse)
    check(results, expected)
    g, before = (draw(5, steps, batch, hidden), draw(6, batch, hidden)), draw(7, steps, batch, hidden)
    grads = formulas.gru_backward(*wide(*g), gates, inner, *wide(before, wh), found, reverse)
    check(recurrent.gru_backward(*g, *results[2:], before, wh, given, reverse), grads, 1e-4)


@given(sizes, lengths, st.booleans(), st.booleans())
def test_rnn(size, kind, reverse, relu):
    steps, batch, hidden = size
    given, found = drawn(kind, steps, batch)
    z, wh, h = draw(1, steps, batch, hidden), weight(2, 1, hidden), draw(3, batch, hidden)
    results = recurrent.rnn(z, h, wh, given, reverse, relu)
    check(results, formulas.rnn(*wide(z, h, wh), found, reverse, relu))
    g, ys = (draw(4, steps, batch, hidden), draw(5, batch, hidden)), np.asarray(results[0])
    grads = formulas.rnn_backward(*wide(*g, ys, wh), found, reverse, relu)
    check(recurrent.rnn_backward(*g, ys, wh, given, reverse, relu), grads, 1e-4)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_sequence(special):
    z, h, wh = draw(1, 3, 4, 20), draw(2, 4, 5), draw(3, 20, 5)
    z[1, 2, 7] = special
    every = np.full(4, 3)
    check(recurrent.lstm(z, h, h, wh), formulas.lstm(*wide(z, h, h, wh), every, False))
    z, wh, bias = z[..., :15], wh[:15], draw(4, 15)
    check(recurrent.gru(z, h, wh, bias), formulas.gru(*wide(z, h, wh, bias), every, False))
    z, wh = z[..., 5:10], wh[:5]
    for relu in (False, True):
        check(recurrent.rnn(z, h, wh, relu=relu), formulas.rnn(*wide(z, h, wh), every, False, relu))


def test_what_follows_a_sequence_is_not_read():
    z, h, wh = draw(1, 3, 2, 20), draw(2, 2, 5), draw(3, 20, 5)
    lengths, results = np.array([1, 3]), []
    for filling in (0, np.nan):
        z[1:, 0] = filling
        results.append(recurrent.lstm(z, h, h, wh, lengths))
    check(*results, 0)


def test_saturated_gates():
    z, h, wh = 100 * draw(1, 2, 3, 68), draw(2, 3, 17), draw(3, 68, 17)
    check(recurrent.lstm(z, h, h, wh), formulas.lstm(*wide(z, h, h, wh), np.full(3, 2), False))


@pytest.mark.parametrize(
    ("kind", "bias"), [("LSTM", True), ("GRU", False), pytest.param("RNN", True, marks=pytest.mark.soak)]
)
def test_the_rows_take_them(kind, bias, monkeypatch):
    """Outputs and gradients of a module with packed sequences in both directions, as by the rows' own bodies."""

    def run():
        torch.manual_seed(0)
        layer = getattr(torch.nn, kind)(3, 5, bias=bias, bidirectional=True)
        x = torch.randn(4, 3, 3, requires_grad=True)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 4, 1]), enforce_sorted=False)
        output, last = layer(packed)
        states = last if kind == "LSTM" else (last,)
        loss = output.data.square().sum() + sum(state.sin().sum() for state in states)
        grads = torch.autograd.grad(loss, [x, *layer.parameters()])
        return [y.detach().numpy() for y in (loss, output.data, *states, *grads)]

    monkeypatch.setattr("weft._base.config.TIER", "compiled")
    monkeypatch.setattr("weft._base.config.NATIVE", False)
    infer._forget_signatures()
    expected = run()
    monkeypatch.setattr("weft._base.config.NATIVE", True)
    infer._forget_signatures()
    calls, call = [], recurrent._call
    monkeypatch.setattr(recurrent, "_call", lambda *args, **options: calls.append(args[0]) or call(*args, **options))
    check(run(), expected)
    assert {*calls} == {kind.lower(), f"{kind.lower()}_backward"}


def test_refused():
    with pytest.raises(ShapeError, match=r"wh has shape \(20, 4\), expected \(20, 5\)"):
        recurrent.lstm(draw(1, 3, 4, 20), draw(2, 4, 5), draw(2, 4, 5), draw(3, 20, 4))
    with pytest.raises(ShapeError, match=r"lengths has shape \(3,\), expected \(4,\)"):
        recurrent.rnn(draw(1, 3, 4, 5), draw(2, 4, 5), draw(3, 5, 5), np.arange(3))
    with pytest.raises(ShapeError, match=r"expected \(time, batch, features\)"):
        recurrent.gru(draw(1, 3, 15), draw(2, 4, 5), draw(3, 15, 5), draw(4, 15))
