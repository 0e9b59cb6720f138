"""Which programs are interpreted, and when they are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from weakref import WeakKeyDictionary

import numpy as np
import pytest

import weft
from weft._base import config
from weft._lazy import explain, program
from weft._lazy.interpreter.costs import costs_of
from weft._lazy.interpreter.flatten import flattened
from weft._lazy.trace import traced
from weft.errors import SettingError


@pytest.fixture(autouse=True)
def tiers(monkeypatch):
    """The first tier first, and nothing known."""
    monkeypatch.setattr(config, "TIER", "auto")
    monkeypatch.setattr(program, "_programs", {})
    monkeypatch.setattr(explain, "_log", [])
    monkeypatch.setattr(explain, "_interpreted", WeakKeyDictionary())


def layers(x, count=12):
    for _ in range(count):
        x = weft.tanh(x) * 1.5 + x.abs()
    return x


def graphs():
    return weft.explain().interpreted


def test_a_new_graph_is_interpreted():
    layers(weft.ones(30_000)).tolist()
    (graph,) = graphs()
    assert not weft.explain()
    assert (graph.runs, graph.operators) == (1, 49)
    assert graph.spent == graph.each > 0
    assert graph.price > 10 * graph.each


def test_it_is_compiled_when_interpreting_it_has_cost_as_much():
    x = weft.rand(100_000)
    x.tolist()
    first = layers(x).numpy()
    (graph,) = [graph for graph in graphs() if graph.operators > 10]
    seen = []
    while not weft.explain():
        seen.append(layers(x).numpy())
    (compilation,) = weft.explain()
    assert compilation.runs == len(seen)
    assert compilation.runs * graph.each < graph.price <= (compilation.runs + 1) * graph.each
    assert all(found.tobytes() == first.tobytes() for found in seen[:-1])
    assert "interpreted" in str(compilation)
    np.testing.assert_allclose(layers(x).numpy(), first, rtol=1e-5)
    assert len(weft.explain()) == 1
    assert all(graph.operators < 10 for graph in graphs())


def test_the_same_program_makes_the_same_choices():
    def choices():
        program._programs.clear()
        explain._log.clear()
        x = weft.full((100_000,), 0.5)
        for _ in range(200):
            layers(x).numpy()
        return [(c.operators, c.runs) for c in weft.explain()]

    assert choices() == choices() != []


def test_what_is_large_from_the_beginning_is_compiled_at_once():
    layers(weft.zeros(10_000_000)).numpy()
    assert [c.runs for c in weft.explain()] == [0]


def test_what_is_slower_compiled_stays_interpreted():
    x = weft.full((100_000,), 0.5)
    for _ in range(300):
        x.sin().sort().values.numpy()
    assert not weft.explain()


def test_small_graphs_stay_interpreted():
    x = weft.zeros(2, 2)
    for _ in range(2000):
        ((x + 1) @ x).sum().item()
    assert not weft.explain()
    assert not [graph for graph in graphs() if graph.each]


def test_a_compiled_function_is_compiled_at_its_second_call():
    @weft.compile
    def step(x):
        return layers(x).sum()

    x = weft.rand(8)
    x.tolist()
    step(x).item()
    assert not weft.explain()
    second = step(x).item()
    assert len(weft.explain()) == 1
    assert step(x).item() == second
    assert len(weft.explain()) == 1


def test_the_derivative_of_a_compiled_function_is_compiled():
    step = weft.compile(lambda x: layers(x).sum())
    x = weft.rand(8, requires_grad=True)
    for _ in range(2):
        step(x).backward()
    x.grad.tolist()
    before = len(weft.explain())
    assert before
    step(x).backward()
    x.grad.tolist()
    assert all("grad of" not in str(graph) for graph in graphs())


def test_deterministic_algorithms_are_always_compiled():
    x = weft.ones(4)
    weft.use_deterministic_algorithms(True)
    try:
        (x * 2).tolist()
        assert len(weft.explain()) > 0
        assert not graphs()
    finally:
        weft.use_deterministic_algorithms(False)
    (x * 3).tolist()
    assert not graphs()


@pytest.mark.parametrize("tier", ["compiled", "interpreted"])
def test_one_tier_can_be_asked_for(monkeypatch, tier):
    monkeypatch.setattr(config, "TIER", tier)
    x = weft.rand(10_000)
    for _ in range(30):
        layers(x).numpy()
    assert bool(weft.explain()) == (tier == "compiled")
    assert not graphs()


def test_a_tier_that_does_not_exist_is_refused_with_those_that_do():
    code = "import weft; weft.ones(1)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"WEFT_TIER": "jit", "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode
    message = done.stderr.strip().splitlines()[-1]
    assert (
        message == f"{SettingError.__module__}.SettingError: WEFT_TIER=jit: expected one of auto, compiled, interpreted"
    )


def test_moving_tensors_does_not_start_xla():
    code = (
        "import weft\n"
        "x = weft.arange(12.).view(3, 4)\n"
        "y = weft.cat([x, x * 2])[1:, ::2].t().contiguous()\n"
        "assert y.sum().item() == 88, y\n"
        "from weft._lazy.runtime import has_started\n"
        "assert not has_started()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "WEFT_TIER": "auto"})


def test_explain_tells_each_line_once():
    for n in range(30_000, 30_006):
        layers(weft.ones(n), 40).tolist()
    text = str(weft.explain())
    assert text.splitlines()[0] == "0 compilations, 0.00 s"
    assert text.splitlines()[1] == "6 graphs interpreted"
    assert "interpreted once" in text
    assert text.splitlines()[2].endswith("; and 5 further graphs")
    assert text.count("interpreted once") == 1


# --- what is estimated ---


def cost(function, *shapes):
    import jax

    return costs_of(flattened(traced(function, [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes])))


def test_costs_grow_with_work():
    import jax
    import jax.numpy as jnp

    def loop(length):
        return lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c), None), x, None, length=length)[0]

    def conv(x, k):
        return jax.lax.conv(x, k, (1, 1), "SAME")

    small, large = cost(jnp.tanh, (10,)), cost(jnp.tanh, (1_000_000,))
    assert small.compiling == large.compiling
    assert small.interpreting < 1e-5 < 1e-4 < large.interpreting
    assert cost(loop(100), (10,)).interpreting > 50 * cost(jnp.tanh, (10,)).interpreting
    assert cost(loop(100), (10,)).compiling == cost(loop(10), (10,)).compiling
    assert (
        cost(conv, (8, 3, 32, 32), (16, 3, 3, 3)).interpreting
        < cost(conv, (8, 64, 32, 32), (64, 64, 3, 3)).interpreting
    )
    assert cost(lambda x: x.reshape(-1), (1000, 1000)).interpreting < 1e-5
    ordered = cost(jnp.sort, (10_000,))
    assert ordered.interpreting < ordered.running  # NumPy's sort is faster than XLA's, so it is no reason to compile
    product = cost(jnp.matmul, (64, 128), (128, 32))
    assert 1 < product.interpreting / product.running < 4


def test_elsewhere_than_on_the_cpu_the_first_tier_is_programs_of_single_applications():
    """A second device of XLA's on this host stands for an accelerator."""
    code = """
import numpy as np, weft
from weft._lazy import explain
x = weft.rand(64, 64)
there = x.to(weft.device("cpu", 1))
def layers(x):
    for _ in range(12):
        x = weft.tanh(x @ x) * 0.5 + x.sin()
    return x
layers(x).numpy()
results = [layers(there)]
results[0].tolist()
graph = weft.explain().interpreted[-1]
assert (graph.operators, graph.runs) == (60, 1), graph
assert not [c for c in weft.explain() if c.operators > 10], weft.explain()
while not [c for c in weft.explain() if c.operators > 10]:
    results.append(layers(there))
    assert results[-1].device == there.device
    results[-1].tolist()
assert 1 < len(results) < 20, len(results)
for result in results:
    np.testing.assert_allclose(result.cpu().numpy(), layers(x).numpy(), rtol=1e-5)
"""
    flags = "--xla_force_host_platform_device_count=2"
    environ = {**os.environ, "XLA_FLAGS": flags, "WEFT_TIER": "auto", "WEFT_COMPILE_CACHE": ""}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
