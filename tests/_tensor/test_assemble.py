"""Public functions and methods are found by the names that they have."""

from __future__ import annotations

import pickle
from types import FunctionType

import pytest

import weft
from weft import linalg
from weft._tensor.assemble import PUBLIC, _publish
from weft._tensor.composite.pointwise import positive
from weft._tensor.functions import FUNCTIONS, composite
from weft.nn import functional
from weft.ops._table import Public


def test_functions_and_methods_pickle_by_their_public_names():
    functions = [function for module in PUBLIC.values() for function in module.values()]
    functions += [getattr(functional, name) for name in dir(functional) if not name.startswith("_")]
    functions += [getattr(weft.Tensor, name) for name in dir(weft.Tensor)]
    plain = [function for function in functions if isinstance(function, FunctionType)]
    assert len(plain) > 1000
    for function in plain:
        assert pickle.loads(pickle.dumps(function)) is function
    assert (weft.mul.__module__, weft.mul.__qualname__) == ("weft", "mul")


def test_a_function_of_two_modules_has_one_implementation():
    """They are two objects, by which `__torch_function__` tells which one was called."""
    pairs = ((functional, "sigmoid"), (functional, "pdist"), (linalg, "det"))
    for module, name in pairs:
        other, one = getattr(module, name), getattr(weft, name)
        assert other is not one
        assert other.__code__.co_code == one.__code__.co_code
        assert (other.__module__, one.__module__) == (module.__name__, "weft")
    assert "sigmoid_" not in dir(functional)


def test_properties_are_read_without_a_call():
    x = weft.tensor([[1 + 2j, 3]])
    assert (x.real.tolist(), x.imag.tolist(), x.T.shape, x.mH.shape) == ([[1, 3]], [[2, 0]], (2, 1), (2, 1))


@pytest.mark.parametrize(("module", "name"), [("", "add"), ("", "clone"), ("nn.functional", "softplus")])
def test_a_public_name_belongs_to_a_row_or_to_a_composite(module, name):
    before = FUNCTIONS[module, name]
    with pytest.raises(
        ValueError, match=f"^{module or 'the package'} has two functions '{name}'; a row .* is INTERNAL$"
    ):
        composite(name, public=Public(module=module))(positive)
    assert FUNCTIONS[module, name] is before


@pytest.mark.parametrize(("module", "name"), [("", "add"), ("nn.functional", "sigmoid")])
def test_a_public_name_has_one_function(module, name):
    before = PUBLIC[module][name]
    with pytest.raises(TypeError, match=f"has two functions '{name}'; keep one of them$"):
        _publish(module, name, weft.neg)
    assert PUBLIC[module][name] is before
