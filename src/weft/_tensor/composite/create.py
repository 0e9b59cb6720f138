"""Factories: they determine size, element type and device; a row creates the tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from weft._base.device import CPU
from weft._base.dtype import DType, as_dtype, float64, int64
from weft._base.layout import channels_last, channels_last_3d, layout, memory_format, strided
from weft._base.site import warn_user
from weft._base.state import default_dtype
from weft._base.types import AnyCallable, Arg, Kwargs
from weft._lazy.aval import AnyOwner
from weft._lazy.value import Value
from weft._tensor.arguments import combination, refusal, sizes_one_by_one
from weft._tensor.codegen import op
from weft._tensor.dim_names import checked_names, set_names, take_names
from weft._tensor.functions import composite
from weft._tensor.generator import PartOfDraws
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.output import replace
from weft._tensor.recorders import recorder_of
from weft._tensor.scalar import Number, fitting
from weft._tensor.sparse.construct import new_in_layout
from weft._tensor.tensor import Tensor, wrap
from weft.errors import (
    ArgumentError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    UnsupportedCallError,
    UnsupportedDTypeError,
)
from weft.ops._dims import require_sizes
from weft.ops._kinds import Kind, Scalar
from weft.ops._table import NO_FUNCTION, NO_METHOD, TABLE
from weft.ops._type_names import c_name, scalar_name


@cache
def _recorder_of(row: str) -> AnyCallable:
    """What records a factory row on the default device from size, numbers and type; None where that needs `create`."""
    recorder = recorder_of(TABLE[row], "size")
    if recorder is None:
        return lambda *_: None
    assert TABLE[row].params[0].kind is Kind.SHAPE, "`create` gives the size first"
    if TABLE[row].params[-1].kind is Kind.KEY:
        return lambda *args: recorder(*args, None)
    return recorder


def _is_plain(like: Tensor) -> bool:
    """Whether what is made like a tensor is made as anything else on the first CPU."""
    aval = like._read().aval
    return aval.owner is None and aval.names is None and aval.device is CPU


def _like(record: AnyCallable, input: Tensor, size: Arg) -> Tensor | None:
    """What a recorder makes like a plain tensor."""
    return record(size, input.dtype) if _is_plain(input) and not input.dtype.is_quantized else None


def create(
    row: str,
    size: tuple[int, ...],
    *args: object,
    dtype: DType,
    options: Kwargs,
    like: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The result of a factory row, on the device of `like` unless `options` name another; written to `out` if given."""
    if not options and out is None and not dtype.is_quantized and (like is None or _is_plain(like)):
        result = _recorder_of(row)(size, *args, dtype)
        if result is not None:
            return result
    names = options.pop("names", None)
    form = options.get("layout")
    if form is not None and form is not strided:
        if not isinstance(form, layout):
            raise refusal(form, "layout", row, "torch.layout")
        return new_in_layout(form, row, size, dtype, options)
    order_of(options.pop("memory_format", None), len(size))  # checked only: XLA chooses memory layouts
    if like is not None:
        options.setdefault("device", like.device)
    owner = None if like is None else like._read().aval.owner
    if dtype.is_quantized and owner is None:
        raise UnsupportedCallError(f"{row}(): {dtype} is the type of what torch.quantize_per_tensor makes of floats")
    if owner is None:
        result = getattr(op, row)(size, *args, dtype=dtype, **options)
    else:
        result = _created(owner, row, size, args, {"dtype": dtype, **options})
    if out is not None:
        return replace(out, result)
    return result if names is None else set_names(result, checked_names(names, result.ndim))


def _created(owner: AnyOwner, row: str, size: tuple[int, ...], args: Arg, options: Kwargs) -> Tensor:
    """The result of a factory row, as an owner makes it. Of a distributed tensor, each process makes its part alone.

    Random numbers are those that one process would draw.
    """
    requires_grad = options.pop("requires_grad", False)

    def create(own: Sequence[int], first: int) -> Value:
        if TABLE[row].shards.drawn is not None:
            options["generator"] = PartOfDraws(options.get("generator"), first, size)
        return getattr(op, row)(tuple(own), *args, **options)._read()

    return wrap(owner.created(size, create, row)).requires_grad_(requires_grad)


def named_like(result: Tensor, like: Tensor) -> Tensor:
    """A new tensor of the shape of `like` with its names, unless it has some already."""
    return take_names(result, like._read().aval.names)


ORDERS = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}
"""The dims from the outermost in memory to the innermost, for formats that are not row-major."""


