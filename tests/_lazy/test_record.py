"""One way of recording: what is inlined for speed says the same, and the modes see whatever is recorded."""

from __future__ import annotations

import pytest

import weft
from weft._base.state import ambient, using
from weft._lazy.value import Value

RECORDED = [name for name in Value.__slots__ if name not in ("__weakref__", "doubt", "owner", "time")]
"""The attributes that every recording sets, without the number, which grows: the other two are set for some values."""


def attributes(value):
    return {name: getattr(value, name) for name in RECORDED}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("function", "count"), [(weft.tanh, 1), (weft.add, 2), (weft.lt, 2)])
def test_the_common_call_records_what_the_general_one_records(function, count, requires_grad):
    operands = [weft.ones(2, requires_grad=requires_grad) for _ in range(count)]
    pending = ambient().pending
    with using(observers=(lambda values: None,)):  # no common call
        general = function(*operands)._value
    common = function(*operands)._value  # the signature is known from here on
    assert pending[-2:] == [general, common]
    assert attributes(common) == attributes(general)
    assert common.time == general.time + 1
    assert not hasattr(common, "doubt")
    assert not hasattr(common, "owner")


def test_a_full_list_makes_room_from_the_common_call():
    x = weft.ones(2)
    kept = [x.tanh()]
    pending = ambient().pending
    for _ in range(2 * pending.room):
        x.tanh()
    assert len(pending) <= pending.room
    assert kept[0]._value in pending


def test_eager_mode_sees_the_backward_pass(monkeypatch):
    x = weft.ones(3, requires_grad=True)
    made = []
    with using(eager=True):
        loss = (x * 2).tanh().exp().sum()
        loss.register_hook(lambda g: made.append(ambient().pending[:]))
        x.register_hook(lambda g: made.append(not g._read().is_pending))
        loss.backward()
        assert not ambient().pending
        assert isinstance(x.grad._value, Value)
        assert not x.grad._value.is_pending
    assert made == [[], True]


def test_a_capture_sees_what_a_derivative_reads_anew():
    x = weft.tensor([[1.0, 5.0], [3.0, 2.0]], requires_grad=True)

    @weft.compile
    def step():
        values, _ = x.max(1)
        values.sum().backward()
        gradient, x.grad = x.grad, None
        return gradient

    assert step().tolist() == [[0, 1], [1, 0]]
    with weft.no_grad():
        x.copy_(weft.tensor([[7.0, 5.0], [3.0, 9.0]]))
    assert step().tolist() == [[1, 0], [0, 1]]
