"""What a program reports of its progress to its launcher."""

from __future__ import annotations

from time import monotonic

import numpy as np
import pytest

import weft
from weft._base.activity import SIZE, Activity, process, read
from weft.monitor import report


@pytest.fixture
def told(monkeypatch):
    """What this process tells, as if `weft run` had started it."""
    memory = memoryview(bytearray(SIZE))
    monkeypatch.setattr(process, "activity", Activity(memory))
    return lambda: read(memory, monotonic())


def test_reports(told):
    report(tokens=3, samples=weft.tensor(2), loss=weft.tensor([0.5]), lr=0.125)
    report(tokens=4)
    assert (told().numbers["tokens"], told().numbers["samples"]) == (7, 2)
    assert told().reported == {"loss": 0.5, "lr": 0.125}


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"tokens": -1}, ValueError, "report: tokens must be the number since the last report, got -1"),
        ({"loss": "low"}, TypeError, "report: loss must be a number or a tensor of one element, got 'low'"),
        (
            {"loss": weft.ones(2, 3)},
            TypeError,
            "report: loss must be a number or a tensor of one element, got a tensor of shape (2, 3)",
        ),
        (
            {f"value{at}": at for at in range(17)},
            ValueError,
            "report: value16 is one value too many; a rank can report 16 under different names",
        ),
    ],
)
def test_wrong_reports(told, values, error, text):
    with pytest.raises(error) as raised:
        report(**values)
    assert str(raised.value) == text


@pytest.mark.parametrize("wrong", ["x", b"1", object(), None, [1.0], weft.ones(2), weft.zeros(0)])
def test_types_are_checked_without_a_launcher_too(wrong):
    for name in ("loss", "tokens", "samples"):
        with pytest.raises(TypeError, match=f"^report: {name} must be a number or a tensor of one element, got "):
            report(**{name: wrong})


def test_a_report_without_a_launcher_reads_nothing():
    class Number:
        def __float__(self):
            raise AssertionError("it is read")

    report(loss=Number(), tokens=weft.ones(()) * 3, lr=np.float32(1), samples=np.int64(2))
