"""Random factories and fills whose spelling depends on their arguments."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from weft._base.dtype import BOOL, INTEGER, DType, int64
from weft._base.state import default_dtype
from weft._tensor.arguments import integer, ints
from weft._tensor.composite.create import made, sizes_of
from weft._tensor.spelling import composite, op
from weft._tensor.tensor import Tensor
from weft._tensor.view import write
from weft.errors import ArgumentError, OutOfRangeError
from weft.ops._dims import require_sizes
from weft.ops._words import c_word


def _end_of(dtype: DType) -> int:
    """One more than the last integer up to which the type holds all, as far as int64 can say it."""
    if dtype.category == BOOL:
        return 2
    if dtype.category == INTEGER:
        return min(int(np.iinfo(dtype.numpy).max) + 1, 2**63 - 1)
    return 2 ** (ml_dtypes.finfo(dtype.numpy).nmant + 1) + 1


def _require_range(low: int, high: int, dtype: DType) -> None:
    if low >= high:
        raise OutOfRangeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype.category <= INTEGER and high > _end_of(dtype):
        raise OutOfRangeError(f"to - 1 is out of bounds for {c_word(dtype)}")


@composite(over=True)
def randint(low: int = 0, high: Any = None, size: Any = None, *, dtype: DType | None = None, **options: Any) -> Tensor:
    """Integers from [low, high), or from [0, high) when one bound is given; int64 unless `dtype` is given."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise ArgumentError('randint() missing 1 required positional arguments: "size"')
    settled = dtype or int64
    last = integer(high, "high", "randint")
    _require_range(low, last, settled)
    return made("randint", ints(size, "size", "randint"), low, last, dtype=settled, options=options)


@composite(method=False)
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: DType | None = None, **options: Any
) -> Tensor:
    """Integers from [low, high), or from [0, low), with the sizes, type, device and names of `input`."""
    first, last = (0, low) if high is None else (low, high)
    settled = dtype or input.dtype
    _require_range(first, last, settled)
    return made("randint", tuple(input.shape), first, last, dtype=settled, options=options, like=input)


@composite(over=True)
def randperm(n: int, *, dtype: DType | None = None, **options: Any) -> Tensor:
    """The integers below `n` in random order."""
    require_sizes((n,))
    return made("randperm", (n,), dtype=dtype or int64, options=options)


def _require_spread(std: Any) -> None:
    if not isinstance(std, Tensor) and std < 0:
        raise OutOfRangeError(f"normal expects std >= 0.0, but found std {std:g}")


def _filled(input: Tensor, row: str, first: float, second: float, options: dict[str, Any]) -> Tensor:
    """`input` after a factory row has written all of it."""
    shape, dtype = tuple(input.shape), input.dtype
    return write(input, made(row, shape, first, second, dtype=dtype, options=options, like=input)._read())


@composite()
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, dtype: DType | None = None, **options: Any) -> Tensor:
    """Normal numbers, one for each element of tensors `mean` and `std`, or `size` of them for two numbers."""
    _require_spread(std)
    if size is None:
        if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
            raise ArgumentError("normal() needs a size when mean and std are numbers")
        return op.normal_sample(mean, std, **options)
    sizes = sizes_of("normal", (size,))
    return made("normal_by_size", sizes, mean, std, dtype=dtype or default_dtype(), options=options)


@composite("normal_", function=False)
def normal_(input: Tensor, mean: float = 0.0, std: float = 1.0, **options: Any) -> Tensor:
    """Fill with normal numbers."""
    _require_spread(std)
    return _filled(input, "normal_by_size", mean, std, options)


@composite("bernoulli_", function=False)
def bernoulli_(input: Tensor, p: Any = 0.5, **options: Any) -> Tensor:
    """Fill with ones with probability `p`, a number or a tensor that broadcasts, else zeros."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise OutOfRangeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return write(input, op.bernoulli(input.detach(), p, **options)._read())


@composite("random_", function=False)
def random_(input: Tensor, low: int | None = None, high: int | None = None, **options: Any) -> Tensor:
    """Fill with integers from [low, high), from [0, low) given one bound, or from all that the type holds."""
    if high is None and low is not None:
        low, high = 0, low
    end = _end_of(input.dtype) if high is None else high
    _require_range(low or 0, end, input.dtype)
    return _filled(input, "randint", low or 0, end, options)
