"""Names, for errors, of objects that were given in place of tensors."""

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


def array_hint(x: Any) -> str:
    """Advice how another library's array becomes a tensor, which follows its type in errors; "" for other objects."""
    if isinstance(x, jax.core.Tracer):
        return "; under a jax transformation, call the function that weft.to_jax(fn) makes"
    if isinstance(x, np.ndarray):
        return "; make a tensor of it with weft.as_tensor(x)"
    return "; make a tensor of it with weft.from_dlpack(x)" if _is_array(x) else ""


def _is_array(x: Any) -> bool:
    return hasattr(type(x), "__dlpack__") and not type(x).__module__.startswith("weft.")
