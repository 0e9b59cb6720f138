"""A tensor's `__dict__` is its user's: programs copy it, pickle it and pass it on."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

import weft as torch
from weft import nn


class Tagged(torch.Tensor):
    pass


def used() -> dict[str, Any]:
    """Tensors of all kinds, with whatever they come to know while they are used."""
    x, leaf = torch.ones(4), torch.ones(2, requires_grad=True)
    view, storage = x[1:], x.untyped_storage()
    x.mul_(2)
    view.add_(1)
    x.tolist()
    x.data_ptr()
    assert storage.nbytes() == 16
    y = (leaf * 2).sum()
    y.retain_grad()
    y.backward()
    leaf.register_hook(lambda grad: grad)
    parameter = nn.Parameter(torch.ones(2))
    parameter.tolist()
    parameter.data.add_(1)
    shared = torch.ones(2)
    shared.numpy()
    return {
        "written": x,
        "view": view,
        "leaf": leaf,
        "result": y,
        "parameter": parameter,
        "subclass": (torch.ones(2) + 1).as_subclass(Tagged),
        "sparse": torch.sparse_coo_tensor([[1]], [1.0], (2,)),
        "nested": torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
        "on meta": torch.ones(2, device="meta"),
        "named": torch.ones(2, names=("n",)),
        "shown by NumPy": shared,
        "gradient": leaf.grad,
    }


@pytest.mark.parametrize("name", used())
def test_only_what_users_set_is_seen(name):
    x: Any = used()[name]
    assert vars(x) == {}
    x.tag = [1]
    assert x.__dict__ == {"tag": [1]}
    assert copy.deepcopy(x.__dict__) == {"tag": [1]}
    x.__dict__["other"] = 2
    assert x.other == 2
    x.__dict__ = {"another": 3}
    assert x.another == 3
    assert not hasattr(x, "tag")
    assert x.numel() == used()[name].numel()


def test_attributes_are_copied_and_pickled_alone():
    parameter: Any = used()["parameter"]
    parameter.tag = 1
    assert copy.copy(parameter).__dict__ == {"tag": 1}
    assert pickle.loads(pickle.dumps(parameter)).__dict__ == {"tag": 1}
    again = type(parameter)(parameter.data, **{k: v for k, v in parameter.__dict__.items() if k != "tag"})
    assert again.shape == (2,)
    assert b"_overwritten" not in pickle.dumps(parameter)


def test_a_module_is_loaded_from_its_own_file():
    """As its parameters were written and read in the meantime."""
    module = nn.Linear(2, 1)
    module.weight.tolist()
    module.weight.data.add_(1)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    with torch.serialization.safe_globals([nn.Linear]):
        assert torch.equal(torch.load(file).weight, module.weight)


def test_an_object_without_elements_says_so():
    x = object.__new__(Tagged)
    assert vars(x) == {}
    with pytest.raises(AttributeError):
        _ = x.shape
