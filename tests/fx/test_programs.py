"""Programs are traced to PyTorch's graphs, with its names and code, and compute what they did. See `record.py`."""

from __future__ import annotations

import json

import pytest

import weft
from tests.fx.described import described, numbers, plain, tensors, traced
from tests.fx.programs import PROGRAMS, REFUSED
from tests.fx.record import ANSWERS, EDITING
from weft import fx

RECORDED = json.loads(ANSWERS.read_text(encoding="utf-8"))


def test_everything_is_recorded():
    assert list(RECORDED["programs"]) == [program.name for program in PROGRAMS]
    assert list(RECORDED["edits"]) == list(EDITING)


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_a_program_has_the_recorded_graph(program):
    original, module = traced(weft, program)
    assert described(module) == RECORDED["programs"][program.name]
    module.graph.lint()
    assert str(numbers(module(*tensors(weft, program.inputs)))) == str(
        numbers(original(*tensors(weft, program.inputs)))
    )
    assert str(numbers(fx.Interpreter(module).run(*tensors(weft, program.inputs)))) == str(
        numbers(original(*tensors(weft, program.inputs)))
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_generated_code_is_traced_to_the_same_program(program):
    _, module = traced(weft, program)
    again = fx.GraphModule.__reduce__(module)
    loaded = again[0](*again[1])
    inputs = tensors(weft, program.inputs)
    assert str(numbers(loaded(*inputs))) == str(numbers(module(*tensors(weft, program.inputs))))


@pytest.mark.parametrize("name", EDITING)
@pytest.mark.filterwarnings("ignore")
def test_an_edited_graph_is_the_recorded_one(name):
    assert json.loads(json.dumps(plain(EDITING[name](weft)))) == RECORDED["edits"][name]


ERRORS = {
    "branch": (fx.proxy.TraceError, r"^symbolically traced variables cannot be used as inputs to control flow: .*'gt'"),
    "and": (ValueError, r"^symbolically traced variables .* concrete_args"),
    "loop": (fx.proxy.TraceError, r"^Proxy object cannot be iterated\. .* the number of parts of 'x' is not known"),
    "star": (fx.proxy.TraceError, r"^Proxy object cannot be iterated\. "),
    "double star": (fx.proxy.TraceError, r"^Proxy object cannot be iterated\. "),
    "length": (RuntimeError, r"^'len' is not supported in symbolic tracing by default\. .* torch\.fx\.wrap\('len'\)"),
    "int": (TypeError, "not 'Proxy'"),
    "range": (TypeError, "'Proxy' object cannot be interpreted as an integer"),
    "in": (fx.proxy.TraceError, r"^Proxy object cannot be iterated\. "),
    "assignment": (TypeError, "'Proxy' object does not support item assignment"),
    "unknown argument": (NotImplementedError, r"^argument of type: <class 'object'>: .* Override Tracer\.create_arg"),
    "number": (AssertionError, r"^Expected FunctionType, got <class 'int'>"),
    "foreign parameter": (NameError, r"^parameter is not a member of this module: .*assign it to one$"),
    "foreign module": (NameError, r"^module is not installed as a submodule: Linear is called"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_says_why(name):
    kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        fx.symbolic_trace(REFUSED[name](weft))
    x = weft.ones(1)
    assert not fx._symbolic_trace.is_fx_tracing()
    assert weft.nn.Linear(1, 1)(x).shape == (1,)  # modules are called as before
