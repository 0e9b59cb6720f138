"""Generated functions: each leads to what it is made of, and keeps the signature that users see."""

import inspect
import linecache
import traceback

import pytest

import weft as torch
from weft import nn
from weft._base.generated import execute
from weft._tensor.functions import FUNCTIONS
from weft.nn import functional as F
from weft.ops._table import TABLE


@pytest.mark.parametrize(
    ("function", "row"),
    [
        (torch.add, "add"),
        (torch.Tensor.add, "add"),
        (torch.Tensor.add_, "add"),
        (torch.Tensor.__add__, "add"),
        (torch.Tensor.__radd__, "add"),
        (torch.Tensor.__iadd__, "add"),
        (torch.Tensor.__neg__, "neg"),
        (torch.floor, "floor"),
        (torch.special.expit, "sigmoid"),
        (torch.linalg.inv, "inv"),
        (F.linear, "linear"),
        (F.relu, "relu"),
        (F.relu6, "relu6"),
        (torch.Tensor.imag.fget, "imag"),
        (torch.zeros_like, ""),
        (torch.clone, ""),
        (torch.max, ""),
    ],
)
def test_the_source_of_a_function_is_that_of_its_body(function, row):
    source = inspect.getsource(function)
    if row:
        assert source == inspect.getsource(TABLE[row].impl)
    else:
        assert "@composite(" in source


def test_every_public_function_has_source():
    for entry in FUNCTIONS.values():
        assert "def " in inspect.getsource(entry.function), entry


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (torch.add, "(input, other, *_more, alpha=1, out=None)"),
        (F.linear, "(input, weight, bias=None, *, out=None)"),
        (torch.Tensor.add_, "(input, other, *_more, alpha=1, out=None)"),
        (F.relu, "(input: 'Tensor', inplace: 'bool' = False) -> 'Tensor'"),
    ],
)
def test_signatures_are_those_of_the_function_and_not_of_the_body(function, text):
    assert str(inspect.signature(function)) == text


@pytest.mark.parametrize(
    ("function", "line"),
    [(F.linear, "return _finish(_op, "), (nn.ReLU.forward, "return _function("), (torch.max, "_body(")],
)
def test_debuggers_show_the_generated_lines(function, line):
    lines = linecache.getlines(function.__code__.co_filename)
    assert lines[function.__code__.co_firstlineno - 1].startswith("def ")
    assert any(line in text for text in lines)


def test_a_traceback_shows_the_generated_line():
    scope = {}
    execute("def halved(x):\n    return x / 0\n", "halved", scope)
    with pytest.raises(ZeroDivisionError) as raised:
        scope["halved"](1)
    assert "return x / 0" in "".join(traceback.format_exception(raised.value))