def order_by_name(format: Arg) -> tuple[int, ...] | None:
    """The order of dims of a memory format, None for row-major; `TypeError` for another object than a format."""
    order = ORDERS.get(format)
    if order is None and format is not None and not isinstance(format, memory_format):
        raise ArgumentError(f"argument 'memory_format' must be torch.memory_format, not {kind_and_advice(format)}")
    return order


def order_of(format: object, ndim: int) -> tuple[int, ...] | None:
    """The order of dims of a memory format, None for row-major; `RuntimeError` for another number of dims."""
    order = order_by_name(format)
    if order is not None and ndim != len(order):
        raise ShapeError(f"required rank {len(order)} tensor to use {format!r} format".replace("torch.", ""))
    return order


def type_for(out: Tensor | None, dtype: DType | None, usual: DType) -> DType:
    """The type of a new tensor: that of `out`, which must agree with `dtype`; else `dtype`, or the usual type."""
    if out is None:
        return dtype or usual
    if dtype not in (None, out.dtype):
        raise DTypeError(f"dtype {scalar_name(dtype)} does not match dtype of out parameter ({scalar_name(out.dtype)})")
    return out.dtype


def sizes_of(name: str, size: Arg, options: Kwargs | None = None) -> tuple[int, ...]:
    """Sizes given separately, as one sequence, or by keyword; `RuntimeError` if one is negative."""
    if options and "size" in options:
        size = (options.pop("size"),)
    sizes = sizes_one_by_one(size, "size", name)
    require_sizes(sizes)
    return sizes


def number_of(value: Arg) -> Scalar:
    """A Python number, from a number or from a tensor of one element."""
    return value.item() if hasattr(value, "item") else value


def _by_size(name: str, doc: str, row: str = "") -> Callable[..., Tensor]:
    """A factory whose only argument is the size."""

    record = _recorder_of(row or name)

    @composite(name, doc=doc)
    def make(*size: object, out: Tensor | None = None, dtype: DType | None = None, **options: object) -> Tensor:
        if out is None and dtype is None and not options and (result := record(size, default_dtype())) is not None:
            return result
        sizes = sizes_of(name, size, options)
        return create(row or name, sizes, dtype=type_for(out, dtype, default_dtype()), options=options, out=out)

    return make


def _by_like(name: str, doc: str, row: str) -> Callable[..., Tensor]:
    """A factory that takes size, type and device from a tensor."""

    record = _recorder_of(row)

    @composite(name, doc=doc, public=NO_METHOD)
    def make(input: Tensor, *, dtype: DType | None = None, **options: object) -> Tensor:
        if dtype is None and not options and (result := _like(record, input, input.shape)) is not None:
            return result
        return named_like(
            create(row, tuple(input.shape), dtype=dtype or input.dtype, options=options, like=input), input
        )

    return make


def _by_new(name: str, doc: str, row: str) -> Callable[..., Tensor]:
    """A method that takes a size; type and device are those of its tensor."""

    record = _recorder_of(row)

    @composite(name, doc=doc, public=NO_FUNCTION)
    def make(input: Tensor, *size: object, dtype: DType | None = None, **options: object) -> Tensor:
        if dtype is None and not options and (result := _like(record, input, size)) is not None:
            return result
        sizes = sizes_of(name, size, options)
        return create(row, sizes, dtype=dtype or input.dtype, options=options, like=input)

    return make


zeros = _by_size("zeros", "Zeros of the given sizes.")
ones = _by_size("ones", "Ones of the given sizes.")
empty = _by_size("empty", "Elements of no particular value: zeros.", "zeros")
rand = _by_size("rand", "Uniform numbers from [0, 1) of the given sizes.")
randn = _by_size("randn", "Normal numbers with mean 0 and variance 1 of the given sizes.")

zeros_like = _by_like("zeros_like", "Zeros with the sizes, type, device and names of `input`.", "zeros")
ones_like = _by_like("ones_like", "Ones with the sizes, type, device and names of `input`.", "ones")
empty_like = _by_like("empty_like", "Elements of no particular value like `input`: zeros.", "zeros")
rand_like = _by_like("rand_like", "Uniform numbers from [0, 1) like `input`.", "rand")
randn_like = _by_like("randn_like", "Normal numbers with mean 0 and variance 1 like `input`.", "randn")

new_zeros = _by_new("new_zeros", "Zeros of the given sizes, with this tensor's type and device.", "zeros")
new_ones = _by_new("new_ones", "Ones of the given sizes, with this tensor's type and device.", "ones")
new_empty = _by_new("new_empty", "Elements of no particular value, as `new_zeros`.", "zeros")


# A single number


