"""Public functions and methods are found by the names that they have."""

from __future__ import annotations

import pickle
from types import FunctionType

import weft
from weft._tensor.assemble import PUBLIC
from weft.nn import functional


def test_functions_and_methods_pickle_by_their_public_names():
    functions = [function for module in PUBLIC.values() for function in module.values()]
    functions += [getattr(functional, name) for name in dir(functional) if not name.startswith("_")]
    functions += [getattr(weft.Tensor, name) for name in dir(weft.Tensor)]
    plain = [function for function in functions if isinstance(function, FunctionType)]
    assert len(plain) > 1000
    for function in plain:
        assert pickle.loads(pickle.dumps(function)) is function
    assert (weft.mul.__module__, weft.mul.__qualname__) == ("weft", "mul")
