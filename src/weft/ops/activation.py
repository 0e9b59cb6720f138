"""Activation functions of one input, and the softmax family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, OutOfRangeError, ShapeError, UnsupportedDTypeError, ValueRangeError
from weft.ops._autocast import Cast
from weft.ops._dims import Factors, Sizes, along, pointwise
from weft.ops._draws import each_element
from weft.ops._kinds import Array, Dim, DTypeArg, Key, Real, Scalar
from weft.ops._neural import like, require_float, size_of
from weft.ops._reduce import to_dtype, wide
from weft.ops._table import (
    ACCELERATOR_IN_FLOAT32,
    FLOAT_TYPE,
    IN_FUNCTIONAL,
    INTERNAL,
    NO_ARITHMETIC,
    Arithmetic,
    Check,
    Derivative,
    Public,
    Shards,
    Types,
    defop,
)
from weft.ops._type_names import scalar_name

_SELU_ALPHA = 1.6732632423543772  # https://arxiv.org/abs/1706.02515
_SELU_SCALE = 1.0507009873554805
_FUNCTIONAL = "nn.functional"


def _at_most_zero(x: Array) -> Array:
    """The smaller of each element and 0: keeps exponentials finite where they are not used."""
    return jnp.where(x > 0, jnp.zeros_like(x), x)


def _relu_vjp(g: Array, out: Array) -> tuple[Array]:
    return (jnp.where(out <= 0, jnp.zeros_like(g), g),)


_OF_PACKAGE = Public(method="", inplace=True, inplace_argument=True)
_OF_FUNCTIONAL = Public(inplace=True, inplace_argument=True, module=_FUNCTIONAL)


@defop(dims=pointwise, public=Public(inplace=True, inplace_argument=True), derivative=Derivative(vjp=_relu_vjp))
def relu(input: Array) -> Array:
    """The larger of each element and 0."""
    if input.dtype == jnp.bool_:
        raise DTypeError("Boolean inputs not supported for relu")
    return jnp.maximum(input, 0)


def _require_order(min_val: Scalar, max_val: Scalar) -> None:
    if min_val > max_val:
        raise ValueRangeError("min_val cannot be greater than max_val")


@defop(dims=pointwise, public=_OF_FUNCTIONAL, check=Check(limits=_require_order))
def hardtanh(input: Array, min_val: Scalar = -1.0, max_val: Scalar = 1.0) -> Array:
    """Each element clipped to the range from `min_val` to `max_val`; the gradient is 0 on the bounds."""
    low, high = like(min_val, input), like(max_val, input)
    return jnp.where(input <= low, low, jnp.where(input >= high, high, input))


@defop(derivative=Derivative(name="Hardtanh"), dims=pointwise, public=_OF_FUNCTIONAL)
def relu6(input: Array) -> Array:
    """Each element clipped to the range from 0 to 6."""
    return hardtanh.impl(input, 0, 6)


@defop(dims=pointwise, public=_OF_FUNCTIONAL)
def leaky_relu(input: Array, negative_slope: Scalar = 0.01) -> Array:
    """Negative elements are multiplied by `negative_slope`."""
    require_float(input, "leaky_relu_cpu")
    return jnp.where(input > 0, input, input * like(negative_slope, input))


def _elu(x: Array, alpha: Scalar, scale: float, stretch: Scalar) -> Array:
    """scale * (x if x > 0 else alpha * (exp(stretch * x) - 1))."""
    require_float(x, "elu_cpu")
    w = wide(x)
    below = like(alpha, w) * jnp.expm1(like(stretch, w) * _at_most_zero(w))
    return (scale * jnp.where(w > 0, w, below)).astype(x.dtype)


@defop(dims=pointwise, public=_OF_FUNCTIONAL)
def elu(input: Array, alpha: Scalar = 1.0) -> Array:
    """x where positive, else alpha * (exp(x) - 1)."""
    return _elu(input, alpha, 1.0, 1.0)


def _require_divisor(alpha: float) -> None:
    if alpha == 0:
        raise ShapeError("ZeroDivisionError: alpha cannot be 0 for CELU")


@defop(dims=pointwise, public=_OF_PACKAGE, check=Check(limits=_require_divisor))
def celu(input: Array, alpha: Real = 1.0) -> Array:
    """x where positive, else alpha * (exp(x / alpha) - 1)."""
    return _elu(input, alpha, 1.0, 1.0 / alpha)


@defop(derivative=Derivative(name="Elu"), dims=pointwise, public=_OF_PACKAGE)
def selu(input: Array) -> Array:
    """The self-normalising ELU, with the constants of https://arxiv.org/abs/1706.02515."""
    return _elu(input, _SELU_ALPHA, _SELU_SCALE, 1.0)


