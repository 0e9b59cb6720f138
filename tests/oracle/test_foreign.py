"""Tensors of PyTorch given to Weft, and the other way round: an error that names the type and the way out."""

from __future__ import annotations

import pickle
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
    "dataset": weft.utils.data.TensorDataset,
    "batch": lambda x: weft.utils.data.default_collate([{"a": x}]),
    "rate": lambda x: weft.optim.SGD([weft.ones(2, requires_grad=True)], lr=x),
    "clipping": lambda x: weft.nn.utils.clip_grad_norm_([x], 1.0),
    "state of a generator": weft.set_rng_state,
}
OTHER_OBJECTS = {
    "dtype": (lambda: torch.float32, lambda x: weft.zeros(2, dtype=x), "weft.float32"),
    "dtype of a cast": (lambda: torch.int8, lambda x: weft.zeros(2).to(x), "weft.int8"),
    "dtype of a module": (lambda: torch.float64, lambda x: weft.nn.Linear(2, 2).to(dtype=x), "weft.float64"),
    "dtype of a buffer": (lambda: torch.int8, lambda x: weft.frombuffer(b"ab", dtype=x), "weft.int8"),
    "default type": (lambda: torch.float64, weft.set_default_dtype, "weft.float64"),
    "limits": (lambda: torch.float16, weft.finfo, "weft.float16"),
    "device": (lambda: torch.device("cpu"), lambda x: weft.ones(2, device=x), "weft.device(type='cpu')"),
    "device of a cast": (lambda: torch.device("cuda", 1), lambda x: weft.ones(2).to(x), "index=1)"),
    "memory format": (
        lambda: torch.channels_last,
        lambda x: weft.ones(1, 2, 3, 4).contiguous(memory_format=x),
        "weft.channels_last",
    ),
    "memory format of a new tensor": (
        lambda: torch.contiguous_format,
        lambda x: weft.empty(2, memory_format=x),
        "weft.contiguous_format",
    ),
    "layout": (lambda: torch.strided, lambda x: weft.ones(2, layout=x), "weft.strided"),
    "generator": (
        lambda: torch.Generator().manual_seed(7),
        lambda x: weft.rand(2, generator=x),
        "weft.Generator().manual_seed(7)",
    ),
    "generator of a loader": (
        lambda: torch.Generator().manual_seed(7),
        lambda x: list(weft.utils.data.DataLoader([1, 2], shuffle=True, generator=x)),
        "weft.Generator().manual_seed(7)",
    ),
    "module": (lambda: torch.nn.Linear(2, 2), weft.nn.Sequential, "load_state_dict"),
    "child": (lambda: torch.nn.ReLU(), lambda x: setattr(weft.nn.Module(), "child", x), "load_state_dict"),
    "replicas": (lambda: torch.nn.ReLU(), weft.nn.DataParallel, "load_state_dict"),
    "parameter of a list": (
        lambda: torch.nn.Parameter(torch.ones(2)),
        lambda x: weft.nn.ParameterList([x]),
        "weft.from_dlpack(x.detach())",
    ),
    "optimizer": (
        lambda: torch.optim.SGD([torch.ones(2)]),
        lambda x: weft.optim.lr_scheduler.StepLR(x, 2),
        "an optimizer of weft.optim",
    ),
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


@pytest.mark.parametrize(("make", "call", "way"), OTHER_OBJECTS.values(), ids=OTHER_OBJECTS)
def test_another_object_of_pytorch(make, call, way):
    with pytest.raises(TypeError) as caught:
        call(make())
    assert way in str(caught.value)


@pytest.mark.parametrize("make", [lambda: torch.ones(2), lambda: torch.nn.Linear(1, 1), lambda: torch.float32])
def test_what_cannot_be_loaded_again_is_not_saved(make, tmp_path):
    path = tmp_path / "state.weft"
    with pytest.raises(pickle.PicklingError, match=r"obj\['a'\]\[1\]: it is a torch.*weft\.f|weft.nn"):
        weft.save({"a": [1, make()]}, path)
    assert not path.exists()
    weft.save([torch.Size([2]), torch.device("cpu")], path)
    assert weft.load(path) == [weft.Size([2]), weft.device("cpu")]


def test_a_state_dict_of_pytorch():
    ours, theirs = (x.nn.Linear(2, 1) for x in (weft, torch))
    with pytest.raises(RuntimeError, match=r"weft.from_dlpack\(x\)"):
        ours.load_state_dict(theirs.state_dict())
    ours.load_state_dict({name: weft.from_dlpack(x) for name, x in theirs.state_dict().items()})  # as errors advise
    assert ours.weight.tolist() == theirs.weight.tolist()


def test_the_state_of_an_optimizer_of_pytorch():
    theirs = torch.optim.SGD([weight := torch.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    weight.sum().backward()
    theirs.step()
    ours = weft.optim.SGD([weft.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    with pytest.raises(TypeError, match=r"weft.from_dlpack\(x\)"):
        ours.load_state_dict(theirs.state_dict())
    assert not ours.state


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