def _type_of(value: object) -> DType:
    """The type of new tensors of this number: a tensor's own, and a NumPy number's is that of Python's number."""
    if isinstance(value, Tensor):
        return value.dtype
    python: object = number_of(value)
    return as_dtype(type(python), default_dtype())


def _filled(size: tuple[int, ...], fill_value: Arg, dtype: DType, **how: Arg) -> Tensor:
    """A tensor filled with one number, which must fit its type."""
    return create("full", size, fitting(number_of(fill_value), dtype), dtype=dtype, **how)


@composite()
def full(
    size: object, fill_value: Number, *, out: Tensor | None = None, dtype: DType | None = None, **options: object
) -> Tensor:
    """`fill_value` everywhere; its type is that of the result unless `dtype` is given."""
    if hasattr(size, "__index__"):
        raise ArgumentError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    settled = type_for(out, dtype, _type_of(fill_value))
    return _filled(sizes_of("full", (size,)), fill_value, settled, options=options, out=out)


@composite(public=NO_METHOD)
def full_like(input: Tensor, fill_value: Number, *, dtype: DType | None = None, **options: object) -> Tensor:
    """`fill_value` everywhere, with the sizes, type, device and names of `input`."""
    return named_like(_filled(tuple(input.shape), fill_value, dtype or input.dtype, options=options, like=input), input)


@composite(public=NO_FUNCTION)
def new_full(
    input: Tensor, size: object, fill_value: Number, *, dtype: DType | None = None, **options: object
) -> Tensor:
    """`fill_value` everywhere, with this tensor's type and device."""
    return _filled(sizes_of("new_full", (size,)), fill_value, dtype or input.dtype, options=options, like=input)


@composite()
def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: DType | None = None, **options: object
) -> Tensor:
    """A matrix of `n` by `m`, or by `n`, with ones on the diagonal."""
    size = (n, n if m is None else m)
    for word, count in zip("nm", size, strict=True):
        if count < 0:
            raise ShapeError(f"{word} must be greater or equal to 0, got {count}")
    return create("eye", size, dtype=type_for(out, dtype, default_dtype()), options=options, out=out)


# Sequences


def _bounds_type(*bounds: object) -> DType:
    """The default type, complex if a bound is."""
    return default_dtype().to_complex() if any(_type_of(b).is_complex for b in bounds) else default_dtype()


def refuse_bool(name: str, dtype: DType) -> DType:
    """The type itself of a sequence of numbers, which bools have none of."""
    if dtype.name == "bool":
        raise UnsupportedDTypeError(f"\"{name}_cpu\" not implemented for 'Bool'")
    return dtype


