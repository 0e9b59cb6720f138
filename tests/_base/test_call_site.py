"""How a call is written, and how an object is unpacked, as the bytecode of this Python says it."""

from __future__ import annotations

import sys
from functools import partial

from weft._base.call_site import unpacked_count, written_arguments


def f(a, b=1, *rest, c=2, **others):
    return written_arguments(sys._getframe(1))


class Parts:
    def __iter__(self):
        self.count = unpacked_count(sys._getframe(1))
        return iter([1, 2])


def test_arguments_are_told_apart():
    assert f(1) == (1, ())
    assert f(1, 2, 3) == (3, ())
    assert f(1, c=3) == (1, ("c",))
    assert f(a=1, b=2, c=3, d=4) == (0, ("a", "b", "c", "d"))
    assert [f(x, b=2) for x in (1, 2)] == [(1, ("b",))] * 2


def test_what_cannot_be_told_is_none():
    arguments = [1, 2]
    assert f(*arguments) is None
    keywords = {"a": 1}
    assert f(**keywords) is None
    assert written_arguments(None) is None
    assert partial(f, 1)(c=2) == (0, ("c",))  # the call that is written


def test_variables_that_are_unpacked_to_are_counted():
    parts = Parts()
    _a, _b = parts
    assert parts.count == 2
    for do in (list, tuple, sum):
        do(parts)
        assert parts.count is None
    assert [x for x in parts] == [1, 2]  # noqa: C416
    assert parts.count is None
    assert unpacked_count(None) is None
