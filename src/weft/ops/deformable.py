"""Convolutions whose kernels read at places of their own (https://arxiv.org/abs/1811.11168): torchvision's operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import jax.numpy as jnp

from weft.errors import DTypeError, ShapeError
from weft.ops._dims import Factors, Sizes
from weft.ops._index import UNCHECKED
from weft.ops._jax import optimization_barrier, vjp
from weft.ops._kinds import Array
from weft.ops._neural import require_float
from weft.ops._table import INTERNAL, defop
from weft.ops._type_names import scalar_name

Steps = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Stride, padding and dilation, each (vertical, horizontal)."""

_INS = (
    ("image", "channel", "y", "x"),
    ("out", "part", "ky", "kx"),
    ("image", "offset", "row", "column"),
    ("image", "masked", "row", "column"),
    ("out",),
)
_OUT = ("image", "out", "row", "column")
_SPACE = frozenset({"channel", "y", "x", "out", "part", "ky", "kx", "offset", "masked", "row", "column"})


def _with_mask(shapes: Sequence[Sizes]) -> tuple[tuple[str, ...], ...]:
    """The letters of inputs. A mask that is not used has two dims of any size."""
    return tuple(
        dims if len(dims) == len(shape) else tuple(f"unused:{d}" for d in range(len(shape)))
        for dims, shape in zip(_INS, shapes, strict=True)
    )


def _convolves(shapes: Sequence[Sizes]) -> Factors:
    """The batch may be split."""
    ins = _with_mask(shapes)
    return Factors(ins, (_OUT,), _SPACE | {letter for letter in ins[3] if letter not in _INS[3]})


def _differentiates(shapes: Sequence[Sizes]) -> Factors:
    """The same, with a gradient for each input."""
    ins = _with_mask(shapes[1:])
    return Factors((_OUT, *ins), ins, _SPACE | {letter for letter in ins[3] if letter not in _INS[3]})


