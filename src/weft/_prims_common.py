"""Facts about types and sizes that libraries take from PyTorch's reference operators."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft._base.determinism import refuse_undetermined as alert_not_deterministic
from weft._base.dtype import BOOL, COMPLEX, FLOAT, INTEGER, DType, bfloat16, float16
from weft._symbols import SymBool, SymFloat, SymInt
from weft._tensor.tensor import Tensor
from weft.errors import DimError, ShapeError

__all__ = ["alert_not_deterministic"]

Number = (bool, int, float, complex, SymInt, SymFloat, SymBool)
IntLike = (int, SymInt)
FloatLike = (float, SymFloat)
BoolLike = (bool, SymBool)


def is_boolean_dtype(dtype: DType) -> bool:
    """Whether it is the type of bools."""
    return dtype.category == BOOL


def is_integer_dtype(dtype: DType) -> bool:
    """Whether it is a type of integers."""
    return dtype.category == INTEGER


def is_low_precision_dtype(dtype: DType) -> bool:
    """Whether it is a type of 16-bit floats."""
    return dtype in (float16, bfloat16)


def is_float_dtype(dtype: DType) -> bool:
    """Whether it is a type of floats."""
    return dtype.category == FLOAT


def is_complex_dtype(dtype: DType) -> bool:
    """Whether it is a type of complex numbers."""
    return dtype.category == COMPLEX


def corresponding_real_dtype(dtype: DType) -> DType:
    """The type of the parts of complex numbers."""
    return dtype.to_real()


def corresponding_complex_dtype(dtype: DType) -> DType:
    """The type of complex numbers with parts of a type."""
    return dtype.to_complex()


def is_contiguous(a: Tensor) -> bool:
    """Whether the elements lie one after another."""
    return a.is_contiguous()


is_contiguous_or_false = is_contiguous


def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """The number of a dim from 0 on; `IndexError` if there is no such dim."""
    count = max(rank, 1) if wrap_scalar else rank
    if not -count <= idx < count:
        raise DimError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {idx})")
    return idx % count


def canonicalize_dims(rank: int, indices: int | Sequence[int], wrap_scalar: bool = True) -> int | tuple[int, ...]:
    """The numbers of dims from 0 on."""
    if isinstance(indices, int):
        return canonicalize_dim(rank, indices, wrap_scalar)
    return tuple([canonicalize_dim(rank, idx, wrap_scalar) for idx in indices])


def make_contiguous_strides_for(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of elements that lie one after another."""
    return tuple([prod(max(size, 1) for size in shape[at + 1 :]) for at in range(len(shape))])


def infer_size_impl(shape: Sequence[int], numel: int) -> list[int]:
    """The sizes that `shape`, with one -1 at most, stands for if there are so many elements."""
    known = prod(size for size in shape if size >= 0)
    open_dims = [at for at, size in enumerate(shape) if size < 0]
    fits = numel == known if not open_dims else known > 0 and numel % known == 0
    if len(open_dims) > 1 or not fits:
        raise ShapeError(f"shape {list(shape)} is invalid for input of size {numel}")
    return [numel // known if size < 0 else size for size in shape]
