"""Conversion of numbers to other types, which `astype` does not do as PyTorch does: 8-bit floats, and integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from weft.ops._kinds import Array, Arrays, HostDType

_LEAST_NORMAL = np.float32(2.0**-126)  # XLA treats smaller numbers as zeros
_MOST = 448.0  # of float8_e4m3fn


def is_float8(dtype: DTypeLike) -> bool:
    """Whether a NumPy dtype is an 8-bit float."""
    dtype = np.dtype(dtype)
    return dtype.itemsize == 1 and dtype.kind not in "iub"


def through(dtype: DTypeLike) -> DTypeLike:
    """The NumPy type in which arrays are made that are then `converted`: float32 for 8-bit floats."""
    return np.dtype(np.float32) if is_float8(dtype) else dtype


def converted(array: Array, dtype: DTypeLike) -> Array:
    """An array that is not complex, as another element type.

    8-bit floats are rounded from float32. In `float8_e4m3fn`, which has no infinities, what is too large becomes the
    largest number; `float8_e8m0fnu` has the exponents of absolute values, and its least number in place of 0.
    """
    if is_float8(dtype) and array.dtype != dtype:
        return _rounding(np.dtype(dtype))(jnp.asarray(array).astype(jnp.float32))
    if jnp.issubdtype(dtype, jnp.integer) and jnp.issubdtype(array.dtype, jnp.floating):
        return _whole(array, np.dtype(dtype))
    return array.astype(dtype)


def _whole(array: Array, dtype: HostDType) -> Array:
    """Floating numbers as integers. What does not fit is what PyTorch's CPU code gives, and not the nearest integer.

    A CPU converts to 32 or 64 bits, where NaN and what does not fit becomes the least integer; fewer bits are the last
    ones of these, so that negative numbers wrap around in unsigned types.
    """
    if dtype == np.uint64:
        large = array >= 2.0**63
        return jnp.where(large, array.astype(dtype), _whole(array, np.dtype(np.int64)).astype(dtype))
    register = np.dtype(np.int64 if dtype.name in ("int64", "uint32") else np.int32)
    x = array.astype(jnp.float32) if array.dtype.itemsize < 4 else array
    bound = 2.0 ** (8 * register.itemsize - 1)
    fits = (x >= -bound) & (x < bound)
    return jnp.where(fits, x.astype(register), np.iinfo(register).min).astype(dtype)


@cache
def _rounding(dtype: HostDType) -> Callable[[Array], Array]:
    """The conversion of float32. Derivatives take it for the identity, also where numbers are too large."""

    @jax.custom_jvp
    def rounded(array: Array) -> Array:
        if dtype == ml_dtypes.float8_e4m3fn:
            # PyTorch saturates float8_e4m3fn, which has no infinity; a plain cast gives NaN.
            array = jnp.clip(array, -_MOST, _MOST)
        if dtype != ml_dtypes.float8_e8m0fnu:
            return array.astype(dtype)
        size = jnp.abs(array)
        least = lax.bitcast_convert_type(jnp.zeros(array.shape, jnp.uint8), dtype)
        return jnp.where(size < _LEAST_NORMAL, least, jnp.maximum(size, _LEAST_NORMAL).astype(dtype))

    @rounded.defjvp
    def _(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
        return rounded(primals[0]), tangents[0].astype(dtype)

    return rounded
