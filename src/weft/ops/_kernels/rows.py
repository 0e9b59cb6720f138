"""Layer normalisation and cross entropy, row by row, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import jax.ffi
import jax.numpy as jnp

from weft.errors import DTypeError, ShapeError
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._kinds import Arrays, Shape
from weft.ops._native import Native, is_number

_LEAST = 1 << 14  # elements, from which on a call is worth it


def _require_rows(operation: str, x: Array, weight: Array) -> tuple[int, ...]:
    """The shape of what belongs to a row; `weight` has that of a row."""
    if x.shape[x.ndim - weight.ndim :] != weight.shape:
        raise ShapeError(f"{operation}: expected rows of shape {weight.shape} in the last dims, got {x.shape}")
    return x.shape[: x.ndim - weight.ndim] + (1,) * weight.ndim


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> tuple[Array, Array, Array]:
    """The last dims scaled to mean 0 and variance 1, times `weight` plus `bias`, which have these dims; float32.

    Further results are the mean and 1 / sqrt(variance + eps), in which the last dims have size 1.
    """
    each = struct_like(_require_rows("layer_norm", x, weight), x)
    require_shape("layer_norm", "bias", bias, weight.shape)
    require_floats("layer_norm", x, weight, bias)
    call = jax.ffi.ffi_call("weft_layer_norm", (struct_like(x.shape, x), each, each))
    y, mean, rstd = call(x, weight, bias, jnp.asarray(eps, jnp.float32))
    return y, mean, rstd


def layer_norm_backward(g: Array, x: Array, mean: Array, rstd: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The gradients of `layer_norm`'s x, weight and bias, from that of its first result."""
    each = _require_rows("layer_norm_backward", x, weight)
    for name, array, shape in (("the gradient", g, x.shape), ("mean", mean, each), ("rstd", rstd, each)):
        require_shape("layer_norm_backward", name, array, shape)
    require_floats("layer_norm_backward", g, x, mean, rstd, weight)
    vector = struct_like(weight.shape, x)
    dx, dweight, dbias = jax.ffi.ffi_call("weft_layer_norm_backward", (struct_like(x.shape, x), vector, vector))(
        g, x, mean, rstd, weight
    )
    return dx, dweight, dbias


def _require_classes(operation: str, x: Array, classes: Array) -> None:
    if x.ndim != 2:
        raise ShapeError(f"{operation}: expected (rows, classes), got {x.shape}")
    require_shape(operation, "classes", classes, x.shape[:1])
    if classes.dtype != jnp.int64:
        raise DTypeError(f"{operation}: classes are int64, got {classes.dtype}")
    require_floats(operation, x)


def cross_entropy(x: Array, classes: Array) -> tuple[Array, Array]:
    """The negative logarithm of the softmax of (rows, classes) at each row's class, and norms (rows, 2); float32.

    These are each row's maximum and log(sum(exp(x - maximum))), which together would lose digits.

    `classes` are int64, and less than the number of classes, or negative for no class: such losses are 0.
    """
    _require_classes("cross_entropy", x, classes)
    outs = (struct_like(x.shape[:1], x), struct_like((x.shape[0], 2), x))
    losses, norms = jax.ffi.ffi_call("weft_cross_entropy", outs)(x, classes)
    return losses, norms


def cross_entropy_backward(g: Array, x: Array, classes: Array, norms: Array) -> Array:
    """The gradient of `cross_entropy`'s x, from those of its losses; `norms` is its second result."""
    _require_classes("cross_entropy_backward", x, classes)
    require_shape("cross_entropy_backward", "the gradient", g, x.shape[:1])
    require_shape("cross_entropy_backward", "what norms holds", norms, (x.shape[0], 2))
    require_floats("cross_entropy_backward", g, norms)
    call = jax.ffi.ffi_call("weft_cross_entropy_backward", struct_like(x.shape, x))
    return call(g, x, classes, norms)


# --- bodies of rows of the table ------------------------------------------------------------------------------


def _serves_layer_norm(input: Array, weight: Array | None, bias: Array | None) -> bool:
    return input.size >= _LEAST and is_float32(input, weight, bias)


def _layer_norm(
    input: Array, normalized_shape: Shape, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    scale = jnp.ones(normalized_shape, input.dtype) if weight is None else weight
    return layer_norm(input, scale, jnp.zeros_like(scale) if bias is None else bias, eps)


def _layer_norm_vjp(
    g: Array, out: Arrays, input: Array, normalized_shape: Shape, weight: Array | None, bias: Array | None
) -> tuple[Array | None, ...]:
    _, mean, rstd = out
    scale = jnp.ones(normalized_shape, input.dtype) if weight is None else weight
    dx, dweight, dbias = layer_norm_backward(g, input, mean, rstd, scale)
    return dx, None if weight is None else dweight, None if bias is None else dbias


def _serves_cross_entropy(input: Array, target: Array, weight: Array | None, label_smoothing: float) -> bool:
    of_classes = input.ndim == 2 and is_number(label_smoothing, 0) and jnp.issubdtype(target.dtype, jnp.integer)
    return of_classes and input.size >= _LEAST and is_float32(input, weight)


def _classes(input: Array, target: Array, weight: Array | None, ignore_index: int) -> tuple[Array, Array]:
    """Each row's class, -1 for none, and its share in a mean."""
    target = target.astype(jnp.int64)
    used = (target != ignore_index) & (target >= 0) & (target < input.shape[1])
    share = used.astype(input.dtype) if weight is None else jnp.where(used, weight[jnp.where(used, target, 0)], 0)
    return jnp.where(used, target, -1), share


def _cross_entropy(
    input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str
) -> tuple[Array, Array]:
    classes, share = _classes(input, target, weight, ignore_index)
    losses, norms = cross_entropy(input, classes)
    losses = jnp.where(share == 0, 0, share * losses)
    if reduction == "none":
        return losses, norms
    total = jnp.sum(losses)
    return total / jnp.sum(share) if reduction == "mean" else total, norms


def _cross_entropy_vjp(
    g: Array,
    out: tuple[Array, Array],
    input: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int,
    reduction: str,
) -> tuple[Array | None, ...]:
    classes, share = _classes(input, target, weight, ignore_index)
    scale = share * g / (jnp.sum(share) if reduction == "mean" else 1)
    dx = cross_entropy_backward(jnp.where(share == 0, 0, scale), input, classes, out[1])
    return dx, None, None if weight is None else jnp.zeros_like(weight)


LAYER_NORM = Native("cpu", _serves_layer_norm, _layer_norm, _layer_norm_vjp)
CROSS_ENTROPY = Native("cpu", _serves_cross_entropy, _cross_entropy, _cross_entropy_vjp)
