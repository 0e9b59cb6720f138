"""Compiled modules: modules around the module, whose calls are captured."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft as torch
from weft import nn
from weft._dynamo import OptimizedModule


@pytest.fixture
def pair():
    module = nn.Linear(2, 2)
    return module, torch.compile(module)


def test_it_is_a_module_whose_child_is_the_module(pair):
    module, compiled = pair
    assert isinstance(compiled, OptimizedModule)
    assert isinstance(compiled, nn.Module)
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert dict(compiled.named_modules()) == {"": compiled, "_orig_mod": module}
    assert repr(compiled) == f"OptimizedModule(\n  (_orig_mod): {module}\n)"
    state = {f"_orig_mod.{name}": value + 1 for name, value in module.state_dict().items()}
    assert not any(compiled.load_state_dict(state))
    assert torch.equal(module.bias, state["_orig_mod.bias"])


def test_it_can_be_a_part_of_modules(pair):
    whole = nn.Sequential(pair[1], nn.ReLU())
    assert list(whole.state_dict()) == ["0._orig_mod.weight", "0._orig_mod.bias"]
    x = torch.ones(1, 2)
    assert torch.equal(whole(x), pair[0](x).relu())
    assert torch.equal(torch.compile(whole)(x), whole(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.compile(nn.Linear(2, 2))

    assert len(list(Model().parameters())) == 2


def test_its_attributes_are_the_modules(pair):
    module, compiled = pair
    assert compiled.weight is module.weight
    assert compiled.in_features == 2
    assert "in_features" in dir(compiled)
    compiled.extra = nn.Parameter(torch.ones(1))
    assert list(module._parameters) == ["weight", "bias", "extra"]
    del compiled.extra
    assert not hasattr(module, "extra")
    with pytest.raises(AttributeError, match=r"^'Linear' object has no attribute 'missing'$"):
        _ = compiled.missing
    assert len(torch.compile(nn.Sequential(module))) == 1
    assert bool(compiled)


def test_what_changes_the_whole_tree_returns_it(pair):
    module, compiled = pair
    assert compiled.eval() is compiled
    assert not module.training
    assert not compiled.training
    assert compiled.train() is compiled
    assert module.training
    assert compiled.to(torch.float64) is compiled
    assert module.weight.dtype is torch.float64
    assert compiled.requires_grad_(False) is compiled
    assert not module.weight.requires_grad
    assert compiled.apply(lambda _: None) is compiled


def test_hooks_run_around_the_captured_call(pair):
    compiled = pair[1]
    calls = []
    compiled.register_forward_hook(lambda called, args, output: calls.append(called))
    for _ in range(3):
        compiled(torch.ones(1, 2))
    assert calls == [compiled] * 3


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_it_is_copied_and_pickled_with_its_module(pair, duplicate):
    x = torch.ones(1, 2)
    other = duplicate(pair[1])
    assert isinstance(other, OptimizedModule)
    assert other._orig_mod is not pair[0]
    assert other._orig_mod is other.forward._orig_mod
    assert torch.equal(other(x), pair[0](x))


def test_a_compiled_module_is_excluded_as_its_module():
    assert torch.compiler.disable(torch.compile(nn.Flatten()))(torch.ones(1, 2)).tolist() == [[1, 1]]
