"""Pooling over windows of a fixed size, and adaptive pooling.

Windows are boxes, so the dims are pooled one after the other: a 3 x 3 maximum takes six comparisons for each element,
not nine, and the derivative of the comparisons is much faster than XLA's select-and-scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from weft._base.dtype import from_numpy
from weft.errors import DTypeError, OutOfRangeError, ShapeError, UnsupportedDTypeError, ValueRangeError
from weft.ops._autocast import CPU_FLOAT32, Cast
from weft.ops._dims import Factors, Sizes, require_sizes, wrap_dim
from weft.ops._kinds import Array, HostArray, Ints, OutputSize, Shape, Whole
from weft.ops._memory import require_room
from weft.ops._neural import as_ntuple, first_empty, require_float
from weft.ops._reduce import wide
from weft.ops._rows import without_slope
from weft.ops._table import IN_FUNCTIONAL, INTERNAL, SAVES, Arithmetic, Check, Derivative, OpDef, Public, Types, defop
from weft.ops._type_names import scalar_name

_FUNCTIONAL = "nn.functional"
_FEW = 64  # places of a window that are compared one by one


class Windows(NamedTuple):
    """The windows over one dim: where each starts, of how many places it is, and how far these lie apart.

    `padding` stands before and behind the dim, and positions count from it.
    """

    starts: np.ndarray
    lengths: np.ndarray
    apart: int
    padding: tuple[int, int]


def _space_dims(n: int, outputs: int = 1) -> Callable[..., Factors]:
    """Leading dims pass through; the last `n` must be whole."""

    def rule(shapes: Sequence[Sizes]) -> Factors:
        letters = tuple(range(len(shapes[0])))
        return Factors((letters,), (letters,) * outputs, frozenset(letters[-n:]))

    return rule


def _output_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    room = size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)
    count = room // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:  # the last window must start inside
        count -= 1
    return count


def _first_best(arrays: Sequence[Array], axis: int, windows: Windows) -> Sequence[Array]:
    """Maximum of the first array over each window along `axis`, and the other arrays at the first maximum.

    A program of thousands of comparisons would take XLA minutes to compile. So for long windows, maxima over 2, 4, 8, …
    places come first, from each position on; of the longest that fit, a window is covered by two or three.
    """
    starts, lengths, apart, _ = windows
    longest, reach = int(lengths.max(initial=1)), 1
    while longest > _FEW and 2 * reach <= lengths.min():
        shift, size = reach * apart, arrays[0].shape[axis]
        halves = [(0, size - shift), (shift, size)]
        arrays = _better(*[[jax.lax.slice_in_dim(a, *half, axis=axis) for a in arrays] for half in halves])
        reach *= 2
    # a short window repeats its last places, which does not change which maximum is first
    places = [starts + np.minimum(first, lengths - reach) * apart for first in range(0, longest, reach)]
    return reduce(_better, [[_slices(a, axis, place) for a in arrays] for place in places])


def _better(arrays: Sequence[Array], later: Sequence[Array]) -> Sequence[Array]:
    """The arrays where the first of them is as large as the first of `later`, else those; NaN is largest."""
    better = later[0] > arrays[0]
    if jnp.issubdtype(later[0].dtype, jnp.inexact):
        better |= jnp.isnan(later[0])
    return [jnp.where(better, new, old) for new, old in zip(later, arrays, strict=True)]


def _slices(x: Array, axis: int, place: np.ndarray) -> Array:
    """Elements of `x` at these positions along `axis`: by a slice if they are evenly spaced, else by a gather."""
    steps = np.unique(np.diff(place))
    if not len(place) or len(steps) > 1 or (len(steps) == 1 and steps[0] < 1):
        return jnp.take(x, place, axis=axis)
    stride = int(steps[0]) if len(steps) else 1
    return jax.lax.slice_in_dim(x, int(place[0]), int(place[-1]) + 1, stride, axis)


def _lowest(dtype: DTypeLike) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.inexact) else np.iinfo(dtype).min


def _maxima(x: Array, windows: Sequence[Windows], *, indices: bool = False) -> Sequence[Array]:
    """Maxima over boxes of the last dims; with `indices`, also their flat positions in the unpadded plane."""
    lead = x.ndim - len(windows)
    margins = [(0, 0)] * lead + [each.padding for each in windows]
    arrays: Sequence[Array] = [jnp.pad(x, margins, constant_values=_lowest(x.dtype))]
    if indices:
        sizes = x.shape[lead:]
        plane = jnp.pad(np.arange(math.prod(sizes)).reshape(sizes), margins[lead:])
        arrays = [arrays[0], jnp.broadcast_to(plane, arrays[0].shape)]
    for axis, each in reversed(list(enumerate(windows, lead))):
        arrays = _first_best(arrays, axis, each)
    return arrays


def _window_arguments(
    n: int, kernel_size: Ints, stride: Ints | None, padding: Ints, op: str
) -> tuple[Shape, Shape, Shape]:
    kernel = as_ntuple(kernel_size, n, "kernel_size", op)
    step = kernel if stride is None or stride == () else as_ntuple(stride, n, "stride", op)
    if op == "max_pool1d":
        for name, (size,) in (("kernel_size", kernel), ("stride", step)):
            if size <= 0:
                raise OutOfRangeError(f"{op}() {name} must be greater than zero, but got {size}")
    if min(step) <= 0 or min(kernel) <= 0:
        raise OutOfRangeError("stride should not be zero")
    return kernel, step, as_ntuple(padding, n, "padding", op)


def _as_plane(shape: Sequence[int], n: int) -> list[int]:
    """The shape for kernels that take planes: a single spatial dim becomes a plane of height 1."""
    return [*shape[:-1], 1, shape[-1]] if n == 1 else list(shape)


def _check_batch(input: Array, n: int, op: str) -> None:
    if op == "avg_pool2d":
        wrap_dim(-3, input.ndim)  # PyTorch looks at the channels first
    shape = list(input.shape)
    if input.ndim not in (n + 1, n + 2):
        if op == "avg_pool1d":
            raise ShapeError(
                f"Expected 2 to 3 dimensions, but got {input.ndim}-dimensional tensor for argument #1 'self' "
                f"(while checking arguments for {op})"
            )
        if op == "avg_pool2d":
            raise ShapeError(_BATCH.format(n + 1, n + 2, shape))
        if n == 1:
            raise ShapeError(f"{op}: {_BATCH.format(2, 3, shape)}")
        raise ShapeError(f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input")
    if first_empty(input, input.ndim - n - 1) is None:
        return
    if n == 3:
        raise ShapeError(
            f"{op}(): Expected input's non-batch dimensions to have positive length, but input has a shape of {shape} "
            "and non-batch dimension 0 has length zero!"
        )
    if op == "max_pool1d":
        raise ShapeError(f"{op}: {_BATCH.format(2, 3, shape)}")
    raise ShapeError(_BATCH.format(3, 4, _as_plane(shape, n)))


_BATCH = "Expected {}D or {}D (batch mode) tensor with optional 0 dim batch size for input, but got:{}"


def _check_padding(n: int, kernel: Shape, padding: Shape, dilation: Shape, op: str) -> None:
    if min(padding) < 0:
        raise OutOfRangeError(f"pad must be non-negative, but got pad: {min(padding)}")
    if op == "max_pool1d" and dilation[0] <= 0:
        raise OutOfRangeError(f"{op}() dilation must be greater than zero, but got {dilation[0]}")
    if min(dilation) <= 0:
        letters = zip(("T", "H", "W")[3 - n :], dilation, strict=True)
        words = " ".join(f"dilation{letter}: {d}" for letter, d in letters)
        raise OutOfRangeError(f"dilation should be greater than zero, but got {words}")
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p > ((k - 1) * d + 1) // 2:
            raise OutOfRangeError(
                "pad should be at most half of effective kernel size, "
                f"but got pad={p}, kernel_size={k} and dilation={d}"
            )


def _check_counts(input: Array, counts: Shape, op: str) -> None:
    if min(counts) >= 1:
        return
    n = len(counts)
    if n == 1 and op == "max_pool1d":
        raise ShapeError(f"max_pool1d() Invalid computed output size: {counts[0]}")
    channels = input.shape[input.ndim - n - 1]
    input_text, output_text = (
        "x".join(map(str, _as_plane((channels, *c), n))) for c in (input.shape[input.ndim - n :], counts)
    )
    raise ShapeError(
        f"Given input size: ({input_text}). Calculated output size: ({output_text}). Output size is too small"
    )


def _max_windows(
    n: int, input: Array, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Sequence[Windows]:
    op = f"max_pool{n}d"
    kernel, step, margin = _window_arguments(n, kernel_size, stride, padding, op)
    apart = as_ntuple(dilation, n, "dilation", op)
    _check_padding(n, kernel, margin, apart, op)
    _check_batch(input, n, op)
    if input.dtype == jnp.bool_ or jnp.iscomplexobj(input):
        raise UnsupportedDTypeError(f"\"{op}\" not implemented for '{scalar_name(input)}'")
    sizes = input.shape[input.ndim - n :]
    counts = tuple(_output_size(*dims, ceil_mode) for dims in zip(sizes, kernel, step, margin, apart, strict=True))
    _check_counts(input, counts, op)
    # Before any table of positions is made: absurd sizes must be an error, and not use up the memory.
    require_room([size + 2 * p for size, p in zip(sizes, margin, strict=True)], input.dtype)
    windows = []
    for size, k, s, p, d, count in zip(sizes, kernel, step, margin, apart, counts, strict=True):
        # With `ceil_mode` the last window may reach beyond the padding.
        beyond = max(0, (count - 1) * s + (k - 1) * d + 1 - size - p) if ceil_mode else p
        windows.append(Windows(np.arange(count) * s, np.full(count, k), d, (p, beyond)))
    return windows


def _avg_counts(
    numpy: ModuleType, size: int, k: int, s: int, p: int, count: int, include_pad: bool
) -> Array | HostArray:
    """The number of positions in each window along one dim, as an array of NumPy or jax."""
    start = numpy.arange(count) * s - p
    stop = numpy.minimum(start + k, size + p)
    return stop - start if include_pad else numpy.minimum(stop, size) - numpy.maximum(start, 0)


def _require_nonzero(divisor_override: int | None) -> None:
    if divisor_override == 0:
        raise OutOfRangeError("divisor must be not zero")


def _avg_pool(
    n: int,
    input: Array,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Whole | None,
) -> Array:
    op = f"avg_pool{n}d"
    kernel, step, margin = _window_arguments(n, kernel_size, stride, padding, op)
    if n == 1:  # in PyTorch's order of checks
        _check_batch(input, n, op)
    _check_padding(n, kernel, margin, (1,) * n, op)
    if n > 1:
        _check_batch(input, n, op)
    lead = input.ndim - n
    sizes = input.shape[lead:]
    if n == 3 and any(k > size for size, k in zip(sizes, kernel, strict=True)):
        input_text = " ".join(f"{d}: {s}" for d, s in zip("THW", sizes, strict=True))
        needed = " ".join(f"k{d}: {k}" for d, k in zip("THW", kernel, strict=True))
        raise ShapeError(f"input image ({input_text}) smaller than kernel size ({needed})")
    counts = tuple(_output_size(*dims, 1, ceil_mode) for dims in zip(sizes, kernel, step, margin, strict=True))
    _check_counts(input, counts, op)
    x = wide(input)
    ends = margin
    if ceil_mode:
        ends = [
            (c - 1) * s + k - size - p for c, s, k, size, p in zip(counts, step, kernel, sizes, margin, strict=True)
        ]
    summed = jax.lax.reduce_window(
        x,
        np.zeros((), x.dtype)[()],
        jax.lax.add,
        (1,) * lead + kernel,
        (1,) * lead + step,
        [(0, 0)] * lead + list(zip(margin, ends, strict=True)),
    )
    if divisor_override is not None:
        divisor = jnp.asarray(divisor_override)
    else:
        differ = ceil_mode or (any(margin) and not count_include_pad)
        divisor = _divisor(jnp if differ else np, sizes, kernel, step, margin, counts, count_include_pad)
    return _divided(summed, divisor).astype(input.dtype)


def _divided(total: Array, divisor: Array | HostArray) -> Array:
    if jnp.issubdtype(total.dtype, jnp.inexact):
        return total / divisor.astype(total.dtype)
    return jax.lax.div(total, jnp.broadcast_to(divisor.astype(total.dtype), total.shape))


def _divisor(
    numpy: ModuleType, sizes: Shape, kernel: Shape, step: Shape, margin: Shape, counts: Shape, include_pad: bool
) -> Array | HostArray:
    """The number of positions in each window; computed by jax where windows differ, so that it can be exported."""
    divisor = numpy.ones((), np.int64)
    for dims in zip(sizes, kernel, step, margin, counts, strict=True):
        divisor = divisor[..., None] * _avg_counts(numpy, *dims, include_pad)
    return divisor


def _adapted(numpy: ModuleType, size: int, count: int) -> tuple[Any, Any]:
    """The start and the end of each of `count` windows over `size` positions, as arrays of NumPy or jax."""
    at = numpy.arange(count)
    return at * size // max(count, 1), -(-(at + 1) * size // max(count, 1))


def _adaptive_sizes(input: Array, n: int, output_size: OutputSize, op: str) -> Shape:
    values = (output_size,) * n if isinstance(output_size, int) or output_size is None else tuple(output_size)
    if n > 1 and input.ndim <= len(values) and not isinstance(output_size, int | None):
        raise ValueRangeError(f"Input dimension should be at least {len(values) + 1}")
    if len(values) not in (1, n):
        if n == 1:
            raise ShapeError(f"{op}() argument 'output_size' should contain one int (got {len(values)})")
        raise ShapeError(
            f"{op}(): internal error: output_size.size() must be {n}"
            if "max" in op
            else f"{op}: output_size must be {n}"
        )
    if input.ndim not in (n + 1, n + 2):
        if n == 1:
            raise ShapeError(
                f"Expected 2 to 3 dimensions, but got {input.ndim}-dimensional tensor for argument #1 'self' "
                f"(while checking arguments for {op})"
            )
        colon = ":" if "max" in op else ""
        raise ShapeError(f"{op}(): Expected {n + 1}D or {n + 2}D tensor, but got{colon} {list(input.shape)}")
    _check_adaptive_source(input, n, op)
    values = values * n if len(values) == 1 else values
    sizes = tuple(s if v is None else v for v, s in zip(values, input.shape[-n:], strict=True))
    if min(sizes) < 0 and "avg" in op:
        raise ShapeError(
            f"{op}: elements of output_size must be greater than or equal to 0 but received "
            f"{{{', '.join(map(str, sizes))}}}"
        )
    shape = _as_plane((*input.shape[: input.ndim - n], *sizes), n)
    require_sizes(shape)
    require_room(shape, input.dtype)
    return sizes


def _check_adaptive_source(input: Array, n: int, op: str) -> None:
    """Require dims that are not empty. The batch may be empty, and for means over planes the channels too."""
    shape = list(input.shape)
    if "avg" in op and n == 1:
        op, shape = "adaptive_avg_pool2d", _as_plane(shape, n)
    empty = first_empty(shape, len(shape) - 2 if op == "adaptive_avg_pool2d" else 1)
    if empty is not None:
        raise ShapeError(
            f"{op}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {shape} "
            f"with dimension {empty} being empty"
        )


def _adapted_result(pooled: Array, input: Array, n: int, kind: str) -> Array:
    """The result of adaptive pooling; as in PyTorch, an empty result has no derivative."""
    shape = _as_plane(pooled.shape, n)
    empty = first_empty(shape, 1)
    if empty is None:
        return pooled
    return without_slope(
        pooled,
        input,
        f"adaptive_{kind}_pool{max(n, 2)}d_backward(): Expected grad_output to have non-zero size for non-batch "
        f"dimensions, but grad_output has sizes {shape} with dimension {empty} being empty",
    )


def _adaptive_avg(n: int, input: Array, output_size: OutputSize) -> Array:
    """The means of the windows, by one matrix product for each dim."""
    counts = _adaptive_sizes(input, n, output_size, f"adaptive_avg_pool{n}d")
    if not from_numpy(input.dtype).is_floating_point:
        if max(counts) == min(counts) == 1:
            needed = "Input dtype must be either a floating point or complex dtype."
            raise DTypeError(f"mean(): could not infer output dtype. {needed} Got: {scalar_name(input)}")
        require_float(input, "adaptive_avg_pool3d_cpu" if n == 3 else "adaptive_avg_pool2d")
    x = wide(input)
    for axis, count in zip(range(-n, 0), counts, strict=True):
        size = x.shape[axis]
        if count == size:
            continue
        # A mean does without the product with a row of equal numbers.
        if count == 1:
            x = jnp.mean(x, axis=axis, keepdims=True)
            continue
        start, stop = _adapted(jnp, size, count)
        at = jnp.arange(size)
        inside = (at >= start[:, None]) & (at < stop[:, None])
        rows = jnp.where(inside, (1 / (stop - start)).astype(x.dtype)[:, None], 0)
        x = jnp.moveaxis(jnp.tensordot(x, rows, axes=((axis,), (1,))), -1, axis)
    return _adapted_result(x.astype(input.dtype), input, n, "avg")


def _adaptive_windows(n: int, input: Array, output_size: OutputSize) -> Sequence[Windows]:
    op = f"adaptive_max_pool{n}d"
    counts = _adaptive_sizes(input, n, output_size, op)
    require_float(input, f"adaptive_max_pool{max(n, 2)}d{'_cpu' if n == 3 else ''}")
    windows = []
    for size, count in zip(input.shape[-n:], counts, strict=True):
        start, stop = _adapted(np, size, count)
        windows.append(Windows(start, stop - start, 1, (0, 0)))
    return windows


def _max_rows(n: int) -> tuple[OpDef, ...]:
    """Maximum pooling over `n` dims, fixed and adaptive, each also with positions as a second output."""

    def max_pool(
        input: Array,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> Array:
        """The largest element of each window; the gradient goes to the first of equals."""
        windows = _max_windows(n, input, kernel_size, stride, padding, dilation, ceil_mode)
        return _maxima(input, windows)[0]

    def max_pool_with_indices(
        input: Array,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> tuple[Array, ...]:
        """The largest element of each window and its flat position in the plane."""
        windows = _max_windows(n, input, kernel_size, stride, padding, dilation, ceil_mode)
        return tuple(_maxima(input, windows, indices=True))

    def adaptive_max_pool(input: Array, output_size: OutputSize) -> Array:
        """The largest element of each of `output_size` windows."""
        return _adapted_result(_maxima(input, _adaptive_windows(n, input, output_size))[0], input, n, "max")

    def adaptive_max_pool_with_indices(input: Array, output_size: OutputSize) -> tuple[Array, ...]:
        """The largest element of each of `output_size` windows and its flat position in the plane."""
        maxima, places = _maxima(input, _adaptive_windows(n, input, output_size), indices=True)
        return _adapted_result(maxima, input, n, "max"), places

    types = Types(arithmetic=Arithmetic.NONE, autocast=CPU_FLOAT32 if n == 3 else Cast.NONE)
    plain = partial(defop, dims=_space_dims(n), types=types, public=INTERNAL)
    pair = partial(plain, dims=_space_dims(n, 2), outputs=("output", "indices"))
    adaptive = Derivative(name=f"AdaptiveMaxPool{n}D")
    return (
        plain(f"max_pool{n}d_values", derivative=Derivative(name=f"MaxPool{n}DWithIndices"))(max_pool),
        pair(f"max_pool{n}d_with_indices")(max_pool_with_indices),
        plain(f"adaptive_max_pool{n}d_values", derivative=adaptive)(adaptive_max_pool),
        pair(f"adaptive_max_pool{n}d_with_indices", derivative=adaptive)(adaptive_max_pool_with_indices),
    )


_MAX_ROWS = tuple(_max_rows(n) for n in (1, 2, 3))


@defop(dims=_space_dims(1), derivative=SAVES, public=Public(method="", also=(_FUNCTIONAL,)))
def avg_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """The mean of each window."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def _avg_rows(n: int) -> tuple[OpDef, OpDef]:
    """Mean pooling over `n` dims, fixed and adaptive."""

    def avg_pool(
        input: Array,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Whole | None = None,
    ) -> Array:
        """The sum of each window, divided by its size or by `divisor_override`."""
        return _avg_pool(n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    def adaptive_avg_pool(input: Array, output_size: OutputSize) -> Array:
        """The mean of each of `output_size` windows."""
        return _adaptive_avg(n, input, output_size)

    make = partial(
        defop,
        dims=_space_dims(n),
        types=Types(autocast=CPU_FLOAT32 if n == 3 else Cast.NONE),
        derivative=SAVES,
        public=Public(method="", also=(_FUNCTIONAL,)) if n == 1 else IN_FUNCTIONAL,
    )
    adaptive = make(f"adaptive_avg_pool{n}d")(adaptive_avg_pool)
    return (avg_pool1d if n == 1 else make(f"avg_pool{n}d", check=Check(limits=_require_nonzero))(avg_pool)), adaptive


_AVG_ROWS = tuple(_avg_rows(n) for n in (1, 2, 3))
