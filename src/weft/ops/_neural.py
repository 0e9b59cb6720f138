"""Helpers of the rows of neural networks: accumulation types, checks, and reductions of losses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp

from weft._base.dtype import from_numpy
from weft._base.types import Arg
from weft.errors import ShapeError, UnsupportedDTypeError, ValueRangeError
from weft.ops._dims import Factors, Sizes, Static, pointwise
from weft.ops._kinds import Array, Key, Padding, Real, Scalar, Shape
from weft.ops._reduce import wide
from weft.ops._table import IN_FLOAT32, Shards, defop
from weft.ops._type_names import scalar_name

FLOAT_MEAN = "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype."


def require_float(x: Array, kernel: str) -> None:
    """Refuse anything but real floating types, in the words of PyTorch's dispatch."""
    if not from_numpy(x.dtype).is_floating_point:
        raise UnsupportedDTypeError(f"\"{kernel}\" not implemented for '{scalar_name(x)}'")


def first_empty(x: Array | Sequence[int], start: int) -> int | None:
    """The first dim from `start` on that has size 0, in an array or a shape; None if there is none."""
    shape = x if isinstance(x, Sequence) else x.shape
    return next((dim for dim in range(start, len(shape)) if shape[dim] == 0), None)


def require_space(x: Array, n: int) -> None:
    """Require (channels, n dims) or (batch, channels, n dims), where no dim but the batch may be empty."""
    if x.ndim not in (n + 1, n + 2) or first_empty(x, x.ndim - n - 1) is not None:
        raise ShapeError(
            f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(x.shape)}"
        )


def like(value: Scalar, x: Array) -> Array:
    """A Python number or 0-d array in the type of `x`."""
    return jnp.asarray(value).astype(x.dtype)


def dropout_mask(key: Key, shape: Sizes, p: Real) -> Array:
    """A bool mask that is False with probability `p`.

    It takes 16 random bits for each element, which is half the work of 32; `p` is met to within 1 / 131072.
    """
    least = jnp.minimum(jnp.round(jnp.asarray(p, jnp.float64) * 65536), 65535).astype(jnp.uint16)
    return (jax.random.bits(key, shape, jnp.uint16) >= least) & (jnp.asarray(p) < 1)


def ntuple(value: Arg, n: int) -> tuple[Arg, ...]:
    """A value repeated `n` times; an iterable becomes a tuple, whatever its length."""
    return tuple(cast("Iterable[Arg]", value)) if isinstance(value, Iterable) else (value,) * n


def as_ntuple(value: int | Iterable[int], n: int, what: str, op: str = "") -> tuple[int, ...]:
    """An int or a sequence of one or `n` ints, as `n` ints."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) not in (1, n):
        if op:
            words = {1: "an int", 2: "a tuple of two ints", 3: "a tuple of three ints"}[n]
            raise ShapeError(f"{op}: {what} must either be a single int, or {words}")
        raise ShapeError(
            f"expected {what} to be a single integer value or a list of {n} values "
            f"to match the convolution dimensions, but got {what}={list(values)}"
        )
    return values * n if len(values) == 1 else values


def per_channel(vector: Array, ndim: int) -> Array:
    """A vector over dim 1, with ones to broadcast over `ndim` dims."""
    return vector.reshape((-1,) + (1,) * (ndim - 2)) if ndim > 1 else vector


def updated_statistics(
    running_mean: Array | None, running_var: Array | None, mean: Array, variance: Array, momentum: Scalar, count: int
) -> tuple[Array, Array]:
    """Running statistics after a batch of `count` values; where none are kept, those of the batch.

    `variance` is that of the batch divided by the count. The running one estimates that of all data.
    """

    def updated(running: Array | None, fresh: Array) -> Array:
        if running is None or not count:
            return fresh if running is None else running
        rate = jnp.asarray(momentum).astype(fresh.dtype)
        return ((1 - rate) * running.astype(fresh.dtype) + rate * fresh).astype(running.dtype)

    return updated(running_mean, mean), updated(running_var, variance * (count / max(count - 1, 1)))


def reduction_name(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction as a string; the two booleans are PyTorch's older way to state it."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def reduced(loss: Array, reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> Array:
    """The mean or the sum of the losses, or all of them."""
    reduction = reduction_name(reduction, size_average, reduce)
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ValueRangeError(f"{reduction} is not a valid value for reduction")
    total = jnp.sum(wide(loss))
    if reduction == "mean":
        total = total / loss.size if loss.size else total * jnp.nan
    return total.astype(loss.dtype)


def size_of(x: Array) -> Array:
    """Absolute values, whose gradient at 0 is 0."""
    return jnp.abs(x) if jnp.iscomplexobj(x) else x * jnp.sign(x)


def element_loss(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For losses of broadcasting inputs: without reduction the dims stay, otherwise none does."""
    factors = pointwise(shapes, static)
    return factors if reduction_of(static) == "none" else Factors(factors.ins, ((),))


def reduction_of(static: Static) -> str:
    """The reduction of a call of a loss, as a string."""
    return reduction_name(static.get("reduction", "mean"), static.get("size_average"), static.get("reduce"))


def partial_loss(static: Static) -> str:
    """How the losses of parts are put together: as sums, or as means of equally many."""
    return {"sum": "sum", "mean": "avg"}.get(reduction_of(static), "")


element_row = partial(defop, dims=element_loss, shards=Shards(partial=partial_loss), types=IN_FLOAT32)
"""`defop` for losses of single elements that are then reduced. Autocast computes them in float32."""


def margins(padding: Padding, kernel: Shape, stride: Shape, dilation: Shape) -> list[tuple[int, int]]:
    """Padding before and after each spatial dim, from PyTorch's `padding` argument."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        if max(stride) > 1:
            raise ShapeError("padding='same' is not supported for strided convolutions")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(t // 2, t - t // 2) for t in totals]
    if isinstance(padding, str):
        raise ShapeError(f"Invalid padding string: '{padding}'")
    values = as_ntuple(padding, len(kernel), "padding")
    if min(values) < 0:
        raise ShapeError("negative padding is not supported")
    return [(p, p) for p in values]


def attention_scale(query: Array, scale: float | None) -> float:
    """What scores are multiplied by: one over the root of the number of features, unless it is given."""
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def delayed(xs: Array, first: Array, reverse: bool) -> Array:
    """The sequence `xs` delayed by one step, with `first` at the start."""
    return jnp.concatenate([xs[1:], first[None]] if reverse else [first[None], xs[:-1]])


def has_step(lengths: Array, steps: int) -> Array:
    """Whether sequences of these lengths have each step, as (time, batch, 1)."""
    return (jnp.arange(steps)[:, None] < lengths)[..., None]


def states_before(ys: Array, h0: Array, lengths: Array | None, reverse: bool) -> Array:
    """The state before each step of a recurrent layer; in reverse, a sequence starts at its own end."""
    return delayed(ys if lengths is None else jnp.where(has_step(lengths, len(ys)), ys, h0), h0, reverse)
