"""`weft._dynamo`: what programs set, ask and count."""

from __future__ import annotations

import pytest

import weft as torch
from weft._dynamo import _backends, config, exc, explain
from weft._dynamo._aot import make_boxed_compiler
from weft._dynamo.testing import CompileCounter, CompileCounterWithBackend
from weft._dynamo.utils import CompileProfiler, counters


def test_names_of_backends(monkeypatch):
    monkeypatch.setattr(_backends, "_registered", {})
    assert torch._dynamo.list_backends() == ["xla"]
    assert torch._dynamo.lookup_backend(print) is print
    graph = torch.fx.symbolic_trace(lambda x: x * 2)
    for name in ("inductor", "eager"):
        assert torch._dynamo.lookup_backend(name)(graph, [])(torch.ones(1)).tolist() == [2]
    with pytest.raises(exc.InvalidBackend, match=r"^Invalid backend: 'foo', see `torch._dynamo.list_backends"):
        torch.compile(abs, backend="foo")
    torch._dynamo.register_backend(print, name="twice", tags=["debug"])
    with pytest.raises(AssertionError, match=r"^duplicate name: twice"):
        torch._dynamo.register_backend(print, name="twice")
    assert torch._dynamo.list_backends(exclude_tags=None) == ["twice", "xla"]


def test_the_default_backend():
    seen = CompileCounter()
    torch.compiler.set_default_backend(seen)
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(1))
    finally:
        torch.compiler.set_default_backend(None)
    assert (seen.frame_count, seen.op_count) == (1, 2)


def test_explain():
    def function(x):
        y = x * 2
        if y.sum() > 0:
            y = y.sin().cos()
        return y

    found = explain(function)(torch.ones(2))
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 5)
    (reason,) = found.break_reasons
    assert reason.reason == "decides by a tensor's value"
    assert reason.user_stack[0].line == "if y.sum() > 0:"
    assert str(found).startswith("Graph Count: 2\nGraph Break Count: 1\nOp Count: 5\nBreak Reasons:\n  Break Reason 1:")
    assert explain(lambda x: x + 1, torch.ones(1)).graph_break_count == 0


def test_counters():
    counters.clear()
    seen = CompileCounterWithBackend("aot_eager")
    with CompileProfiler() as profiler:
        for backend in (seen, profiler):
            torch.compile(lambda x: x + x.sum().item(), backend=backend)(torch.ones(2))
    assert counters["stats"] == {"unique_graphs": 4, "calls_captured": 4}
    assert len(seen.graphs) == seen.frame_count == 2
    assert "2 times: reads a tensor's value" in profiler.report()
    seen.clear()
    assert not seen.graphs


def test_settings():
    assert config.recompile_limit == config.cache_size_limit == 8
    with config.patch(cache_size_limit=3, verbose=True):
        assert (config.recompile_limit, config.verbose) == (3, True)

    @config.patch({"suppress_errors": True})
    def within():
        return config.suppress_errors

    with config.patch("inline_inbuilt_nn_modules", False):
        assert within() is True
    assert (config.recompile_limit, config.verbose, within()) == (8, False, True)
    assert config.suppress_errors is False
    with pytest.raises(AttributeError, match="supress_errors"):
        config.supress_errors = True
    with pytest.raises(AttributeError, match="the nearest is 'suppress_errors'"):
        config.patch(supress_errors=True)


def test_optimize():
    seen = CompileCounter()
    assert torch._dynamo.optimize(seen)(lambda x: x + 1)(torch.ones(1)).tolist() == [2]
    assert torch._dynamo.run(torch._dynamo.optimize(seen)(lambda x: x + 1))(torch.ones(1)).tolist() == [2]
    assert seen.frame_count == 1
    with pytest.raises(exc.Unsupported):
        torch._dynamo.optimize_assert(seen)(lambda x: x.item())(torch.ones(1))


def test_compilers_before_autograd():
    graphs = []

    @make_boxed_compiler
    def compiler(graph, inputs):
        graphs.append((graph, len(inputs)))
        return graph

    from weft._dynamo.backends.common import aot_autograd
    from weft._functorch.aot_autograd import aot_function, aot_module, aot_module_simplified

    x = torch.ones(2, requires_grad=True)
    aot_function(lambda x: x * 3, compiler, compiler)(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    model = torch.nn.Linear(2, 1)
    expected = model(x)
    assert torch.equal(torch.compile(model, backend=aot_autograd(fw_compiler=compiler))(x), expected)
    assert torch.equal(aot_module(model, fw_compiler=compiler)(x), expected)
    traced = torch.fx.symbolic_trace(model)
    assert torch.equal(aot_module_simplified(traced, [x], compiler)(x), expected)
    assert [count for _, count in graphs] == [1, 3, 3, 1]
