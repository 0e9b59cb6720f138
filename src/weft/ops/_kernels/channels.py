"""Sums over all but the channels, and batch normalisation in training, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import jax.ffi
import jax.numpy as jnp

from weft.errors import ShapeError
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._kinds import Arrays, Scalar
from weft.ops._native import Native
from weft.ops._neural import per_channel, updated_statistics

_LEAST_PLANE = 16  # elements of a channel that lie side by side in memory: a vector


def _require_channels(operation: str, x: Array, **vectors: Array) -> None:
    if x.ndim < 2:
        raise ShapeError(f"{operation}: expected (batch, channels, ...), got {x.shape}")
    for name, vector in vectors.items():
        require_shape(operation, name, vector, x.shape[1:2])
    require_floats(operation, x, *vectors.values())


def channel_sums(x: Array) -> Array:
    """The sums of (batch, channels, ...) over all dims but the channels; float32.

    XLA adds up one element after the other.
    """
    _require_channels("channel_sums", x)
    return jax.ffi.ffi_call("weft_channel_sums", struct_like(x.shape[1:2], x))(x)


def batch_norm(x: Array, weight: Array, bias: Array, eps: float) -> tuple[Array, Array, Array, Array]:
    """Each channel of (batch, channels, ...) scaled to mean 0 and variance 1, times `weight` plus `bias`; float32.

    Further results, of shape (channels,), are the mean, the variance (divided by the count) and
    1 / sqrt(variance + eps).
    """
    _require_channels("batch_norm", x, weight=weight, bias=bias)
    vector = struct_like(x.shape[1:2], x)
    call = jax.ffi.ffi_call("weft_batch_norm", (struct_like(x.shape, x), vector, vector, vector))
    y, mean, variance, rstd = call(x, weight, bias, jnp.asarray(eps, jnp.float32))
    return y, mean, variance, rstd


def batch_norm_backward(g: Array, x: Array, mean: Array, rstd: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The gradients of `batch_norm`'s x, weight and bias, from that of its first result."""
    _require_channels("batch_norm_backward", x, mean=mean, rstd=rstd, weight=weight)
    require_shape("batch_norm_backward", "the gradient", g, x.shape)
    vector = struct_like(x.shape[1:2], x)
    call = jax.ffi.ffi_call("weft_batch_norm_backward", (struct_like(x.shape, x), vector, vector))
    dx, dweight, dbias = call(g, x, mean, rstd, weight)
    return dx, dweight, dbias


def _serves(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None,
    bias: Array | None,
    per_instance: bool,
) -> bool:
    fits = input.size > 0 and math.prod(input.shape[2:]) >= _LEAST_PLANE and not per_instance
    return fits and is_float32(input, running_mean, running_var, weight, bias)


def _batch_norm(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None,
    bias: Array | None,
    momentum: Scalar,
    eps: float,
) -> tuple[Array, ...]:
    channels = input.shape[1]
    scale = jnp.ones(channels, input.dtype) if weight is None else weight
    shift = jnp.zeros(channels, input.dtype) if bias is None else bias
    y, mean, variance, rstd = batch_norm(input, scale, shift, eps)
    statistics = updated_statistics(running_mean, running_var, mean, variance, momentum, input.size // channels)
    return y, *statistics, per_channel(mean, input.ndim), per_channel(rstd, input.ndim)


def _batch_norm_vjp(
    g: Arrays,
    out: Arrays,
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None,
    bias: Array | None,
) -> tuple[Array | None, ...]:
    mean, rstd = (x.reshape(-1) for x in out[-2:])
    scale = jnp.ones_like(mean) if weight is None else weight
    dx, dweight, dbias = batch_norm_backward(g[0], input, mean, rstd, scale)
    unused = tuple(None if v is None else jnp.zeros_like(v) for v in (running_mean, running_var))
    return dx, *unused, None if weight is None else dweight, None if bias is None else dbias


BATCH_NORM = Native("cpu", _serves, _batch_norm, _batch_norm_vjp)