def _require(
    input: Array,
    weight: Array,
    offset: Array,
    mask: Array,
    bias: Array,
    steps: Steps,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> None:
    """Refuse what does not fit, in torchvision's words where it has some."""
    named = {"input": input, "weight": weight, "offset": offset} | ({"mask": mask} if use_mask else {})
    for name, x in named.items():
        if x.ndim != 4:
            raise ShapeError(f"deform_conv2d: {name} must have 4 dims, got {list(x.shape)}")
        if x.dtype != input.dtype:
            raise DTypeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(x)}")
    require_float(input, "deformable_im2col")
    for name, (y, x), least in zip(("stride", "pad", "dilation"), steps, (1, 0, 1), strict=True):
        if min(y, x) < least:
            raise ShapeError(f"{name}_h: {y} {name}_w: {x}: expected {least} or more")
    (out, part, *kernel), channels = weight.shape, input.shape[1]
    if part * groups != channels or out % groups:
        raise ShapeError(
            f"deform_conv2d: weight of shape {list(weight.shape)} does not fit {channels} channels in {groups} groups"
        )
    if channels % offset_groups:
        raise ShapeError(f"deform_conv2d: {channels} channels cannot be divided into {offset_groups} offset groups")
    if bias.shape != (out,):
        raise ShapeError(f"deform_conv2d: bias must have shape [{out}], got {list(bias.shape)}")
    sizes = [
        (length + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        for length, k, stride, pad, dilation in zip(input.shape[2:], kernel, *steps, strict=True)
    ]
    places = offset_groups * kernel[0] * kernel[1]
    for name, x, wanted in (("offset", offset, 2 * places), ("mask", mask, places))[: 1 + use_mask]:
        if x.shape[1] != wanted:
            raise ShapeError(f"{name}.shape[1] is not valid: got: {x.shape[1]} expected: {wanted}")
        if x.shape[0] != input.shape[0]:
            raise ShapeError(f"invalid batch size of {name}: got {x.shape[0]}, expected {input.shape[0]}")
        if list(x.shape[2:]) != sizes:
            raise ShapeError(f"{name} output dims: {tuple(x.shape[2:])} - computed output dims: {tuple(sizes)}")
    if min(sizes) < 1:
        raise ShapeError(f"Calculated output size too small - out_h: {sizes[0]} out_w: {sizes[1]}")


def _taps(at: Array, size: int) -> Iterator[tuple[Array, Array]]:
    """The two pixels around each coordinate, and their weights: 0 outside of the image."""
    low = jnp.floor(at)
    part = at - low
    for pixel, weight in ((low, 1 - part), (low + 1, part)):
        inside = (pixel >= 0) & (pixel < size)
        yield jnp.where(inside, pixel, 0).astype(jnp.int32), jnp.where(inside, weight, 0)


def _convolved(
    input: Array,
    weight: Array,
    offset: Array,
    mask: Array,
    bias: Array,
    steps: Steps,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Array:
    stride, pad, dilation = steps
    batch, channels, height, width = input.shape
    out, part, *kernel = weight.shape
    count, size = kernel[0] * kernel[1], offset.shape[2:]
    # What is read at a place stands together: (image and offset group, y, x) are rows of channels.
    own = channels // offset_groups
    rows = input.reshape(batch * offset_groups, own, height, width).transpose(0, 2, 3, 1)
    rows = rows.reshape(batch * offset_groups * height * width, own)
    moved = offset.reshape(batch * offset_groups, count, 2, *size)
    places = jnp.unravel_index(jnp.arange(count), tuple(kernel))
    y, x = (
        moved[:, :, axis]
        + jnp.expand_dims(jnp.arange(size[axis]) * stride[axis] - pad[axis], 1 - axis).astype(offset.dtype)
        + (places[axis] * dilation[axis])[:, None, None].astype(offset.dtype)
        for axis in (0, 1)
    )
    first = (jnp.arange(batch * offset_groups, dtype=jnp.int32) * (height * width))[:, None, None, None]
    shares = mask.reshape(y.shape) if use_mask else 1
    columns = jnp.zeros((*y.shape, own), input.dtype)
    for at_y, weight_y in _taps(y, height):
        for at_x, weight_x in _taps(x, width):
            # Apart from the sum: XLA:CPU would compute the places anew for each channel.
            read = optimization_barrier(rows.at[first + at_y * width + at_x].get(**UNCHECKED))
            columns = columns + (weight_y * weight_x * shares)[..., None] * read
    columns = columns.reshape(batch, offset_groups, count, *size, own)  # (image, offset group, place, y, x, channel)
    columns = jnp.moveaxis(columns, 1, 4).reshape(batch, count, *size, groups, part)
    kernels = weight.reshape(groups, out // groups, part, count)
    result = jnp.einsum("bkyxgc,gock->bgoyx", columns, kernels)
    return result.reshape(batch, out, *size) + bias[:, None, None]


def _convolution(
    arrays: tuple[Array, Array, Array, Array, Array], steps: Steps, groups: int, offset_groups: int, use_mask: bool
) -> Callable[..., Array]:
    """The convolution with these options as a function of arrays like the given ones, which are checked."""
    _require(*arrays, steps, groups, offset_groups, use_mask)
    return partial(_convolved, steps=steps, groups=groups, offset_groups=offset_groups, use_mask=use_mask)


@defop("torchvision::deform_conv2d", dims=_convolves, public=INTERNAL)
def deform_conv2d(
    input: Array,
    weight: Array,
    offset: Array,
    mask: Array,
    bias: Array,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Array:
    """A convolution whose kernel reads, at each place, between the pixels where `offset` says, weighted by `mask`."""
    steps = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    arrays = input, weight, offset, mask, bias
    return _convolution(arrays, steps, groups, offset_groups, use_mask)(*arrays)


@defop("torchvision::_deform_conv2d_backward", dims=_differentiates, public=INTERNAL)
def deform_conv2d_backward(
    grad: Array,
    input: Array,
    weight: Array,
    offset: Array,
    mask: Array,
    bias: Array,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> tuple[Array, Array, Array, Array, Array]:
    """The derivative of `deform_conv2d` by each tensor."""
    steps = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    arrays = input, weight, offset, mask, bias
    return vjp(_convolution(arrays, steps, groups, offset_groups, use_mask), *arrays)[1](grad)
