"""`functorch.make_functional` and its like: modules as functions of tuples of tensors."""

from __future__ import annotations

import pytest

import weft as torch
from weft import nn
from weft.func._functional_modules import combine_state_for_ensemble, make_functional, make_functional_with_buffers


def test_a_module_as_a_function():
    model, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), torch.randn(4, 3)
    function, parameters = make_functional(model)
    assert torch.equal(function(parameters, x), model(x))
    assert parameters[0] is model[0].weight
    gradients = torch.func.grad(lambda p: function(p, x).sum())(parameters)
    model(x).sum().backward()
    assert torch.allclose(gradients[0], model[0].weight.grad)
    assert not make_functional(model, disable_autograd_tracking=True)[1][0].requires_grad
    with pytest.raises(RuntimeError, match=r"has buffers. Please use make_functional_with_buffers"):
        make_functional(nn.BatchNorm1d(2))


def test_buffers_and_shared_parameters():
    model, x = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)).eval(), torch.randn(4, 2)
    model[2].weight = model[0].weight
    function, parameters, buffers = make_functional_with_buffers(model)
    assert (len(parameters), len(buffers)) == (5, 3)
    assert torch.equal(function(parameters, buffers, x), model(x))
    assert function.all_names_map["0.weight"] == ["0.weight", "2.weight"]


def test_an_ensemble():
    models, x = [nn.Linear(3, 2) for _ in range(4)], torch.randn(5, 3)
    function, parameters, buffers = combine_state_for_ensemble(models)
    results = torch.vmap(function, in_dims=(0, 0, None))(parameters, buffers, x)
    assert torch.allclose(results, torch.stack([model(x) for model in models]), atol=1e-6)
    with pytest.raises(RuntimeError, match="Expected all models to be of the same class"):
        combine_state_for_ensemble([models[0], nn.Linear(3, 2).requires_grad_(False), nn.Identity()])
