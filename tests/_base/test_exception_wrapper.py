"""Exceptions on their way from where they were raised to who waits."""

from __future__ import annotations

import pickle

import pytest

from weft._utils import ExceptionWrapper


def wrapped(error: BaseException, where: str = "in a thread") -> ExceptionWrapper:
    try:
        raise error
    except BaseException:
        return ExceptionWrapper(where=where)


def test_the_type_stays_and_the_message_says_where_it_came_from():
    wrapper = pickle.loads(pickle.dumps(wrapped(KeyError("left"))))
    with pytest.raises(KeyError) as raised:
        wrapper.reraise()
    assert str(raised.value).startswith("Caught KeyError in a thread.\nOriginal Traceback")
    assert str(raised.value).endswith("raise error\nKeyError: 'left'\n")
    assert (wrapper.exc_type, wrapper.where) == (KeyError, "in a thread")


def test_a_type_that_takes_no_text_becomes_a_runtime_error():
    with pytest.raises(RuntimeError, match="Caught UnicodeDecodeError in background"):
        wrapped(UnicodeDecodeError("utf-8", b"", 0, 1, "why"), "in background").reraise()


def test_a_class_may_add_to_it():
    class Startup(ExceptionWrapper):
        pass

    error = ValueError("no")
    assert Startup((ValueError, error, None)).exc_msg == "ValueError: no\n"
