"""Objects that no call takes: whose they are, their names for errors, and what to use in their place."""

from __future__ import annotations

import jax
import jax.core
import numpy as np

from weft._base.of_pytorch import is_of_pytorch, way_from_pytorch
from weft._base.own_names import is_own_module


def kind_of(x: object) -> str:
    """The type of `x`; for another library's array, and for all of PyTorch's objects, with the library's name."""
    if isinstance(x, jax.Array):
        return "jax.Array"
    kind = type(x)
    named = _is_array(x) or isinstance(x, np.generic) or is_of_pytorch(kind)
    return f"{kind.__module__}.{kind.__qualname__}" if named else kind.__name__


def kind_and_advice(x: object) -> str:
    """The type of an object that no call takes, and what to use in place of another library's object."""
    return f"{kind_of(x)}{advice(x)}"


def advice(x: object) -> str:
    """What to use in place of another library's object, which follows its type in errors; "" for other objects."""
    if isinstance(x, jax.core.Tracer):
        return "; under a jax transformation, call the function that weft.to_jax(fn) makes"
    if isinstance(x, np.ndarray):
        return "; make a tensor of it with weft.as_tensor(x)"
    if not _is_array(x):
        return way_from_pytorch(x)
    detached = ".detach()" if getattr(x, "requires_grad", False) is True else ""  # PyTorch hands out no others
    return f"; make a tensor of it with weft.from_dlpack(x{detached})"


def is_of_other_library(x: object) -> bool:
    """Whether `x` is an array of jax's or a tensor of PyTorch's, which no operator of theirs combines with tensors."""
    return isinstance(x, jax.Array) or (_is_array(x) and is_of_pytorch(type(x)))


def _is_array(x: object) -> bool:
    return hasattr(type(x), "__dlpack__") and not any(is_own_module(base.__module__) for base in type(x).__mro__)
