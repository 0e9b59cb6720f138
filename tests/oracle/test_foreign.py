"""Tensors of PyTorch given to Weft, and the other way round: an error that names the type and the way out."""

from __future__ import annotations

import warnings

import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

TO_WEFT = {
    "operator": lambda x: weft.ones(2) + x,
    "reflected": lambda x: x - weft.ones(2),
    "comparison": lambda x: x == weft.ones(2),
    "power": lambda x: weft.ones(2) ** x,
    "function": weft.relu,
    "list": lambda x: weft.cat([weft.ones(2), x]),
    "module": lambda x: weft.nn.Linear(2, 2)(x),
    "recurrent": lambda x: weft.nn.GRUCell(2, 2)(x),
    "in place": lambda x: weft.ones(2).add_(x),
    "out": lambda x: weft.relu(weft.ones(2), out=x),
    "optimizer": lambda x: weft.optim.Adam([x]),
    "parameter": weft.nn.Parameter,
}
TO_PYTORCH = {
    "operator": lambda x: torch.ones(2).add(x),
    "function": torch.relu,
    "Python function": lambda x: torch.nn.functional.mse_loss(x, x),
    "list": lambda x: torch.cat([torch.ones(2), x]),
    "module": lambda x: torch.nn.Linear(2, 2)(x),
    "assignment": lambda x: torch.ones(2).copy_(x),
    "operator by name": lambda x: torch.ops.aten.relu(x),
}


class Derived(torch.Tensor):
    pass


@pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter, Derived])
@pytest.mark.parametrize("call", TO_WEFT.values(), ids=TO_WEFT)
def test_a_tensor_of_pytorch(call, kind):
    x = torch.nn.Parameter(torch.ones(2)) if kind is torch.nn.Parameter else torch.ones(2).as_subclass(kind)
    with pytest.raises(TypeError, match=rf"{kind.__name__}.*; make a tensor of it with weft.from_dlpack\(x") as caught:
        call(x)
    advised = x.detach() if "x.detach()" in str(caught.value) else x
    assert weft.from_dlpack(advised).tolist() == [1, 1]


@pytest.mark.parametrize("kind", [weft.Tensor, weft.nn.Parameter])
@pytest.mark.parametrize("call", TO_PYTORCH.values(), ids=TO_PYTORCH)
def test_a_tensor_of_weft(call, kind):
    x = weft.nn.Parameter(weft.ones(2)) if kind is weft.nn.Parameter else weft.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            TypeError, match=rf"{kind.__name__}\); make one of PyTorch's with torch.from_dlpack\(x.detach"
        ):
            call(x)
    assert torch.from_dlpack(x.detach()).tolist() == [1, 1]
