"""Traced functions and modules, and their files."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from weft import jit, nn
from weft.errors import CompileError, ModuleError, ProgramError


def same(one, other):
    np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=2e-6, atol=1e-6)


def test_a_traced_module_takes_other_batches_and_shares_parameters():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    traced = jit.trace(model, torch.ones(3, 4))
    assert isinstance(traced, jit.ScriptModule)
    for n in (1, 3, 7):
        same(traced(torch.full((n, 4), 0.5)), model(torch.full((n, 4), 0.5)))
    assert traced.get_parameter("0.weight") is model[0].weight
    assert "stablehlo" in traced.graph
    assert traced.code == traced.inlined_graph


def test_a_traced_module_can_be_trained():
    model = nn.Linear(4, 2)
    traced = jit.trace(model, (torch.ones(3, 4),))
    optimizer = torch.optim.SGD(traced.parameters(), lr=0.1)
    traced(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    assert model.bias.grad.tolist() == [3, 3]
    same(traced(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_sizes_that_can_change():
    every = jit.trace(lambda x, *, y: x + y.sum(), (torch.ones(3, 4),), example_kwarg_inputs={"y": torch.ones(2)})
    assert every(torch.ones(5, 6), y=torch.ones(9)).shape == (5, 6)
    first = jit.trace(nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(36, 2)), torch.ones(1, 1, 8, 8))
    assert first(torch.ones(4, 1, 8, 8)).shape == (4, 2)
    none = jit.trace(lambda x: sum(row for row in x), torch.ones(3, 2))
    assert none(torch.ones(3, 2)).tolist() == [3, 3]
    with pytest.raises(ProgramError, match=r"to be equal to 3, but got 4"):
        none(torch.ones(4, 2))


def test_control_flow_is_that_of_the_example():
    def function(x, double):
        return 2 * x if double else x

    traced = jit.trace(function, (torch.ones(2), True))
    assert traced(torch.ones(2), True).tolist() == [2, 2]
    with pytest.raises(CompileError, match="<lambda>: it needs a tensor's value at"):
        jit.trace(lambda x: x if x.sum() > 0 else -x, torch.ones(2))


def test_is_tracing():
    seen = []
    jit.trace(lambda x: seen.append(jit.is_tracing()) or x, torch.ones(2))
    assert set(seen) == {True}
    assert not jit.is_tracing()


def test_files(tmp_path):
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    jit.save(jit.trace(model, torch.ones(3, 4)), tmp_path / "model.pt", _extra_files={"a": "b"})
    extra = {"a": ""}
    loaded = jit.load(tmp_path / "model.pt", map_location="cpu", _extra_files=extra)
    assert extra == {"a": b"b"}
    assert isinstance(loaded, nn.Module)
    assert list(loaded.state_dict()) == list(model.state_dict())
    x = torch.randn(5, 4)
    same(loaded(x), model(x))
    loaded.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    loaded.save(tmp_path / "again.pt")
    assert not jit.load(tmp_path / "again.pt")(x).any()


def test_a_function_stays_a_function_in_a_file(tmp_path):
    traced = jit.trace(torch.sin, torch.ones(3))
    assert isinstance(traced, jit.ScriptFunction)
    assert repr(traced).startswith("ScriptFunction sin\n  input")
    traced.save(tmp_path / "f.pt")
    same(jit.load(tmp_path / "f.pt")(torch.ones(2)), torch.ones(2).sin())


def test_trace_module():
    model = nn.Linear(2, 2)
    same(jit.trace_module(model, {"forward": torch.ones(1, 2)})(torch.ones(1, 2)), model(torch.ones(1, 2)))
    with pytest.raises(ModuleError, match=r"only 'forward' can be traced, got \['forward', 'other'\]"):
        jit.trace_module(model, {"forward": torch.ones(1, 2), "other": torch.ones(1)})


def test_what_was_not_traced_cannot_be_saved(tmp_path):
    with pytest.raises(
        ModuleError, match=r"expected what jit\.trace returned, got Linear; there is no script compiler"
    ):
        jit.save(jit.script(nn.Linear(2, 2)), tmp_path / "f.pt")
    with pytest.raises(ModuleError, match="Mine was not traced, so it has no program"):
        jit.save(type("Mine", (jit.ScriptModule,), {})(), tmp_path / "f.pt")
    with pytest.raises(ProgramError, match="example_inputs a tuple of tensors, got None for both"):
        jit.trace(torch.sin)
