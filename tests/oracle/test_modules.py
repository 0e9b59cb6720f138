"""Every class of `torch.nn` is PyTorch's: its signature, state, text, values, gradients and errors."""

from __future__ import annotations

import inspect

import pytest

import weft
from tests.oracle.coverage import keep
from tests.oracle.replay import report

torch = pytest.importorskip("torch")
modules = pytest.importorskip("tests.oracle.modules", reason="needs torch", exc_type=ImportError)
calls = pytest.importorskip("tests.oracle.module_calls", reason="needs torch", exc_type=ImportError)

pytestmark = pytest.mark.oracle

_ENTRIES = {name: entry for name, entry in modules.entries().items() if modules.counterpart(entry) is not None}
_WITH_ERRORS = {name: entry for name, entry in _ENTRIES.items() if entry.module_error_inputs_func is not None}


@pytest.mark.parametrize("name", _ENTRIES)
def test_values(name: str):
    results = list(modules.check(_ENTRIES[name]))
    keep(name, results)
    faults = report(results)
    assert not faults, faults


@pytest.mark.parametrize("name", _WITH_ERRORS)
def test_errors(name: str):
    entry = _WITH_ERRORS[name]
    faults = [modules.difference_of_errors(entry, wrong) for wrong in modules.errors(entry)]
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.parametrize("text", calls.CALLS, ids=str)
def test_values_beyond_the_database(text: str):
    fault = calls.difference_of_call(text)
    assert not fault, fault


@pytest.mark.parametrize("text", calls.REFUSALS)
def test_refusals(text: str):
    fault = calls.difference_of_refusal(text)
    assert not fault, fault


@pytest.mark.parametrize("text", calls.INITIAL)
def test_initial_values(text: str):
    fault = calls.difference_of_plain(text)
    assert not fault, fault


# --- signatures -----------------------------------------------------------------------------------------------


def _parameters(function) -> list[tuple[str, object, object]]:
    """Names, kinds and defaults; a function as default by its name."""
    return [
        (p.name, p.kind, p.default.__name__ if callable(p.default) else p.default)
        for p in inspect.signature(function).parameters.values()
    ]


_ADDED = ("out", "axis", "out_dim")  # keywords of the operator table's functions, and a name of `Flatten`'s result
_ANYTHING = [("args", inspect.Parameter.VAR_POSITIONAL), ("kwargs", inspect.Parameter.VAR_KEYWORD)]


def _signatures_differ(theirs, ours) -> str:
    try:
        wanted = _parameters(theirs)
    except ValueError:  # functions in C++ do not tell
        return ""
    if [p[:2] for p in wanted if p[0] != "self"] == _ANYTHING:  # says nothing
        return ""
    found = [p for p in _parameters(ours) if p[0] not in _ADDED]
    wanted = [p for p in wanted if p[0] not in _ADDED]
    return "" if found == wanted else f"{found}, not {wanted}"


_CLASSES = [
    name
    for name, kind in vars(torch.nn).items()
    if isinstance(kind, type) and issubclass(kind, torch.nn.Module) and hasattr(weft.nn, name) and name != "NLLLoss2d"
]

_EXCUSED = {
    "Module.forward": "Weft's names what it passes on",
    "Module.ipu": "there are no such devices here",
    "Module.mtia": "there are no such devices here",
    "MultiheadAttention.merge_masks": "an aid of PyTorch's fast path",
    "Sequential.extend": "the parameter is called as in `ModuleList`",
}


def test_signatures_of_functions():
    faults = []
    for theirs, ours in ((torch.nn.functional, weft.nn.functional), (torch.nn.init, weft.nn.init)):
        for name, function in vars(theirs).items():
            if inspect.isfunction(function) and not name.startswith("_") and hasattr(ours, name):
                fault = _signatures_differ(function, getattr(ours, name))
                faults.append(f"{name}{fault}" if fault else "")
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.parametrize("name", _CLASSES)
def test_signatures_of_classes(name: str):
    theirs, ours = getattr(torch.nn, name), getattr(weft.nn, name)
    faults = [_signatures_differ(theirs.__init__, ours.__init__)]
    for method, function in vars(theirs).items():
        if method.startswith("_") or not inspect.isfunction(function) or f"{name}.{method}" in _EXCUSED:
            continue
        if not hasattr(ours, method):
            faults.append(f"{method} is missing")
        else:
            fault = _signatures_differ(function, getattr(ours, method))
            faults.append(f"{method}{fault}" if fault else "")
    assert not any(faults), "\n".join(filter(None, faults))
