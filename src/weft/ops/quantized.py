"""Rows that put numbers on a grid of integers, `x = (q - zero_point) * scale`, and compute with such integers.

A scale and a zero point are those of all elements (no dims, or one of size one), or have one entry for each index along
`axis`. `_tensor/quantized` makes tensors of the integers; the products' results are scaled by other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NoReturn

import jax.numpy as jnp
import numpy as np
from jax import lax

from weft._base.dtype import FLOAT
from weft.errors import LacksAttributeError, ShapeError
from weft.ops._dims import Factors, PartOf, Sizes, Static
from weft.ops._kinds import Array, DTypeArg, Ints, OwnDim, Whole
from weft.ops._neural import as_ntuple
from weft.ops._rows import require
from weft.ops._table import INTERNAL, NO_DERIVATIVE, OWN_ARITHMETIC, Derivative, Shards, defop
from weft.ops.conv import check_steps, require_reach


def __getattr__(name: str) -> NoReturn:
    """The module has the name of a namespace of PyTorch's operators, which programs look for here."""
    raise LacksAttributeError(
        f"'_OpNamespace' 'quantized' object has no attribute {name!r}: functions of quantized tensors are in "
        "torch.ao.nn.quantized.functional, sums and products in torch.ao.nn.quantized.QFunctional"
    )


# --- to the grid and back ---------------------------------------------------------------------------------------


def _affine_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """All dims stay; scale and zero point go along `axis`."""
    own, axis = tuple(range(len(shapes[0]))), static["axis"]
    grid = tuple([() if not s else ("one",) if axis is None else (axis,) for s in shapes[1:]])
    return Factors((own, *grid), (own,), frozenset({"one"}))


def _along(x: Array, ndim: int, axis: OwnDim | None) -> Array:
    """A scale or a zero point, shaped to broadcast against `ndim` dims."""
    if axis is None:
        return x.reshape(())
    return x.reshape([-1 if d == axis else 1 for d in range(ndim)])


def _real(x: Array) -> Array:
    """Zero points as float32."""
    return x.astype(jnp.float32)


@defop("quantize_affine", dims=_affine_dims, derivative=NO_DERIVATIVE, public=INTERNAL)
def quantize_affine(input: Array, scale: Array, zero_point: Array, axis: OwnDim | None, dtype: DTypeArg) -> Array:
    """The integers of type `dtype` nearest to `input / scale + zero_point`, ties to even, within the type's range."""
    target = np.iinfo(dtype.numpy)
    inverse = _along(1 / _real(scale), input.ndim, axis)
    levels = jnp.round(input * inverse + _along(_real(zero_point), input.ndim, axis))
    if target.bits > 16:  # float32 does not have the ends of the range
        levels = levels.astype(jnp.float64)
    return jnp.clip(levels, target.min, target.max).astype(dtype.numpy)


@defop("dequantize_affine", dims=_affine_dims, derivative=NO_DERIVATIVE, public=INTERNAL)
def dequantize_affine(input: Array, scale: Array, zero_point: Array, axis: OwnDim | None) -> Array:
    """The float32 numbers that integers stand for."""
    shift = _along(_real(zero_point), input.ndim, axis)
    return (input.astype(jnp.float32) - shift) * _along(_real(scale), input.ndim, axis)


def _levels(input: Array, scale: Array, zero_point: Array, axis: OwnDim | None) -> Array:
    inverse, shift = (_along(x, input.ndim, axis) for x in (1 / _real(scale), _real(zero_point)))
    if jnp.issubdtype(zero_point.dtype, jnp.floating):
        return jnp.round(input * inverse + shift)
    return jnp.round(input * inverse) + shift


def _straight_through(
    g: Array, input: Array, scale: Array, zero_point: Array, axis: OwnDim | None, quant_min: Whole, quant_max: Whole
) -> tuple[Array, None, None]:
    levels = _levels(input, scale, zero_point, axis)
    return jnp.where((levels >= quant_min) & (levels <= quant_max), g, 0).astype(input.dtype), None, None


@defop(
    "fake_quantize_affine",
    dims=_affine_dims,
    derivative=Derivative(vjp=_straight_through, name="FakeQuantizePerTensorAffineCachemask"),
    public=INTERNAL,
)
def fake_quantize_affine(
    input: Array, scale: Array, zero_point: Array, axis: OwnDim | None, quant_min: Whole, quant_max: Whole
) -> Array:
    """Numbers rounded to those that the grid has between two levels. Gradients pass where the number is between them.

    An integer zero point is added after rounding, a real one before it.
    """
    require(input, "fake_quantize_tensor_cachemask_kernel_type_handling", FLOAT)
    levels = _levels(input, scale, zero_point, axis)
    least, most = (jnp.asarray(bound).astype(levels.dtype) for bound in (quant_min, quant_max))
    levels = jnp.clip(jnp.where(jnp.isnan(levels), least, levels), least, most)
    shift = _along(_real(zero_point), input.ndim, axis)
    return ((levels - shift) * _along(_real(scale), input.ndim, axis)).astype(input.dtype)


