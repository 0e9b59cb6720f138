"""Conversion to 8-bit floats. Other types are converted by `astype`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from weft.ops._table import Array

_LEAST_NORMAL = np.float32(2.0**-126)  # XLA treats smaller numbers as zeros
_MOST = 448.0  # of float8_e4m3fn


def is_float8(dtype: Any) -> bool:
    """Whether a NumPy dtype is an 8-bit float."""
    dtype = np.dtype(dtype)
    return dtype.itemsize == 1 and dtype.kind not in "iub"


def through(dtype: Any) -> Any:
    """The NumPy type in which arrays are made that are then `converted`: float32 for 8-bit floats."""
    return np.dtype(np.float32) if is_float8(dtype) else dtype


def converted(array: Any, dtype: Any) -> Any:
    """An array that is not complex, as another element type.

    8-bit floats are rounded from float32. In `float8_e4m3fn`, which has no infinities, what is too large becomes the
    largest number; `float8_e8m0fnu` has the exponents of absolute values, and its least number in place of 0.
    """
    if is_float8(dtype) and array.dtype != dtype:
        return _rounding(np.dtype(dtype))(jnp.asarray(array).astype(jnp.float32))
    return array.astype(dtype)


@cache
def _rounding(dtype: np.dtype[Any]) -> Callable[[Array], Array]:
    """The conversion of float32. Derivatives take it for the identity, also where numbers are too large."""

    @jax.custom_jvp
    def rounded(array: Array) -> Array:
        if dtype == ml_dtypes.float8_e4m3fn:
            array = jnp.clip(array, -_MOST, _MOST)
        if dtype != ml_dtypes.float8_e8m0fnu:
            return array.astype(dtype)
        size = jnp.abs(array)
        least = lax.bitcast_convert_type(jnp.zeros(array.shape, jnp.uint8), dtype)
        return jnp.where(size < _LEAST_NORMAL, least, jnp.maximum(size, _LEAST_NORMAL).astype(dtype))

    @rounded.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        return rounded(primals[0]), tangents[0].astype(dtype)

    return rounded