_TANH_SCALE = math.sqrt(2 / math.pi)


def _gelu_slope(x: Array, approximate: str) -> Array:
    if approximate == "none":
        density = jnp.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
        return 0.5 * (1 + jax.lax.erf(x * math.sqrt(0.5))) + x * density
    t = jnp.tanh(_TANH_SCALE * (x + 0.044715 * x * x * x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _TANH_SCALE * (1 + 3 * 0.044715 * x * x)


def _gelu_vjp(g: Array, input: Array, approximate: str) -> tuple[Array]:
    return ((wide(g) * _gelu_slope(wide(input), approximate)).astype(input.dtype),)


@defop(dims=pointwise, public=IN_FUNCTIONAL, derivative=Derivative(vjp=_gelu_vjp))
def gelu(input: Array, *, approximate: str = "none") -> Array:
    """x times the probability that a standard normal variable is at most x; `"tanh"` is the usual approximation."""
    require_float(input, "GeluKernelImpl")
    x = wide(input)
    if approximate == "none":
        y = 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))
    elif approximate == "tanh":
        y = 0.5 * x * (1 + jnp.tanh(_TANH_SCALE * (x + 0.044715 * x * x * x)))
    else:
        raise ShapeError("approximate argument must be either none or tanh.")
    return y.astype(input.dtype)


@defop(dims=pointwise, public=_OF_FUNCTIONAL)
def silu(input: Array) -> Array:
    """x * sigmoid(x)."""
    if not jnp.iscomplexobj(input):
        require_float(input, "silu_cpu")
    x = wide(input)
    return (x / (1 + jnp.exp(-x)) if jnp.iscomplexobj(x) else x * jax.nn.sigmoid(x)).astype(input.dtype)


@defop(dims=pointwise, public=_OF_FUNCTIONAL)
def mish(input: Array) -> Array:
    """x * tanh(softplus(x))."""
    require_float(input, "mish_cpu")
    x = wide(input)
    return (x * jnp.tanh(jax.nn.softplus(x))).astype(input.dtype)