# --- products of integers ---------------------------------------------------------------------------------------

_EXACT = 2**24
"""Up to here, float32 has all integers."""


def _centered(x: Array, zero: Array | None) -> Array:
    """8-bit integers minus their zero point, which has the dim 0 of the integers or none, as float32."""
    own = x.astype(jnp.float32)
    return own if zero is None else own - _along(_real(zero), x.ndim, 0 if zero.ndim else None)


def _largest(weight: Array, zero: Array | None) -> int:
    """A bound of 8-bit weights minus their zero points."""
    return 128 if zero is None and weight.dtype == jnp.int8 else 255


def _summed(x: Array, w: Array, terms: int, largest: int, product: Callable[[Array, Array, slice], Array]) -> Array:
    """The int32 sum of `product(x, w, channels)` over all channels of the weights' dim 1.

    Each channel adds `terms` products, of numbers up to 255 and weights up to `largest`.
    XLA has fast products of floats for CPUs, and none of 8-bit integers. So channels are taken in stretches that add up
    exactly in float32; in float64 if not even one does.
    """
    step = _EXACT // (255 * largest * terms)
    if not step:
        x, w, step = x.astype(jnp.float64), w.astype(jnp.float64), w.shape[1]
    starts = range(0, max(w.shape[1], 1), step)
    parts = [product(x, w, slice(start, start + step)).astype(jnp.int32) for start in starts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _linear_dims(shapes: Sequence[Sizes]) -> Factors:
    lead, met = tuple(range(len(shapes[0]) - 1)), PartOf("in")
    zeros = tuple([("out",) if s else () for s in shapes[3:]])
    return Factors(((*lead, met), ("out", met), (), *zeros), ((*lead, "out"),), product=True)


@defop(
    "integer_linear",
    dims=_linear_dims,
    shards=Shards(partial="sum"),
    types=OWN_ARITHMETIC,
    derivative=NO_DERIVATIVE,
    public=INTERNAL,
)
def integer_linear(input: Array, weight: Array, input_zero: Array, weight_zero: Array | None = None) -> Array:
    """(input - zero) (weight - zero)' of 8-bit integers, in int32: exact. Weights are (outputs, inputs)."""
    if input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"the last dim of the input, of size {input.shape[-1]}, must have the weight's {weight.shape[-1]} inputs"
        )
    contracted = (((input.ndim - 1,), (1,)), ((), ()))

    def product(x: Array, w: Array, channels: slice) -> Array:
        return lax.dot_general(x[..., channels], w[:, channels], contracted, precision=lax.Precision.HIGHEST)

    x, w = _centered(input, input_zero), _centered(weight, weight_zero)
    return _summed(x, w, 1, _largest(weight, weight_zero), product)


def _conv_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    n = len(shapes[0]) - 2
    space, kernel = tuple(range(n)), tuple(f"k{i}" for i in range(n))
    whole = {*space, *kernel} | ({"in", "out"} if static["groups"] != 1 else set())
    zeros = tuple([("out",) if s else () for s in shapes[3:]])
    ins = (("batch", PartOf("in"), *space), ("out", PartOf("in"), *kernel), (), *zeros)
    return Factors(ins, (("batch", "out", *space),), frozenset(whole))


@defop(
    "integer_conv",
    dims=_conv_dims,
    shards=Shards(partial="sum"),
    types=OWN_ARITHMETIC,
    derivative=NO_DERIVATIVE,
    public=INTERNAL,
)
def integer_conv(
    input: Array,
    weight: Array,
    input_zero: Array,
    weight_zero: Array | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation of (batch, channels, ...) of 8-bit integers minus their zero points, in int32: exact."""
    n, per_group = input.ndim - 2, weight.shape[1]
    if input.shape[1] != per_group * groups:
        raise ShapeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(input.shape)} "
            f"to have {per_group * groups} channels, but got {input.shape[1]} channels instead"
        )
    pads = [(p, p) for p in as_ntuple(padding, n, "padding")]
    steps, spread = as_ntuple(stride, n, "stride"), as_ntuple(dilation, n, "dilation")
    check_steps(steps, spread, groups)
    require_reach(input.shape[2:], pads, weight.shape[2:], spread)
    letters = "DHW"[-n:]
    spec = (f"NC{letters}", f"OI{letters}", f"NC{letters}")

    def product(x: Array, w: Array, channels: slice) -> Array:
        of_groups = x.reshape(x.shape[0], groups, per_group, *x.shape[2:])[:, :, channels]
        return lax.conv_general_dilated(
            of_groups.reshape(x.shape[0], groups * of_groups.shape[2], *x.shape[2:]),  # the batch may be empty
            w[:, channels],
            steps,
            pads,
            rhs_dilation=spread,
            dimension_numbers=spec,
            feature_group_count=groups,
            precision=lax.Precision.HIGHEST,
        )

    x, w = _centered(input, input_zero), _centered(weight, weight_zero)
    return _summed(x, w, prod(weight.shape[2:]), _largest(weight, weight_zero), product)
