"""Convolutions, their transposes, and the sliding blocks behind them.

Derivatives are `jax.vjp`: on XLA:CPU, matrix products over patches were not faster for any gradient or layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp

from weft._base.types import Arg
from weft.errors import DTypeError, OutOfRangeError, ShapeError
from weft.ops._autocast import Cast, PerDevice
from weft.ops._dims import Factors, PartOf, Rule, Sizes, Static, wrap_dim
from weft.ops._kernels.conv import CONV, CONV_TRANSPOSE
from weft.ops._kinds import Array, Ints, Padding, Shape
from weft.ops._neural import as_ntuple, first_empty, margins, ntuple, per_channel, require_space
from weft.ops._table import INTERNAL, LOWERED, NO_ARITHMETIC, Derivative, OpDef, Public, Shards, defop
from weft.ops._type_names import c_name, scalar_name

_TRANSPOSED = replace(LOWERED, autocast=PerDevice(cpu=Cast.FLOAT32, accelerator=Cast.LOWER))


def _spatial_spec(n: int) -> tuple[str, str, str]:
    letters = "DHW"[-n:]
    return f"NC{letters}", f"OI{letters}", f"NC{letters}"


def _x(values: Sequence[int]) -> str:
    return " x ".join(str(v) for v in values)


def _batched(input: Array, weight: Array, n: int, name: str) -> Array:
    """The input with a batch dim, after the checks that every convolution makes."""
    if weight.ndim < 3:
        raise ShapeError("weight should have at least three dimensions")
    if weight.ndim != n + 2:
        raise ShapeError(
            f"Expected {weight.ndim}-dimensional input for {weight.ndim}-dimensional weight "
            f"{list(weight.shape)}, but got {input.ndim}-dimensional input "
            f"of size {list(input.shape)} instead"
        )
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, "
            f"but got input of size: {list(input.shape)}"
        )
    if input.dtype != weight.dtype:
        raise DTypeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(weight)}")
    return input if input.ndim == n + 2 else input[None]


def require_reach(
    size: Sequence[int], pads: Sequence[tuple[int, int]], kernel: Sequence[int], dilation: Sequence[int]
) -> None:
    """`RuntimeError` if a kernel reaches beyond the padded input."""
    padded = [s + a + b for s, (a, b) in zip(size, pads, strict=True)]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    if any(size < r for size, r in zip(padded, reach, strict=True)):
        raise ShapeError(
            f"Calculated padded input size per channel: ({_x(padded)}). Kernel size: ({_x(reach)}). "
            "Kernel size can't be greater than actual input size"
        )


def check_steps(stride: Shape, dilation: Shape, groups: int) -> None:
    if min(stride) <= 0:
        raise ShapeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        raise ShapeError(f"dilation should be greater than zero, but got {list(dilation)}")
    if groups <= 0:
        raise ShapeError("non-positive groups is not supported")


def _check_channels(x: Array, weight: Array, bias: Array | None, groups: int, transposed: bool) -> None:
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    if weight.shape[0] < groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, "
            f"but got weight of size {list(weight.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{list(weight.shape)}] instead"
        )
    options = "transposed=1" if transposed else f"groups={groups}"
    if x.shape[1] != expected:
        raise ShapeError(
            f"Given {options}, weight of size {list(weight.shape)}, expected input{list(x.shape)} "
            f"to have {expected} channels, but got {x.shape[1]} channels instead"
        )
    if bias is not None and bias.shape != (outputs,):
        start = "transposed=1, " if transposed else ""
        raise ShapeError(
            f"Given {start}weight of size {list(weight.shape)}, expected bias to be 1-dimensional "
            f"with {outputs} elements, but got bias of size {list(bias.shape)} instead"
        )
    if bias is not None and bias.dtype != x.dtype:
        kinds = f"Input type ({c_name(x)}) and bias type ({c_name(bias)})"
        raise DTypeError(f"{kinds} should be the same")


def _finish(y: Array, input: Array, bias: Array | None) -> Array:
    y = y if bias is None else y + per_channel(bias, y.ndim)
    return y if input.ndim == y.ndim else y[0]


def _conv(
    n: int,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    groups: int,
) -> Array:
    if bias is not None and bias.dtype != input.dtype:
        kinds = f"Input type ({c_name(input)}) and bias type ({c_name(bias)})"
        raise DTypeError(f"{kinds} should be the same")
    x = _batched(input, weight, n, f"conv{n}d")
    stride, dilation = as_ntuple(stride, n, "stride"), as_ntuple(dilation, n, "dilation")
    check_steps(stride, dilation, groups)
    kernel = weight.shape[2:]
    pads = margins(padding, kernel, stride, dilation)
    _check_channels(x, weight, bias, groups, transposed=False)
    require_reach(x.shape[2:], pads, kernel, dilation)
    y = jax.lax.conv_general_dilated(
        x,
        weight,
        stride,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=_spatial_spec(n),
        feature_group_count=groups,
    )
    return _finish(y, input, bias)


def _as_conv_weight(weight: Array, groups: int) -> Array:
    """A transposed convolution's weight as a convolution's: flipped, and in each group input and output swapped."""
    inputs, outputs, *kernel = weight.shape
    w = jnp.flip(weight, tuple(range(2, weight.ndim))).reshape(groups, inputs // groups, outputs, *kernel)
    return jnp.swapaxes(w, 1, 2).reshape(groups * outputs, inputs // groups, *kernel)


def _check_output_padding(extra: Shape, stride: Shape, dilation: Shape) -> None:
    if any(o >= max(s, d) for o, s, d in zip(extra, stride, dilation, strict=True)):
        names = ("depth", "height", "width")[-len(extra) :]
        kinds = (("output_padding", extra), ("stride", stride), ("dilation", dilation))
        got = " ".join(f"{kind}_{w}: {v}" for kind, vs in kinds for w, v in zip(names, vs, strict=True))
        raise ShapeError(f"output padding must be smaller than either stride or dilation, but got {got}")


def _conv_transpose(
    n: int,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
) -> Array:
    x = _batched(input, weight, n, f"conv_transpose{n}d")
    stride, dilation = as_ntuple(stride, n, "stride"), as_ntuple(dilation, n, "dilation")
    padding, extra = as_ntuple(padding, n, "padding"), as_ntuple(output_padding, n, "output_padding")
    check_steps(stride, dilation, groups)
    if min(padding) < 0:
        raise ShapeError("negative padding is not supported")
    _check_channels(x, weight, bias, groups, transposed=True)
    _check_output_padding(extra, stride, dilation)
    # A transposed convolution is an ordinary one over the input spread by the stride, with the kernel turned around.
    reach = [d * (k - 1) for k, d in zip(weight.shape[2:], dilation, strict=True)]
    pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, extra, strict=True)]
    sizes = [
        (size - 1) * s + 1 + a + b - r for size, s, (a, b), r in zip(x.shape[2:], stride, pads, reach, strict=True)
    ]
    if min(sizes) < 1:
        raise ShapeError(
            f"Given input size per channel: ({_x(x.shape[2:])}). "
            f"Calculated output size per channel: ({_x(sizes)}). Output size is too small"
        )
    y = jax.lax.conv_general_dilated(
        x,
        _as_conv_weight(weight, groups),
        (1,) * n,
        pads,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=_spatial_spec(n),
        feature_group_count=groups,
    )
    return _finish(y, input, bias)


def _dims(n: int, transposed: bool) -> Rule:
    """Batch and channels may be split, these only if there are no groups of them."""

    def rule(shapes: Sequence[Sizes], static: Static) -> Factors:
        space, kernel = tuple(range(n)), tuple(f"k{i}" for i in range(n))
        met = PartOf("in")  # channels that are summed over; their names are not compared
        channels = (met, "out") if transposed else ("out", met)
        bias = (("out",),) * (len(shapes) - 2)
        lead = ("batch",) if len(shapes[0]) == n + 2 else ()
        whole = {*space, *kernel}
        if static.get("groups", 1) != 1:
            whole |= {"in", "out"}
        return Factors(((*lead, met, *space), (*channels, *kernel), *bias), ((*lead, "out", *space),), frozenset(whole))

    return rule


def _rows(n: int) -> tuple[OpDef, OpDef]:
    """The convolution over `n` spatial dims and its transpose."""

    def conv(
        input: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Array:
        """Cross-correlation of (batch, channels, ...) with (outputs, channels / groups, ...)."""
        return _conv(n, input, weight, bias, stride, padding, dilation, groups)

    def conv_transpose(
        input: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        dilation: Ints = 1,
    ) -> Array:
        """The gradient of `conv` with respect to its input; weights are (channels, outputs / groups, ...)."""
        return _conv_transpose(n, input, weight, bias, stride, padding, output_padding, groups, dilation)

    make = partial(
        defop,
        derivative=Derivative(name="Convolution"),
        shards=Shards(partial="sum", addend="bias"),
        public=Public(method="", also=("nn.functional",)),
    )
    return (
        make(f"conv{n}d", dims=_dims(n, False), types=LOWERED, native=[CONV])(conv),
        make(f"conv_transpose{n}d", dims=_dims(n, True), types=_TRANSPOSED, native=[CONV_TRANSPOSE])(conv_transpose),
    )


conv1d, conv_transpose1d = _rows(1)
conv2d, conv_transpose2d = _rows(2)
conv3d, conv_transpose3d = _rows(3)


def _blocks(size: Shape, kernel: Shape, dilation: Shape, padding: Shape, stride: Shape) -> Shape:
    """How many blocks fit along each spatial dim."""
    return tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, d, p, t in zip(size, kernel, dilation, padding, stride, strict=True)
    )


def _unfolded(x: Array, kernel: Shape, dilation: Shape, padding: Shape, stride: Shape) -> Array:
    """Blocks of (batch, channels, height, width) as (batch, channels * kernel, blocks)."""
    counts = _blocks(x.shape[2:], kernel, dilation, padding, stride)
    x = jnp.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    slices = []
    for offset in product(*(range(k) for k in kernel)):
        start = [o * d for o, d in zip(offset, dilation, strict=True)]
        stop = [a + (c - 1) * t + 1 for a, c, t in zip(start, counts, stride, strict=True)]
        slices.append(jax.lax.slice(x, (0, 0, *start), (*x.shape[:2], *stop), (1, 1, *stride)))
    blocks = jnp.stack(slices, axis=2)
    return blocks.reshape(x.shape[0], x.shape[1] * len(slices), counts[0] * counts[1])


def _pair(value: Ints, name: str) -> Shape:
    pair = ntuple(value, 2)
    if len(pair) not in (1, 2):
        raise ShapeError(f"It is expected {name} equals to 2, but got size {len(pair)}")
    return pair * 2 if len(pair) == 1 else pair


def _pairs(*values: Arg) -> tuple[Shape, ...]:
    """Kernel, dilation, padding and stride, each as two numbers; raises if a number is not allowed."""
    names = ("kernel_size", "dilation", "padding", "stride")
    pairs = tuple(_pair(value, name) for value, name in zip(values, names, strict=True))
    for at, what, word in ((0, "kernel size", "kernel"), (1, "dilation", "dilation"), (3, "stride", "stride")):
        if min(pairs[at]) < 1:
            height, width = pairs[at]
            sizes = f"{word}_height: {height} {word}_width: {width}"
            raise OutOfRangeError(f"{what} should be greater than zero, but got {sizes}")
    if min(pairs[2]) < 0:
        sizes = f"pad_height: {pairs[2][0]} pad_width: {pairs[2][1]}"
        raise OutOfRangeError(f"padding should be non-negative, but got {sizes}")
    return pairs


def _first_whole(shapes: Sequence[Sizes]) -> Factors:
    lead = ("batch",) if len(shapes[0]) == 4 else ()
    return Factors(((*lead, "in", 0, 1),), ((*lead, "block", "place"),), frozenset({"in", 0, 1}))


@defop(types=NO_ARITHMETIC, dims=_first_whole, public=INTERNAL)
def im2col(input: Array, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Array:
    """Sliding blocks of (batch, channels, height, width) as columns: (batch, channels * kernel, blocks)."""
    for dim in (1, 2):
        wrap_dim(dim, input.ndim)
    steps = _pairs(kernel_size, dilation, padding, stride)
    require_space(input, 2)
    x = input if input.ndim == 4 else input[None]
    counts = _blocks(x.shape[2:], *steps)
    if min(counts) < 1:
        names = zip(("kernel_size", "dilation", "padding"), steps, strict=False)
        options = ", ".join(f"{name}={value}" for name, value in names)
        raise ShapeError(
            f"Given input with spatial size {x.shape[2:]}, {options}, calculated shape of the array of sliding "
            f"blocks as {counts}, but its components must be at least one."
        )
    y = _unfolded(x, *steps)
    return y if input.ndim == 4 else y[0]


def _check_fold(x: Array, output_size: Shape, kernel: Shape, *steps: Shape) -> None:
    if x.shape[1] % (kernel[0] * kernel[1]):
        raise ShapeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={x.shape[1]} and kernel_size={kernel}."
        )
    counts = _blocks(output_size, kernel, *steps)
    if counts[0] * counts[1] != x.shape[2]:
        names = zip(("kernel_size", "dilation", "padding", "stride"), (kernel, *steps), strict=True)
        options = ", ".join(f"{name}={value}" for name, value in names)
        raise ShapeError(
            f"Given output_size={output_size}, {options}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {counts[0]} * {counts[1]} = {counts[0] * counts[1]}, "
            f"but got input.size(2)={x.shape[2]}."
        )


def _columns_whole(shapes: Sequence[Sizes]) -> Factors:
    lead = ("batch",) if len(shapes[0]) == 3 else ()
    return Factors(((*lead, "block", "place"),), ((*lead, "in", 0, 1),), frozenset({"block", "place", "in", 0, 1}))


@defop(dims=_columns_whole, public=INTERNAL)
def col2im(
    input: Array, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Array:
    """The inverse of `im2col` but for overlaps: columns are added up at the places that they were taken from."""
    size = _pair(output_size, "output_size")
    steps = _pairs(kernel_size, dilation, padding, stride)
    if input.ndim not in (2, 3) or first_empty(input, input.ndim - 2) is not None:
        raise ShapeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size "
            f"and non-zero dimensions for input, but got: {list(input.shape)}"
        )
    x = input if input.ndim == 3 else input[None]
    _check_fold(x, size, *steps)
    channels = x.shape[1] // (steps[0][0] * steps[0][1])
    image = jax.ShapeDtypeStruct((x.shape[0], channels, *size), x.dtype)
    (y,) = jax.linear_transpose(lambda image: _unfolded(image, *steps), image)(x)
    return y if input.ndim == 3 else y[0]
