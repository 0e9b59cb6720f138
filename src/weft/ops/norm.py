"""Normalisation over features, batches, groups and neighbouring channels.

Each row saves the mean and the reciprocal standard deviation, because computing them again is the main cost of a
backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, OutOfRangeError, ShapeError, ValueRangeError
from weft.ops._dims import Factors, Sizes, Static, along
from weft.ops._kernels.channels import BATCH_NORM
from weft.ops._kernels.rows import LAYER_NORM
from weft.ops._kinds import Array, Arrays, Dims, Real, Scalar, Shape
from weft.ops._neural import like, per_channel, require_float, updated_statistics
from weft.ops._norms import vector_norms
from weft.ops._reduce import wide
from weft.ops._table import ACCELERATOR_IN_FLOAT32, IN_FUNCTIONAL, INTERNAL, Derivative, Promote, Public, Types, defop
from weft.ops._type_names import scalar_name


def _moments(x: Array, axes: tuple[int, ...], eps: Real) -> tuple[Array, Array, Array]:
    """Mean, variance and 1 / sqrt(variance + eps) over `axes`, which keep size one."""
    mean = jnp.mean(x, axis=axes, keepdims=True)
    # Of differences: the mean of squares minus the square of the mean cancels, and equal numbers would not be
    # normalised to exactly 0.
    variance = jnp.mean(jnp.square(x - mean), axis=axes, keepdims=True)
    return mean, variance, jax.lax.rsqrt(variance + like(eps, x))


def _input_gradient(g: Array, normal: Array, rstd: Array, axes: tuple[int, ...]) -> Array:
    """Gradient of x from that of `normal` = (x - mean) * rstd."""
    tilt = jnp.mean(g * normal, axis=axes, keepdims=True)
    return rstd * (g - jnp.mean(g, axis=axes, keepdims=True) - normal * tilt)


def _sum_to(g: Array, parameter: Array | None, axes: tuple[int, ...]) -> Array | None:
    """Gradient of an affine parameter: `g` summed over `axes`."""
    if parameter is None:
        return None
    return jnp.sum(g, axis=axes).reshape(parameter.shape).astype(parameter.dtype)


def _require_one_dtype(input: Array, *vectors: Array | None) -> None:
    """Require the parameters to have the input's type; beside a half type, float32 is allowed too."""
    for vector in vectors:
        if vector is not None and vector.dtype not in (input.dtype, wide(input).dtype):
            raise DTypeError("mixed dtype (CPU): all inputs must share same datatype.")


def _check_affine(input: Array, shape: Shape, star: str, *affine: tuple[str, Array | None]) -> None:
    if not shape:
        raise ShapeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., "
            f"containing at least one element, but got normalized_shape = {list(shape)}"
        )
    for name, parameter in affine:
        if parameter is not None and parameter.shape != tuple(shape):
            raise ShapeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} "
                f"of shape {list(parameter.shape)} and normalized_shape = {list(shape)}"
            )
    if input.ndim < len(shape) or input.shape[input.ndim - len(shape) :] != tuple(shape):
        sizes = ", ".join(str(s) for s in shape)
        raise ShapeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*{star}{sizes}], "
            f"but got input of size{list(input.shape)}"
        )


def _last_axes(input: Array, shape: Shape) -> tuple[int, ...]:
    return tuple(range(input.ndim - len(shape), input.ndim))


