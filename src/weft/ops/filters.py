"""Recursive filters over time."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, ShapeError
from weft.ops._dims import Factors, Sizes
from weft.ops._kinds import Array
from weft.ops._neural import require_float
from weft.ops._table import INTERNAL, defop

_BLOCK = 128
"""Samples that are computed at once, from those before them."""


def _along_time(shapes: Sequence[Sizes]) -> Factors:
    del shapes
    ins = (("batch", "channel", "time"), ("channel", "tap"), ("batch", "channel", "before"))
    return Factors(ins, (("batch", "channel", "time"),), frozenset({"time", "tap", "before"}))


@defop(dims=_along_time, public=INTERNAL)
def recursive_filter(input: Array, coefficients: Array, before: Array) -> Array:
    """Of (batch, channel, time): each output is its input less the outputs before it, times the coefficients.

    These are (channel, tap), the earliest output first; `before` has the outputs before the first input.
    """
    batch, channels, time = input.shape
    taps = coefficients.shape[-1]
    if coefficients.shape != (channels, taps) or before.shape != (batch, channels, taps):
        raise ShapeError(
            f"recursive_filter: coefficients of shape {list(coefficients.shape)} and {list(before.shape)} samples "
            f"before the first do not fit an input of shape {list(input.shape)}"
        )
    require_float(input, "recursive_filter")
    if len({x.dtype for x in (input, coefficients, before)}) > 1:
        raise DTypeError("recursive_filter: input, coefficients and the samples before must have one element type")
    if not taps or not input.size:
        return input

    # The filter is linear: a block is the sum of what its inputs and what the outputs before it make of zeros.
    def step(state: Array, x: Array) -> tuple[Array, Array]:
        y = x - jnp.einsum("kct,ct->kc", state, coefficients)
        return jnp.concatenate([state[..., 1:], y[..., None]], -1), y

    unit = jnp.zeros((_BLOCK, taps + 1, channels), input.dtype).at[0, taps].set(1)
    states = jnp.eye(taps + 1, taps, dtype=input.dtype)[:, None].repeat(channels, 1)
    responses = jax.lax.scan(step, states, unit)[1]  # (time, tap or impulse, channel)
    delays = jnp.arange(_BLOCK)[:, None] - jnp.arange(_BLOCK)
    impulse = jnp.where((delays >= 0)[..., None], responses[jnp.maximum(delays, 0), taps], 0)  # (time, time of it, ...)

    count = -(-time // _BLOCK)
    padded = jnp.pad(input, ((0, 0), (0, 0), (0, count * _BLOCK - time)))
    blocks = jnp.einsum("bcnj,ijc->nbci", padded.reshape(batch, channels, count, _BLOCK), impulse)

    def of_block(state: Array, block: Array) -> tuple[Array, Array]:
        y = block + jnp.einsum("bct,itc->bci", state, responses[:, :taps])
        return jnp.concatenate([state, y], -1)[..., -taps:], y

    outputs = jax.lax.scan(of_block, before, blocks)[1]
    return jnp.moveaxis(outputs, 0, 2).reshape(batch, channels, count * _BLOCK)[..., :time]
