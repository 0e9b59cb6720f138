"""Random factories and fills with arguments that do not fit a single row."""

from __future__ import annotations

from numbers import Real

from weft._base.dtype import BOOL, COMPLEX, FLOAT, INTEGER, DType, float16, float32, float64, int64
from weft._base.limits import INT64, facts_of, limits
from weft._base.site import warn_user
from weft._base.state import default_dtype
from weft._base.types import Arg, Kwargs
from weft._tensor.arguments import combination, integer, ints
from weft._tensor.codegen import op
from weft._tensor.composite.create import create, named_like, sizes_of, type_for
from weft._tensor.functions import composite
from weft._tensor.scalar import fitting
from weft._tensor.tensor import Tensor
from weft._tensor.view import write
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, UnsupportedDTypeError
from weft.ops._dims import require_sizes
from weft.ops._table import NO_FUNCTION, NO_METHOD
from weft.ops._type_names import c_name, scalar_name


def _end_of(dtype: DType) -> int:
    """One more than the largest integer up to which the type has all integers, limited to int64."""
    if dtype.category == FLOAT:
        return 2 ** _digits(dtype) + 1
    return min(limits(dtype)[1] + 1, INT64[-1])


def _digits(dtype: DType) -> int:
    """The number of binary digits of a floating type's mantissa; all integers with as many digits are exact."""
    return facts_of(dtype).nmant + 1


def _require_range(low: int, high: int, dtype: DType) -> None:
    """Raise `RuntimeError` for integer bounds outside of a type's range; warn if the type cannot hold all integers."""
    if low >= high:
        raise OutOfRangeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype.category == COMPLEX:
        raise DTypeError("check_random_bounds handles only integral, floating-point and boolean types")
    bounds = {"from": low, "to - 1": high - 1}
    least, most = limits(dtype)
    for word, x in bounds.items():
        if not least <= x <= most:
            raise OutOfRangeError(f"{word} is out of bounds for {c_name(dtype)}")
    if dtype.category == FLOAT:
        digits = _digits(dtype)
        for word, x in bounds.items():
            if abs(x) > 2**digits:
                warn_user(
                    f"{word} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations "
                    f"{c_name(dtype)} can support discrete uniform distribution only within this range. This warning "
                    "will become an error in version 1.7 release, please fix the code in advance"
                )


@composite()
def randint(
    low: int = 0,
    high: object = None,
    size: object = None,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    **options: object,
) -> Tensor:
    """Integers from [low, high), or from [0, high) when one bound is given; int64 unless `dtype` is given."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise ArgumentError('randint() missing 1 required positional arguments: "size"')
    settled = type_for(out, dtype, int64)
    last = integer(high, "high", "randint")
    _require_range(low, last, settled)
    return create("randint", ints(size, "size", "randint"), low, last, dtype=settled, options=options, out=out)


@composite(public=NO_METHOD)
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: DType | None = None, **options: object
) -> Tensor:
    """Integers from [low, high), or from [0, low), with the sizes, type, device and names of `input`."""
    first, last = (0, low) if high is None else (low, high)
    settled = dtype or input.dtype
    _require_range(first, last, settled)
    return named_like(
        create("randint", tuple(input.shape), first, last, dtype=settled, options=options, like=input), input
    )


@composite()
def randperm(n: int, *, out: Tensor | None = None, dtype: DType | None = None, **options: object) -> Tensor:
    """The integers below `n` in random order."""
    settled = type_for(out, dtype, int64)
    require_sizes((n,))
    if settled.category in (BOOL, COMPLEX):
        raise UnsupportedDTypeError(f"\"randperm\" not implemented for '{scalar_name(settled)}'")
    if settled.category == INTEGER:
        fitting(n - 1, settled)
    elif settled in _MOST_IN_ORDER and n >= _end_of(settled) + 1:
        raise OutOfRangeError(f"n cannot be greater than {_MOST_IN_ORDER[settled]} for {scalar_name(settled)} type.")
    return create("randperm", (n,), dtype=settled, options=options, out=out)


_MOST_IN_ORDER = {float16: "2049", float32: "2^24+1", float64: "2^53+1"}
"""PyTorch's texts for the limits up to which floating types hold all integers."""


