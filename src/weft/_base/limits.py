"""The ranges of element types; `finfo` and `iinfo`."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, SupportsFloat, cast

import ml_dtypes
import numpy as np

from weft._base.dtype import BOOL, COMPLEX, INTEGER, DType, as_dtype, dtype_named, float64
from weft._base.state import default_dtype
from weft.errors import ArgumentError

INT64 = range(-(2**63), 2**63)
"""The integers that int64 holds."""


class _FloatFacts(Protocol):
    """What NumPy, or ml_dtypes, says of a floating type."""

    min: SupportsFloat
    max: SupportsFloat
    eps: SupportsFloat
    smallest_normal: SupportsFloat
    precision: int
    nmant: int


def facts_of(dtype: DType) -> _FloatFacts:
    return cast("_FloatFacts", ml_dtypes.finfo(dtype.numpy))


@cache
def limits(dtype: DType) -> tuple[Any, Any]:
    """The smallest and the largest number of a type that is not complex."""
    assert dtype.category != COMPLEX, "complex numbers have no order"
    if dtype.category == BOOL:
        return 0, 1
    if dtype.category == INTEGER:
        info = np.iinfo(dtype.numpy)
        return int(info.min), int(info.max)
    facts = facts_of(dtype)
    return float(facts.min), float(facts.max)


class _Info:
    """Properties of an element type; equal for equal types."""

    _repr_fields: tuple[str, ...]

    def __init__(self, bits: int, dtype: DType) -> None:
        self.bits = bits
        self.dtype = dtype.name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (dtype_named(self.dtype),)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        facts = [f"{name}={getattr(self, name):g}" for name in self._repr_fields]
        return f"{type(self).__name__}({', '.join(facts)}, dtype={self.dtype})"


class finfo(_Info):
    """Range and precision of a floating type (of the parts of a complex one), by default of the default type."""

    _repr_fields = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")

    def __init__(self, type: DType | None = None) -> None:
        dtype = (default_dtype() if type is None else as_dtype(type, float64)).to_real()
        if not dtype.is_floating_point:
            raise ArgumentError(
                f"torch.finfo() requires a floating point input type, got {dtype}. Use torch.iinfo instead"
            )
        facts = facts_of(dtype)
        super().__init__(dtype.itemsize * 8, dtype)
        self.min, self.max = limits(dtype)
        self.eps = float(facts.eps)
        self.tiny = self.smallest_normal = float(facts.smallest_normal)
        self.resolution = 1.0 if dtype.is_float8 else 10.0**-facts.precision


class iinfo(_Info):
    """Range of an integer type."""

    _repr_fields = ("min", "max")

    def __init__(self, type: DType) -> None:
        dtype = as_dtype(type)
        if dtype.category != INTEGER:
            instead = "" if dtype.category == BOOL else ". Use torch.finfo instead"
            raise ArgumentError(f"torch.iinfo() requires an integer input type, got {dtype}{instead}")
        super().__init__(dtype.itemsize * 8, dtype)
        self.min, self.max = limits(dtype)
