"""Modes: with gradients or without, nested, as decorators; anomaly detection."""

from __future__ import annotations

import pytest

import weft
from weft.autograd import detect_anomaly, set_detect_anomaly


@pytest.fixture
def x():
    return weft.tensor([1.0, 2.0], requires_grad=True)


def test_no_grad_records_no_tape(x):
    with weft.no_grad():
        y = x * 2
        assert not weft.is_grad_enabled()
    assert not y.requires_grad
    assert (x * 2).requires_grad


def test_modes_nest(x):
    seen = []
    with weft.no_grad():
        with weft.enable_grad():
            seen.append((x * 2).requires_grad)
            with weft.inference_mode():
                seen += [(x * 2).requires_grad, weft.is_inference_mode_enabled()]
            seen.append((x * 2).requires_grad)
        seen.append((x * 2).requires_grad)
    assert seen == [True, False, True, True, False]
    assert not weft.is_inference_mode_enabled()


def test_a_mode_ends_with_its_block_also_after_an_error():
    with pytest.raises(ZeroDivisionError), weft.no_grad():
        1 / 0
    assert weft.is_grad_enabled()


def test_inference_mode_may_be_off(x):
    with weft.inference_mode(False):
        assert (x * 2).requires_grad


DECORATORS = [
    ("bare", weft.no_grad),
    ("called", weft.no_grad()),
    ("inference", weft.inference_mode),
    ("inference called", weft.inference_mode()),
    ("set", lambda f: weft.set_grad_enabled(False)(f)),
]


@pytest.mark.parametrize("decorate", [row[1] for row in DECORATORS], ids=[row[0] for row in DECORATORS])
def test_modes_decorate(x, decorate):
    @decorate
    def double(x):
        """Twice."""
        return x * 2

    assert not double(x).requires_grad
    assert double.__doc__ == "Twice."
    assert weft.is_grad_enabled()


def test_a_decorated_generator_has_the_mode_only_while_it_runs(x):
    @weft.no_grad()
    def steps():
        for factor in (1, 2):
            yield (x * factor).requires_grad
        return weft.is_grad_enabled()

    source = steps()
    assert next(source) is False
    assert weft.is_grad_enabled()
    assert next(source) is False
    with pytest.raises(StopIteration) as stop:
        next(source)
    assert stop.value.value is False


def test_a_decorated_generator_takes_what_is_sent_and_thrown():
    @weft.no_grad()
    def echo():
        got = "start"
        while True:
            try:
                got = yield got, weft.is_grad_enabled()
            except ValueError as error:
                got = str(error)

    source = echo()
    assert next(source) == ("start", False)
    assert source.send("more") == ("more", False)
    assert source.throw(ValueError("thrown")) == ("thrown", False)
    source.close()
    assert weft.is_grad_enabled()


def test_gradients_are_switched_from_here_on():
    with weft.set_grad_enabled(False):
        assert not weft.is_grad_enabled()
    assert weft.is_grad_enabled()
    weft.set_grad_enabled(False)
    assert not weft.is_grad_enabled()
    weft.set_grad_enabled(True)
    assert weft.is_grad_enabled()


# --- anomalies ---


def test_an_anomaly_names_the_line_of_the_forward_operator(x):
    line = test_an_anomaly_names_the_line_of_the_forward_operator.__code__.co_firstlineno
    with detect_anomaly():
        y = (x - 1).sqrt()
        z = (y * 0).sum()
        with pytest.raises(RuntimeError, match=rf"^Function 'SqrtBackward0' returned nan .*test_modes\.py:{line + 3}$"):
            z.backward()


def test_an_anomaly_in_a_derivative_that_a_user_wrote(x):
    class Wrong(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return None, g * float("nan")

    with (
        detect_anomaly(),
        pytest.raises(RuntimeError, match=r"^Function 'WrongBackward' returned nan values in its 1th"),
    ):
        Wrong.apply(x, x).sum().backward()


def test_an_anomaly_passes_where_nothing_is_wrong(x):
    with detect_anomaly():
        (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_nan_is_no_error_without_the_mode(x):
    ((x - 1).sqrt() * 0).sum().backward()
    assert x.grad.isnan().tolist() == [True, False]


def test_anomaly_detection_is_switched_from_here_on(x):
    set_detect_anomaly(True)
    with pytest.raises(RuntimeError, match="returned nan values"):
        ((x - 1).sqrt() * 0).sum().backward()
    set_detect_anomaly(False)
    ((x - 1).sqrt() * 0).sum().backward()


def test_anomaly_detection_looks_for_nan_unless_told_otherwise():
    assert weft.is_anomaly_check_nan_enabled()
    with detect_anomaly(check_nan=False):
        assert (weft.is_anomaly_enabled(), weft.is_anomaly_check_nan_enabled()) == (True, False)
    with set_detect_anomaly(True, check_nan=False):
        assert (weft.is_anomaly_enabled(), weft.is_anomaly_check_nan_enabled()) == (True, False)
    assert (weft.is_anomaly_enabled(), weft.is_anomaly_check_nan_enabled()) == (False, True)


def test_anomaly_detection_may_let_nan_pass(x):
    with detect_anomaly(check_nan=False):
        ((x - 1).sqrt() * 0).sum().backward()