def _length(start: Arg, end: Arg, step: Arg, dtype: DType) -> int:
    """How many steps fit before `end`; bounds of an int64 sequence are cut to integers first."""
    if not all(math.isfinite(x) for x in (start, end)):
        raise OutOfRangeError(f"unsupported range: {start} -> {end}")
    if step == 0:
        raise OutOfRangeError("step must be nonzero")
    if (end - start) * step < 0:
        raise OutOfRangeError("upper bound and lower bound inconsistent with step sign")
    if dtype.name == "int64":
        start, end, step = int(start), int(end), int(step)
        count = -((start - end) // step)
    else:
        count = math.ceil((end - start) / step)
    if count >= 2**63:
        raise OutOfRangeError("invalid size, possible overflow?")
    return count


def _whole_steps(start: Arg, end: Arg, step: Arg) -> int | None:
    """How many steps fit before `end`, for ints of which there is such a number; None for all other bounds."""
    whole = type(start) is type(end) is type(step) is int
    if whole and step and (end - start) * step >= 0 and max(abs(start), abs(end)) < 2**62:
        return -((start - end) // step)
    return None


@composite()
def arange(
    start: Number | None = None,
    end: Number | None = None,
    step: Number = 1,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    **options: object,
) -> Tensor:
    """Numbers from `start`, 0 if there is one bound, up to `end`, left out; integers if all three are."""
    if end is None:
        start, end = None, start
    if end is None:
        raise ArgumentError("arange(): argument 'end' must be Number, not NoneType")
    bounds = first, last, by = (0 if start is None else start, end, step)
    if out is None and dtype is None and (count := _whole_steps(*bounds)) is not None:
        return create("arange", (count,), first, by, dtype=int64, options=options)
    whole = all(t.category < default_dtype().category for t in map(_type_of, bounds))
    dtype = type_for(out, dtype, int64 if whole else default_dtype())
    first, last, by = map(number_of, bounds)
    for x in (first, last, by):
        fitting(x, int64 if isinstance(x, int) else float64)
    count = _length(first, last, by, refuse_bool("arange", dtype))
    if out is not None and out.numel() not in (0, count):
        warn_user(
            f"The number of elements in the out tensor of shape {list(out.shape)} is {out.numel()} which does not "
            f"match the computed number of elements {count}. Note that this may occur as a result of rounding error. "
            f"The out tensor will be resized to a tensor of shape ({count},)."
        )
    return _in_order("arange", count, first, by, dtype=dtype, options=options, out=out)


def _in_order(row: str, count: int, *args: Arg, out: Tensor | None, **how: Arg) -> Tensor:
    """A sequence of so many numbers; an `out` with as many elements keeps its shape."""
    result = create(row, (count,), *args, **how)
    if out is None:
        return result
    return replace(out, op.view(result, out.shape) if out.numel() == count else result)


def _spaced(
    name: str,
    ends: tuple[object, object],
    steps: int,
    *base: float,
    out: Tensor | None,
    dtype: DType | None,
    options: Kwargs,
) -> Tensor:
    """`linspace` or `logspace`."""
    for word, bound in zip(("start", "end"), ends, strict=True):
        if isinstance(bound, Tensor) and bound.ndim:
            raise ShapeError(
                f"{name} only supports 0-dimensional start and end tensors, "
                f"but got {word} with {bound.ndim} dimension(s)."
            )
    if isinstance(steps, bool) or not hasattr(steps, "__index__"):
        raise combination(name, *ends, steps, *base)
    if steps < 0:
        raise OutOfRangeError("number of steps must be non-negative")
    inferred = _bounds_type(*ends)
    settled = refuse_bool(name, type_for(out, dtype, inferred))
    if inferred.is_complex and not settled.is_complex:
        raise DTypeError(
            f"torch.{name}(): inferred dtype {c_name(inferred)} can't be safely cast to passed dtype "
            f"{scalar_name(settled)}"
        )
    ends = tuple(map(number_of, ends))
    return _in_order(name, steps, *ends, *base, dtype=settled, options=options, out=out)


@composite()
def linspace(
    start: Tensor | Number,
    end: Tensor | Number,
    steps: Arg,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    **options: Arg,
) -> Tensor:
    """`steps` numbers evenly spaced from `start` to `end`, both included."""
    return _spaced("linspace", (start, end), steps, out=out, dtype=dtype, options=options)


@composite()
def logspace(
    start: Tensor | Number,
    end: Tensor | Number,
    steps: Arg,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    **options: Arg,
) -> Tensor:
    """`base` to the power of `steps` numbers evenly spaced from `start` to `end`."""
    return _spaced("logspace", (start, end), steps, base, out=out, dtype=dtype, options=options)


# Windows


def _window(name: str, row: str, length: int, *shape: object, dtype: DType | None, options: Kwargs) -> Tensor:
    if length < 0:
        raise OutOfRangeError(f"{name} requires non-negative window_length, got window_length={length}")
    settled = dtype or default_dtype()
    if not settled.is_floating_point:
        raise DTypeError(f"{name} expects floating point dtypes, got: {settled}")
    return create(row, (length,), *shape, dtype=settled, options=options)


def _plain_window(name: str, doc: str, coefficients: tuple[float, ...] = ()) -> Callable[..., Tensor]:
    """A window with no parameters: a sum of cosines, or Bartlett's."""

    @composite(name, doc=doc)
    def make(window_length: int, periodic: bool = True, *, dtype: DType | None = None, **options: object) -> Tensor:
        row, shape = ("cosine_window", (coefficients, periodic)) if coefficients else (name, (periodic,))
        return _window(name, row, window_length, *shape, dtype=dtype, options=options)

    return make


hann_window = _plain_window("hann_window", "The window `sin(pi x)^2`.", (0.5, -0.5))
blackman_window = _plain_window("blackman_window", "Blackman's window of three cosines.", (0.42, -0.5, 0.08))
bartlett_window = _plain_window("bartlett_window", "A rise and a fall in straight lines.")


@composite()
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    **options: object,
) -> Tensor:
    """The window `alpha - beta cos(2 pi x)`."""
    shape = ((alpha, -beta), periodic)
    return _window("hamming_window", "cosine_window", window_length, *shape, dtype=dtype, options=options)


@composite()
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    **options: object,
) -> Tensor:
    """Kaiser's window with shape parameter `beta`."""
    shape = (periodic, beta)
    return _window("kaiser_window", "kaiser_window", window_length, *shape, dtype=dtype, options=options)
