"""Maxima and minima along dims, by a kernel of our own on the CPU: NaN where there is one."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.ffi
import jax.numpy as jnp
from jax.typing import DTypeLike

from weft._base import config
from weft.errors import DTypeError, ShapeError
from weft.ops._kernels.library import Array, available, require_library

_SHORTEST = 32  # numbers along a dim, from which on a call is worth it: XLA unrolls loops over fewer
_LEAST = 1 << 12  # elements, likewise
_NAMES = {
    jnp.dtype(jnp.float32): "f32",
    jnp.dtype(jnp.float64): "f64",
    jnp.dtype(jnp.float16): "f16",
    jnp.dtype(jnp.bfloat16): "bf16",
}


def serves(shape: Sequence[int], dtype: DTypeLike, axes: Sequence[int]) -> bool:
    """Whether to reduce such an array by the kernel, and whether it is there."""
    worthwhile = math.prod(shape) >= _LEAST and math.prod([shape[axis] for axis in axes]) >= _SHORTEST
    return worthwhile and dtype in _NAMES and config.NATIVE and available()


def extreme(x: Array, axes: Sequence[int], *, least: bool) -> Array:
    """The maximum along dims, or the minimum if `least`; of floats of 16 to 64 bits, and none of the dims is empty."""
    name = _NAMES.get(x.dtype)
    if name is None:
        raise DTypeError(f"extreme: the native kernel takes floats of 16 to 64 bits, got {x.dtype}")
    if x.size == 0:
        raise ShapeError(f"extreme: expected numbers to choose from, got shape {x.shape}")
    require_library("extreme")
    for first, last in reversed(_runs(axes)):  # from the last one on, so that the numbers of the others stay
        before, after = x.shape[:first], x.shape[last + 1 :]
        folded = x.reshape(math.prod(before), -1, math.prod(after))
        result = jax.ShapeDtypeStruct((folded.shape[0], folded.shape[2]), x.dtype)
        x = jax.ffi.ffi_call(f"weft_extremes_{name}", result)(folded, least=least).reshape(before + after)
    return x


def _runs(axes: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last axis of each run of axes side by side, which are reduced as one."""
    runs: list[tuple[int, int]] = []
    for axis in sorted(axes):
        first = runs.pop()[0] if runs and runs[-1][1] == axis - 1 else axis
        runs.append((first, axis))
    return runs