def _trailing(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Parameters match the last dims, which must be whole."""
    ndim, depth = len(shapes[0]), len(static["normalized_shape"])
    letters = tuple(range(ndim))
    return Factors(tuple(letters[ndim - len(s) :] for s in shapes), (letters,), frozenset(letters[ndim - depth :]))


def _layer_norm_vjp(
    g: Array, out: Arrays, input: Array, normalized_shape: Shape, weight: Array | None, bias: Array | None
) -> tuple[Array | None, ...]:
    _, mean, rstd = out
    axes = _last_axes(input, normalized_shape)
    rows = tuple(range(axes[0]))
    g, normal = wide(g), (wide(input) - mean) * rstd
    g_normal = g if weight is None else g * wide(weight)
    g_input = _input_gradient(g_normal, normal, rstd, axes).astype(input.dtype)
    return g_input, _sum_to(g * normal, weight, rows), _sum_to(g, bias, rows)


@defop(
    derivative=Derivative(vjp=_layer_norm_vjp, aux=2, name="NativeLayerNorm"),
    dims=_trailing,
    types=ACCELERATOR_IN_FLOAT32,
    public=Public(function=False, method="", also=("nn.functional",)),
    native=[LAYER_NORM],
)
def layer_norm(
    input: Array,
    normalized_shape: Shape,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: Real = 1e-5,
) -> tuple[Array, Array, Array]:
    """The last dims scaled to mean 0 and variance 1, then times `weight` plus `bias`."""
    _check_affine(input, normalized_shape, ", ", ("weight", weight), ("bias", bias))
    _require_one_dtype(input, weight, bias)
    require_float(input, "LayerNormKernelImpl")
    x = wide(input)
    mean, _, rstd = _moments(x, _last_axes(input, normalized_shape), eps)
    y = (x - mean) * rstd
    y = y if weight is None else y * wide(weight)
    return (y if bias is None else y + wide(bias)).astype(input.dtype), mean, rstd


def _rms_norm_vjp(
    g: Array, out: Arrays, input: Array, normalized_shape: Shape, weight: Array | None
) -> tuple[Array | None, ...]:
    rstd = out[1]
    axes = _last_axes(input, normalized_shape)
    g, normal = wide(g), wide(input) * rstd
    g_normal = g if weight is None else g * wide(weight)
    g_input = rstd * (g_normal - normal * jnp.mean(g_normal * normal, axis=axes, keepdims=True))
    return g_input.astype(input.dtype), _sum_to(g * normal, weight, tuple(range(axes[0])))


@defop(
    dims=_trailing,
    types=ACCELERATOR_IN_FLOAT32,
    derivative=Derivative(vjp=_rms_norm_vjp, aux=1),
    public=Public(method="", also=("nn.functional",)),
)
def rms_norm(
    input: Array, normalized_shape: Shape, weight: Array | None = None, eps: Real | None = None
) -> tuple[Array, Array]:
    """The last dims divided by their root mean square, then times `weight`."""
    _check_affine(input, normalized_shape, "", ("weight", weight))
    x = wide(input)
    floor = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    power = jnp.mean(jnp.square(x), axis=_last_axes(input, normalized_shape), keepdims=True)
    rstd = jax.lax.rsqrt(power + like(floor, x))
    y = x * rstd
    return (y if weight is None else y * wide(weight)).astype(input.dtype), rstd


def _channels(shapes: Sequence[Sizes]) -> Factors:
    """Parameters match dim 1, the only dim that may be split."""
    letters = tuple(range(len(shapes[0])))
    return Factors((letters, *((1,) for _ in shapes[1:])), (letters, (1,), (1,)), frozenset(letters) - {1})


def _check_channels(input: Array, **vectors: Array | None) -> None:
    channels = input.shape[1] if input.ndim > 1 else 0
    for name, vector in vectors.items():
        if vector is not None and vector.size != channels:
            raise ShapeError(f"{name} should contain {channels} elements not {vector.size}")


def _affine_vjp(
    g: Array, normal: Array, weight: Array | None, bias: Array | None
) -> tuple[Array, Array | None, Array | None]:
    """Gradients of the normalised input, the weight and the bias of `normal * weight + bias`."""
    rows = tuple(d for d in range(g.ndim) if d != 1)
    g_normal = g if weight is None else g * per_channel(wide(weight), g.ndim)
    return g_normal, _sum_to(g * normal, weight, rows), _sum_to(g, bias, rows)


def _affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    y = y if weight is None else y * per_channel(wide(weight), y.ndim)
    return y if bias is None else y + per_channel(wide(bias), y.ndim)


def _batch_axes(input: Array, per_instance: bool) -> tuple[int, ...]:
    spatial = tuple(range(2, input.ndim))
    return spatial if per_instance else (0, *spatial)


def _batch_norm_vjp(
    g: Arrays,
    out: Arrays,
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None,
    bias: Array | None,
    per_instance: bool,
) -> tuple[Array | None, ...]:
    *_, mean, rstd = out
    normal = (wide(input) - mean) * rstd
    g_normal, g_weight, g_bias = _affine_vjp(wide(g[0]), normal, weight, bias)
    g_input = _input_gradient(g_normal, normal, rstd, _batch_axes(input, per_instance))
    unused = tuple(None if v is None else jnp.zeros_like(v) for v in (running_mean, running_var))
    return (g_input.astype(input.dtype), *unused, g_weight, g_bias)


@defop(
    derivative=Derivative(vjp=_batch_norm_vjp, aux=2, name="NativeBatchNorm"),
    dims=_channels,
    outputs=("output", "running_mean", "running_var"),
    native=[BATCH_NORM],
    public=INTERNAL,
)
def batch_norm_train(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    momentum: Scalar = 0.1,
    eps: Real = 1e-5,
    per_instance: bool = False,
) -> tuple[Array, ...]:
    """Each channel scaled to mean 0 and variance 1 over the batch, or within each sample (`per_instance`).

    Further outputs are the running statistics after this batch, which carry no gradient.
    """
    axes = _batch_axes(input, per_instance)
    count = 1
    for axis in axes:
        count *= input.shape[axis]
    if count == 1:
        what = "spatial element" if per_instance else "value per channel"
        sizes = f"torch.Size({list(input.shape)})"
        raise ValueRangeError(f"Expected more than 1 {what} when training, got input size {sizes}")
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    require_float(input, "batch_norm")
    _require_one_dtype(input, weight, bias, running_mean, running_var)
    # Means and variances of 16-bit floats are computed in float32, as PyTorch does.
    x = wide(input)
    mean, variance, rstd = _moments(x, axes, eps)
    y = _affine((x - mean) * rstd, weight, bias).astype(input.dtype)
    rows = tuple(d for d in range(input.ndim) if d != 1)
    of_batch = jnp.mean(mean, axis=rows), jnp.mean(variance, axis=rows)
    return y, *updated_statistics(running_mean, running_var, *of_batch, momentum, count), mean, rstd


def _channels_eval(shapes: Sequence[Sizes]) -> Factors:
    factors = _channels(shapes)
    return Factors(factors.ins, factors.outs[:1])


@defop(derivative=Derivative(name="NativeBatchNorm"), dims=_channels_eval, public=INTERNAL)
def batch_norm_eval(
    input: Array,
    running_mean: Array,
    running_var: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: Real = 1e-5,
) -> Array:
    """Each channel shifted and scaled by the running statistics."""
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    require_float(input, "batch_norm")
    _require_one_dtype(input, weight, bias, running_mean, running_var)
    scale = jax.lax.rsqrt(wide(running_var) + like(eps, wide(running_var)))
    scale = scale if weight is None else scale * wide(weight)
    y = (wide(input) - per_channel(wide(running_mean), input.ndim)) * per_channel(scale, input.ndim)
    return (y if bias is None else y + per_channel(wide(bias), input.ndim)).astype(input.dtype)


def _grouped(x: Array, num_groups: int) -> Array:
    return x.reshape(x.shape[0], num_groups, math.prod(x.shape[1:]) // num_groups)


def _group_norm_vjp(
    g: Array, out: Arrays, input: Array, num_groups: int, weight: Array | None, bias: Array | None
) -> tuple[Array | None, ...]:
    _, mean, rstd = out
    normal = (_grouped(wide(input), num_groups) - mean) * rstd
    g_normal, g_weight, g_bias = _affine_vjp(wide(g), normal.reshape(input.shape), weight, bias)
    g_input = _input_gradient(_grouped(g_normal, num_groups), normal, rstd, (2,))
    return g_input.reshape(input.shape).astype(input.dtype), g_weight, g_bias


def _check_groups(input: Array, num_groups: int, **vectors: Array | None) -> None:
    if input.ndim < 2:
        raise ShapeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    sizes = list(input.shape)
    if num_groups <= 0:
        raise OutOfRangeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if input.shape[1] % num_groups:
        raise ShapeError(
            "Expected number of channels in input to be divisible by num_groups, "
            f"but got input of shape {sizes} and num_groups={num_groups}"
        )
    for name, vector in vectors.items():
        if vector is not None and vector.shape != (input.shape[1],):
            raise ShapeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(vector.shape)} and input of shape {sizes}"
            )


def _group_dims(shapes: Sequence[Sizes]) -> Factors:
    factors = _channels_eval(shapes)
    return Factors(factors.ins, factors.outs, frozenset(range(1, len(shapes[0]))))


@defop(
    derivative=Derivative(vjp=_group_norm_vjp, aux=2, name="NativeGroupNorm"),
    dims=_group_dims,
    types=ACCELERATOR_IN_FLOAT32,
    public=INTERNAL,
)
def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: Real = 1e-5
) -> tuple[Array, Array, Array]:
    """Groups of channels of each sample scaled to mean 0 and variance 1, then times `weight` plus `bias`."""
    _check_groups(input, num_groups, weight=weight, bias=bias)
    _require_one_dtype(input, weight, bias)
    require_float(input, "GroupNormKernelImpl")
    groups = _grouped(wide(input), num_groups)
    mean, _, rstd = _moments(groups, (2,), eps)
    normal = ((groups - mean) * rstd).reshape(input.shape)
    return _affine(normal, weight, bias).astype(input.dtype), mean, rstd


def _across_channels(shapes: Sequence[Sizes], static: Static) -> Factors:
    return along(shapes, {**static, "dim": 1})


@defop(dims=_across_channels, types=Types(promote=Promote.FLOAT, exact_numbers=True), public=IN_FUNCTIONAL)
def local_response_norm(input: Array, size: int, alpha: Real = 1e-4, beta: Real = 0.75, k: Real = 1.0) -> Array:
    """Each element divided by (k + alpha * mean square over `size` neighbouring channels) ** beta."""
    if input.ndim < 3:
        raise ValueRangeError(
            f"Expected 3D or higher dimensionality                          input (got {input.ndim} dimensions)"
        )
    before = size // 2
    margin = [(0, 0)] * input.ndim
    margin[1] = (before, size - 1 - before)
    squares = jnp.pad(jnp.square(input), margin)
    channels = input.shape[1]
    near = sum(jax.lax.slice_in_dim(squares, i, i + channels, axis=1) for i in range(size))
    alpha, beta, k = (like(number, input) for number in (alpha, beta, k))
    return input / (near / size * alpha + k) ** beta


@defop(dims=along, types=ACCELERATOR_IN_FLOAT32, public=IN_FUNCTIONAL)
def normalize(input: Array, p: float = 2.0, dim: Dims = 1, eps: Real = 1e-12) -> Array:
    """Vectors along `dim`, or over several dims, divided by their p-norm, or by `eps` if that is larger."""
    if not jnp.issubdtype(input.dtype, jnp.inexact):
        expected = "Expected a floating point or complex tensor as input."
        raise DTypeError(f"linalg.vector_norm: {expected} Got {scalar_name(input)}")
    x = wide(input)
    length = vector_norms(x, p, dim)
    least = like(eps, length)
    return (x / jnp.where(length >= least, length, least)).astype(input.dtype)