@defop(dims=pointwise, public=IN_FUNCTIONAL, types=ACCELERATOR_IN_FLOAT32)
def softplus(input: Array, beta: Scalar = 1.0, threshold: Scalar = 20.0) -> Array:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds `threshold`."""
    require_float(input, "softplus_cpu")
    x = wide(input)
    scaled = x * like(beta, x)
    linear = scaled > like(threshold, x)
    soft = jnp.log1p(jnp.exp(jnp.where(linear, 0, scaled))) / like(beta, x)
    return jnp.where(linear, x, soft).astype(input.dtype)


@defop(derivative=Derivative(name="LogSigmoid"), dims=pointwise, public=IN_FUNCTIONAL)
def logsigmoid(input: Array) -> Array:
    """log(sigmoid(x))."""
    require_float(input, "log_sigmoid_cpu")
    return jax.nn.log_sigmoid(wide(input)).astype(input.dtype)


@defop(types=replace(FLOAT_TYPE, arithmetic=Arithmetic.OWN), dims=pointwise, public=IN_FUNCTIONAL)
def softsign(input: Array) -> Array:
    """x / (1 + |x|)."""
    return input / (size_of(input) + 1)


@defop(types=replace(FLOAT_TYPE, arithmetic=Arithmetic.OWN), dims=pointwise, public=IN_FUNCTIONAL)
def tanhshrink(input: Array) -> Array:
    """x - tanh(x)."""
    return input - jnp.tanh(input)


@defop(dims=pointwise, public=_OF_FUNCTIONAL)
def hardsigmoid(input: Array) -> Array:
    """x / 6 + 1 / 2, clipped to the range from 0 to 1."""
    require_float(input, "hardsigmoid_cpu")
    x = wide(input)
    return jnp.where(x <= -3, 0, jnp.where(x >= 3, 1, (x + 3) / 6)).astype(input.dtype)


@defop(dims=pointwise, public=_OF_FUNCTIONAL)
def hardswish(input: Array) -> Array:
    """x * hardsigmoid(x)."""
    require_float(input, "hardswish_cpu")
    x = wide(input)
    return jnp.where(x <= -3, 0, jnp.where(x >= 3, x, x * (x + 3) / 6)).astype(input.dtype)


def _require_width(lambd: Scalar) -> None:
    if not lambd >= 0:
        raise OutOfRangeError(f"lambda must be in range [0, inf) for every input dtype, but found {lambd}")


@defop(dims=pointwise, public=IN_FUNCTIONAL, check=Check(limits=_require_width))
def softshrink(input: Array, lambd: Scalar = 0.5) -> Array:
    """Elements moved towards 0 by `lambd`; those no farther from 0 than that become 0."""
    require_float(input, "softshrink_cpu")
    step = like(lambd, input)
    return jnp.where(input > step, input - step, jnp.where(input < -step, input + step, input * 0))


@defop(
    types=NO_ARITHMETIC, dims=pointwise, public=Public(method="hardshrink", also=(_FUNCTIONAL,))
)  # the edge has the input's type
def hardshrink(input: Array, lambd: Scalar = 0.5) -> Array:
    """Elements whose absolute value is at most `lambd` become 0."""
    require_float(input, "hardshrink_cpu")
    edge = like(lambd, input)
    return jnp.where((input >= -edge) & (input <= edge), jnp.zeros_like(input), input)


@defop(dims=pointwise, public=_OF_PACKAGE)
def threshold(input: Array, threshold: Scalar, value: Scalar) -> Array:
    """`value` where an element is at most `threshold`."""
    if input.dtype == jnp.bool_:
        raise UnsupportedDTypeError("\"threshold_cpu\" not implemented for 'Bool'")
    return jnp.where(input <= like(threshold, input), like(value, input), input)


def _prelu_dims(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    per_channel = len(letters) > 1 and shapes[1] == (shapes[0][1],)
    weight = (1,) if per_channel else ("weight",) * len(shapes[1])
    return Factors((letters, weight), (letters,), frozenset({"weight"}))


@defop(
    derivative=Derivative(name="PreluKernel"),
    types=Types(autocast=Cast.LOWER, arithmetic=Arithmetic.WIDE),
    dims=_prelu_dims,
    public=Public(method="prelu", also=(_FUNCTIONAL,)),
)
def prelu(input: Array, weight: Array) -> Array:
    """Negative elements times `weight`, which holds one number, or one per entry of dim 1."""
    if input.dtype != weight.dtype:
        kinds = f"Got {scalar_name(input)} and {scalar_name(weight)}"
        raise DTypeError(f"prelu: Type promoting not supported. {kinds}")
    if weight.ndim > 1:
        raise ShapeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight.size != 1:
        if not input.ndim:
            raise ShapeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.size != channels:
            raise ShapeError(
                "Mismatch of parameter numbers and input channel size. "
                f"Found parameter numbers = {weight.size} and channel size = {channels}."
            )
        weight = weight.reshape((-1,) + (1,) * (input.ndim - 2))
    elif weight.ndim > input.ndim:
        weight = weight.reshape(())
    return jnp.where(input > 0, input, weight * input)


@defop(dims=along, public=IN_FUNCTIONAL)
def glu(input: Array, dim: Dim = -1) -> Array:
    """The first half along `dim` times the sigmoid of the second."""
    if input.ndim == 0:
        raise ShapeError("glu does not support scalars because halving size must be even")
    require_float(input, "glu_cpu")
    size = input.shape[dim]
    if size % 2:
        raise ShapeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    value, gate = jnp.split(wide(input), 2, axis=dim)
    return (value * jax.nn.sigmoid(gate)).astype(input.dtype)


@defop(derivative=Derivative(name="RreluWithNoise"), dims=pointwise, shards=Shards(drawn=each_element), public=INTERNAL)
def rrelu_train(input: Array, lower: Real, upper: Real, *, key: Key) -> Array:
    """Negative elements times slopes drawn uniformly from `lower` to `upper`."""
    require_float(input, "rrelu_with_noise_out_cpu")
    x = wide(input)
    slope = jax.random.uniform(key, input.shape, x.dtype, like(lower, x), like(upper, x)).astype(input.dtype)
    return jnp.where(input <= 0, input * slope, input)


def _softmax_input(input: Array, dim: int, dtype: DTypeArg, name: str) -> Array:
    x = to_dtype(input, dtype)
    require_float(x, f"{name}_lastdim_kernel_impl" if dim >= x.ndim - 1 else f"{name}_kernel_impl")
    return x


def _softmax_vjp(g: Array, out: Array, input: Array, dim: Dim, dtype: DTypeArg = None) -> tuple[Array]:
    del dtype
    if not input.ndim:
        return (jnp.zeros_like(input),)
    y, g = wide(out), wide(g)
    weighted = g * y
    return ((weighted - y * jnp.sum(weighted, axis=dim, keepdims=True)).astype(input.dtype),)


softens = partial(defop, dims=along, types=ACCELERATOR_IN_FLOAT32, public=Public(also=("special",)))


@softens(derivative=Derivative(vjp=_softmax_vjp))
def softmax(input: Array, dim: Dim, dtype: DTypeArg = None) -> Array:
    """Exponentials along `dim`, scaled to add up to one."""
    x = _softmax_input(input, dim, dtype, "softmax")
    return jax.nn.softmax(wide(x), axis=dim).astype(x.dtype) if x.ndim else jnp.ones_like(x)


def _log_softmax_vjp(g: Array, out: Array, input: Array, dim: Dim) -> tuple[Array]:
    if not input.ndim:
        return (jnp.zeros_like(input),)
    g = wide(g)
    return ((g - jnp.exp(wide(out)) * jnp.sum(g, axis=dim, keepdims=True)).astype(input.dtype),)


@softens(derivative=Derivative(vjp=_log_softmax_vjp))
def log_softmax(input: Array, dim: Dim, dtype: DTypeArg = None) -> Array:
    """The logarithm of `softmax`."""
    x = _softmax_input(input, dim, dtype, "log_softmax")
    return jax.nn.log_softmax(wide(x), axis=dim).astype(x.dtype) if x.ndim else jnp.zeros_like(x)


def _softmin_vjp(g: Array, out: Array, input: Array, dim: Dim, dtype: DTypeArg = None) -> tuple[Array]:
    return (-_softmax_vjp(g, out, input, dim, dtype)[0],)


@softens(derivative=Derivative(vjp=_softmin_vjp, name="Softmax"), public=INTERNAL)
def softmin(input: Array, dim: Dim, dtype: DTypeArg = None) -> Array:
    """The softmax of the negated elements."""
    return softmax.impl(-input, dim, dtype)
