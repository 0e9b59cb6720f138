"""Objects that were given in place of tensors: whose they are, and their names for errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import numpy as np


def kind_of(x: Any) -> str:
    """The type of `x`; for another library's array, with the library's name."""
    if isinstance(x, jax.Array):
        return "jax.Array"
    kind = type(x)
    named = _is_array(x) or isinstance(x, np.generic)
    return f"{kind.__module__}.{kind.__qualname__}" if named else kind.__name__


def kind_and_advice(x: Any) -> str:
    """The type of an object that was given in place of a tensor, and how another library's array becomes one."""
    return f"{kind_of(x)}{array_hint(x)}"


def array_hint(x: Any) -> str:
    """Advice how another library's array becomes a tensor, which follows its type in errors; "" for other objects."""
    if isinstance(x, jax.core.Tracer):
        return "; under a jax transformation, call the function that weft.to_jax(fn) makes"
    if isinstance(x, np.ndarray):
        return "; make a tensor of it with weft.as_tensor(x)"
    if not _is_array(x):
        return ""
    detached = ".detach()" if getattr(x, "requires_grad", False) is True else ""  # PyTorch hands out no others
    return f"; make a tensor of it with weft.from_dlpack(x{detached})"


def is_of_other_library(x: Any) -> bool:
    """Whether `x` is an array of jax's or a tensor of PyTorch's, which no operator of theirs combines with tensors."""
    return isinstance(x, jax.Array) or is_of_pytorch(type(x))


def is_of_pytorch(kind: type) -> bool:
    """Whether a class is PyTorch's tensor, or derived from it: its methods compute with nothing else.

    PyTorch may be installed, and imported, beside this package.
    """
    return any(base.__module__ == "torch._C" for base in kind.__mro__)


def _is_array(x: Any) -> bool:
    return hasattr(type(x), "__dlpack__") and not any(base.__module__.startswith("weft.") for base in type(x).__mro__)
