"""`weft.compiler`: a function can ask whether it is recorded."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from weft import compiler, jit
from weft.compiler import is_compiling, is_dynamo_compiling, is_exporting
from weft.export import export


def asked(found):
    def function(x):
        found.append((is_compiling(), is_dynamo_compiling(), is_exporting(), jit.is_tracing()))
        return x + 1

    return function


def test_it_knows_who_records():
    found = []
    asked(found)(torch.ones(2))
    torch.compile(lambda x: (x, is_compiling(), is_exporting()))(torch.ones(2))
    export(asked(found), (torch.ones(2),))
    assert found == [(False,) * 4, (True,) * 4]
    assert torch.compile(lambda x: (x, is_compiling(), is_exporting()))(torch.ones(2))[1:] == (True, False)


def test_in_a_branch():
    found = []
    export(lambda x: torch.cond(x.sum() > 0, asked(found), torch.neg, (x,)), (torch.ones(2),))
    assert found == [(True,) * 4]


def test_a_function_that_is_excluded_is_not_captured():
    seen = []

    @compiler.disable
    def excluded(x):
        seen.append(x.shape)
        return x + 1

    @compiler.disable(reason="it prints")
    def printing(x):
        return torch.compile(lambda y: (y * 2, is_compiling()))(x)

    with pytest.warns(UserWarning, match=r"calls excluded, which is excluded from that; it runs uncaptured$"):
        assert torch.compile(lambda x: excluded(x) * 2)(torch.ones(2)).tolist() == [4, 4]
    assert len(seen) == 1
    assert printing(torch.ones(1)) == (torch.tensor([2.0]), False)
    assert compiler.disable(torch.compile(excluded))(torch.ones(1)).tolist() == [2]


def test_stances():
    captured = torch.compile(lambda x: (x * 2, is_compiling()))
    with compiler.set_stance("force_eager"):
        assert captured(torch.ones(1))[1] is False
    with (
        compiler.set_stance("fail_on_recompile"),
        pytest.raises(
            RuntimeError, match=r"^Detected recompile when torch.compile stance is 'fail_on_recompile': <lam"
        ),
    ):
        captured(torch.ones(1))
    assert captured(torch.ones(1))[1] is True
    with compiler.set_stance("eager_on_recompile"):
        assert (captured(torch.ones(1))[1], captured(torch.ones(2))[1]) == (True, False)

    @compiler.set_stance("force_eager")
    def eager():
        return captured(torch.ones(1))[1]

    assert (eager(), captured(torch.ones(1))[1]) == (False, True)
    compiler.set_stance("force_eager")
    assert captured(torch.ones(1))[1] is False
    compiler.set_stance("default")
    compiler.reset()
    with compiler.set_stance("eager_on_recompile"):
        assert captured(torch.ones(1))[1] is False
    with pytest.raises(RuntimeError, match=r"^invalid torch.compile stance 'fast'; choose one of default, force_eager"):
        compiler.set_stance("fast")


def test_names_that_have_nothing_to_do():
    assert compiler.allow_in_graph(abs) is compiler.assume_constant_result(abs) is abs
    compiler.cudagraph_mark_step_begin()
    assert compiler.list_backends() == ["xla"]
    assert compiler.save_cache_artifacts() is None
    torch._dynamo.mark_dynamic(torch.ones(2), 0)
    torch._dynamo.graph_break()
    assert torch._dynamo.disable is compiler.disable


def test_functions_of_arrays_become_functions_of_tensors():
    @compiler.wrap_numpy
    def both(a, b):
        return {"sum": np.add(a, b), "largest": a.max()}

    result = both(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 3.0]))
    assert (result["sum"].tolist(), result["largest"].item()) == ([3, 8], 5)


def test_names_of_pytorchs_guards_and_backends():
    assert compiler.skip_all_guards_unsafe([object(), object()]) == [True, True]
    compiler.set_default_backend("inductor")
    assert compiler.get_default_backend() == "inductor"
    compiler.set_default_backend(None)
    assert compiler.get_default_backend() == "xla"
    region = compiler.nested_compile_region(lambda x: x * 2)
    assert torch.compile(lambda x: region(x) + 1)(torch.ones(1)).tolist() == [3]


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"backend": "foo"}, RuntimeError, r"^Invalid backend: 'foo', see `torch._dynamo.list_backends\(\)` for avail"),
        ({"mode": "foo"}, RuntimeError, r"^Unrecognized mode=foo, should be one of: default, lite, reduce-overhead, "),
        ({"mode": "default", "options": {}}, RuntimeError, r"^Either mode or options can be specified, but both can't"),
        ({"dynamic": "a"}, AssertionError, r"^compile: expected dynamic to be a bool or None, got <class 'str'>$"),
    ],
)
def test_what_pytorch_does_not_take_is_refused(options, kind, text):
    with pytest.raises(kind, match=text):
        torch.compile(abs, **options)


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager", "cudagraphs"])
def test_pytorchs_backends_are_taken(backend):
    assert torch.compile(lambda x: x + 1, backend=backend, dynamic=True)(torch.ones(1)).tolist() == [2]
