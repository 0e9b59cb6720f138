"""Precision: every result has the precision of its element type, whatever else a program computes.

XLA would keep more bits within a program: it drops casts to a narrower type and back, rewrites `log(exp(x))` to `x` and
`a / b / c` to `a / (b * c)`, and contracts products and sums. Then a value would depend on what else is computed with
it, and on when something is read.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from weft._base.types import Arg, Kwargs

KEEP_CASTS = {"xla_allow_excess_precision": False}
"""Compiler options for all programs on every device."""

_KEEP_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}  # `ops._index.isolated` and checkpoints need them


def compiler_options(platform: str) -> Kwargs:
    """The compiler options for programs of recorded applications on a jax platform."""
    return {**KEEP_CASTS, **_KEEP_BARRIERS} if platform == "cpu" else KEEP_CASTS


def is_half(dtype: Arg) -> bool:
    """Whether a type is a float of 16 or 8 bits, which is computed in float32, as in PyTorch's kernels."""
    dtype = np.dtype(dtype)
    return dtype.itemsize <= 2 and dtype.kind not in "iub"


def widened(array: jax.Array) -> jax.Array:
    """The array in the type in which it is computed."""
    return array.astype(jnp.float32) if is_half(array.dtype) else array


@jax.custom_jvp
def rewrite_barrier(array: jax.Array) -> jax.Array:
    """The array unchanged, but hidden from XLA's rewriting of later operations.

    It is a choice that depends on the value, which neither XLA nor LLVM can see through; it takes two instructions. An
    optimization barrier would keep XLA from fusing loops. 16-bit results need none, since they end with a cast.
    """
    if jnp.iscomplexobj(array):
        return lax.complex(rewrite_barrier(array.real), rewrite_barrier(array.imag))
    if not jnp.issubdtype(array.dtype, jnp.floating) or is_half(array.dtype):
        return array
    return jnp.where(array == array, array, jnp.nan)


@rewrite_barrier.defjvp
def _rewrite_barrier_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return rewrite_barrier(primals[0]), tangents[0]