def _require_spread(std: object) -> None:
    if isinstance(std, Real) and std < 0:
        raise OutOfRangeError(f"normal expects std >= 0.0, but found std {std:g}")


def _filled(input: Tensor, row: str, first: float, second: float, options: Kwargs) -> Tensor:
    """`input`, after its elements have been replaced by those of a factory row."""
    shape, dtype = tuple(input.shape), input.dtype
    return write(input, create(row, shape, first, second, dtype=dtype, options=options, like=input)._read())


@composite()
def normal(
    mean: Arg = 0.0,
    std: Arg = 1.0,
    size: Arg = None,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    **options: Arg,
) -> Tensor:
    """Normal numbers: one for each element of the tensors `mean` and `std`, or `size` of them for two numbers.

    The type is that of the mean, if it is a tensor, else that of the deviation.
    """
    if isinstance(std, Tensor) and std.is_complex():
        raise DTypeError("normal expects standard deviation to be non-complex")
    if isinstance(mean, complex) or isinstance(std, complex):
        raise combination("normal", mean, std)
    _require_spread(std)
    if size is None:
        if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
            raise ArgumentError("normal() needs a size when mean and std are numbers")
        like = mean if isinstance(mean, Tensor) else std
        return op.normal_sample(mean, std, dtype=like.dtype, out=out, **options)
    sizes = sizes_of("normal", (size,))
    settled = type_for(out, dtype, default_dtype())
    return create("normal_by_size", sizes, mean, std, dtype=settled, options=options, out=out)


@composite("normal_", public=NO_FUNCTION)
def normal_(input: Tensor, mean: float = 0.0, std: float = 1.0, **options: object) -> Tensor:
    """Fill with normal numbers."""
    _require_spread(std)
    return _filled(input, "normal_by_size", mean, std, options)


@composite("bernoulli_", public=NO_FUNCTION)
def bernoulli_(input: Tensor, p: Arg = 0.5, **options: Arg) -> Tensor:
    """Fill with ones with probability `p`, a number or a tensor that broadcasts, else zeros."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise OutOfRangeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return write(input, op.bernoulli(input.detach(), p, **options)._read())


@composite("uniform_", public=NO_FUNCTION)
def uniform_(input: Tensor, from_: float = 0.0, to: float = 1.0, **options: object) -> Tensor:
    """Fill with uniform numbers from [from_, to)."""
    real = input.dtype.to_real()
    if real.category == FLOAT:
        least, most = limits(real)
        for word, x in (("from", from_), ("to", to)):
            if not least <= x <= most:
                raise OutOfRangeError(f"{word} is out of bounds for {c_name(real)}")
        if from_ > to:
            raise OutOfRangeError(f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}")
        if to - from_ > most:
            raise OutOfRangeError(
                f"uniform_ expects to-from <= std::numeric_limits<{scalar_name(input.dtype)}>::max(), but found "
                f"to={to:g} and from={from_:g} which result in to-from to exceed the limit"
            )
    return write(input, op.uniform(input, from_, to, **options)._read())


@composite("random_", public=NO_FUNCTION)
def random_(input: Tensor, low: int | None = None, high: int | None = None, **options: object) -> Tensor:
    """Fill with integers from [low, high), from [0, low) if one bound is given, or from all that the type holds."""
    if high is None and low is not None:
        low, high = 0, low
    if high is None and input.is_complex():
        raise UnsupportedDTypeError(f"\"random_kernel_cpu\" not implemented for '{scalar_name(input.dtype)}'")
    end = _end_of(input.dtype) if high is None else high
    _require_range(low or 0, end, input.dtype)
    return _filled(input, "randint", low or 0, end, options)
