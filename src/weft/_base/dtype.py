"""Element types and PyTorch's promotion between them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from weft._base.of_pytorch import way_from_pytorch
from weft.errors import ArgumentError, DTypeError

BOOL, INTEGER, FLOAT, COMPLEX = range(4)  # categories, in order of promotion


class DType:
    """An element type. One object per type, so `is` and `==` agree."""

    __slots__ = ("aliases", "category", "is_quantized", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy: Any, category: int, *aliases: str, is_quantized: bool = False) -> None:
        self.name = name
        self.is_quantized = is_quantized
        self.numpy = np.dtype(numpy)
        self.category = category
        self.itemsize = self.numpy.itemsize
        self.aliases = aliases

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_named, (self.name,)

    @property
    def is_floating_point(self) -> bool:
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        return self.category == COMPLEX

    @property
    def is_signed(self) -> bool:
        if self.is_quantized:
            raise DTypeError(f"isSignedType not supported for quantized types: {self}")
        return self.category != BOOL and self.numpy.kind != "u"

    @property
    def is_float8(self) -> bool:
        """Whether it is an 8-bit float, which is stored and converted, and not computed with."""
        return self.itemsize == 1 and self.category == FLOAT

    @property
    def is_differentiable(self) -> bool:
        return self.category >= FLOAT

    def to_real(self) -> DType:
        """The type of the real part."""
        return _REAL.get(self, self)

    def to_complex(self) -> DType:
        """The complex type whose parts have this type."""
        if self.category == COMPLEX:
            return self
        return complex128 if self is float64 else complex64


class NamedDType(DType):
    """An element type of PyTorch's that no tensor has here: it can be named, compared and looked up, and has a size."""

    __slots__ = ()

    def __init__(self, name: str, itemsize: int, category: int, *, is_quantized: bool = False) -> None:
        self.name = name
        self.is_quantized = is_quantized
        self.category = category
        self.itemsize = itemsize
        self.aliases = ()

    @property
    def numpy(self) -> Any:
        advice = "torch.complex64" if self.category == COMPLEX else "torch.uint8 for its bytes"
        raise DTypeError(f"no tensor has elements of type {self} here; use {advice}")

    @property
    def is_signed(self) -> bool:
        if self.is_quantized:
            return super().is_signed
        return self.category > INTEGER or self.name.startswith("int")


# As users see the class: `weft.dtype`.
DType.__name__ = DType.__qualname__ = "dtype"
DType.__module__ = "weft"

bool_ = DType("bool", np.bool_, BOOL)
uint8 = DType("uint8", np.uint8, INTEGER)
int8 = DType("int8", np.int8, INTEGER)
int16 = DType("int16", np.int16, INTEGER, "short")
int32 = DType("int32", np.int32, INTEGER, "int")
int64 = DType("int64", np.int64, INTEGER, "long")
uint16 = DType("uint16", np.uint16, INTEGER)
uint32 = DType("uint32", np.uint32, INTEGER)
uint64 = DType("uint64", np.uint64, INTEGER)
float8_e4m3fn = DType("float8_e4m3fn", ml_dtypes.float8_e4m3fn, FLOAT)
float8_e5m2 = DType("float8_e5m2", ml_dtypes.float8_e5m2, FLOAT)
float8_e4m3fnuz = DType("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, FLOAT)
float8_e5m2fnuz = DType("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, FLOAT)
float8_e8m0fnu = DType("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, FLOAT)
float16 = DType("float16", np.float16, FLOAT, "half")
bfloat16 = DType("bfloat16", ml_dtypes.bfloat16, FLOAT)
float32 = DType("float32", np.float32, FLOAT, "float")
float64 = DType("float64", np.float64, FLOAT, "double")
complex64 = DType("complex64", np.complex64, COMPLEX, "cfloat")
complex128 = DType("complex128", np.complex128, COMPLEX, "cdouble")

quint8 = DType("quint8", np.uint8, INTEGER, is_quantized=True)
qint8 = DType("qint8", np.int8, INTEGER, is_quantized=True)
qint32 = DType("qint32", np.int32, INTEGER, is_quantized=True)

complex32 = NamedDType("complex32", 4, COMPLEX)
float4_e2m1fn_x2 = NamedDType("float4_e2m1fn_x2", 1, FLOAT)
int1, int2, int3, int4, int5, int6, int7 = (NamedDType(f"int{bits}", 1, INTEGER) for bits in range(1, 8))
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (NamedDType(f"uint{bits}", 1, INTEGER) for bits in range(1, 8))
bits1x8, bits2x4, bits4x2, bits8 = (NamedDType(f"bits{form}", 1, INTEGER) for form in ("1x8", "2x4", "4x2", "8"))
bits16 = NamedDType("bits16", 2, INTEGER)
quint4x2 = NamedDType("quint4x2", 1, INTEGER, is_quantized=True)
quint2x4 = NamedDType("quint2x4", 1, INTEGER, is_quantized=True)

QUANTIZED = (quint8, qint8, qint32)
"""Types of quantized tensors, whose elements are integers that stand for multiples of a scale.

`numpy` is the type of these integers. No array has such a type: see `_tensor/quantized/form.py`.
"""

DTYPES = (
    bool_,
    uint8,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uint32,
    uint64,
    float8_e4m3fn,
    float8_e5m2,
    float8_e4m3fnuz,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)
NAMED = tuple([d for d in vars().copy().values() if isinstance(d, NamedDType)])
"""Types that no tensor has here."""

_BY_NAME = {d.name: d for d in vars().copy().values() if isinstance(d, DType)}
_BY_NUMPY = {d.numpy: d for d in DTYPES}
_REAL = {complex64: float32, complex128: float64}
_BY_PYTHON: dict[object, DType] = {bool: bool_, int: int64}


def dtype_named(name: str) -> DType:
    """The type with this name, such as `"float32"`."""
    return _BY_NAME[name]


def from_numpy(dtype: Any) -> DType:
    """The type that holds elements of a NumPy dtype; `TypeError` when there is none."""
    try:
        return _BY_NUMPY[np.dtype(dtype)]
    except (KeyError, TypeError):
        supported = ", ".join(d.name for d in DTYPES)
        raise ArgumentError(f"can't convert a value of dtype {dtype!r}; supported types are {supported}") from None


def as_dtype(value: object, default_float: DType = float32) -> DType:
    """A `DType` from a `DType`, or from `bool`, `int`, `float` or `complex`."""
    if isinstance(value, DType):
        return value
    if value is float:
        return default_float
    if value is complex:
        return default_float.to_complex()
    if isinstance(value, type) and value in _BY_PYTHON:
        return _BY_PYTHON[value]
    raise ArgumentError(f"dtype must be a torch.dtype, not {type(value).__name__}: {value!r}{way_from_pytorch(value)}")


@lru_cache(maxsize=1024)
def promote_types(a: DType, b: DType) -> DType:
    """The smallest type to which both can be cast, by PyTorch's rules (`float16` for `int64` and `float16`)."""
    if a.is_quantized or b.is_quantized:
        raise DTypeError(
            "promoteTypes with quantized numbers is not handled yet; figure out what the correct rules should be, "
            f"offending types: {a} {b}; use x.dequantize() first"
        )
    if a is b:
        return a
    if named := next((d for d in (a, b) if isinstance(d, NamedDType)), None):
        raise DTypeError(f"{a} and {b} are not promoted: no tensor has elements of type {named} here")
    if (a.is_float8 or b.is_float8) and bool_ not in (a, b):
        raise DTypeError(
            f"Promotion for Float8 Types is not supported, attempted to promote {a} and {b}; cast one of them first"
        )
    if a.category != b.category:
        low, high = sorted((a, b), key=lambda d: d.category)
        if high is complex64 and low is float64:
            return complex128
        return high
    if a.category == COMPLEX:
        return complex128
    if a.category == FLOAT:
        if {a, b} == {float16, bfloat16}:
            return float32
        return a if a.itemsize > b.itemsize else b
    if a.is_signed == b.is_signed:
        return a if a.itemsize > b.itemsize else b
    unsigned, signed = (b, a) if a.is_signed else (a, b)
    if unsigned.itemsize < signed.itemsize:
        return signed
    if unsigned is uint8:
        return int16
    raise ArgumentError(f"Promotion for {a} and {b} is not supported; cast one of them first")


def can_cast(from_: DType, to: DType) -> bool:
    """Whether an in-place result of type `from_` may be written to `to`."""
    return from_.category <= to.category


def result_type(operands: tuple[tuple[DType, int, bool], ...], default_float: DType) -> DType:
    """The result type of an operation over operands `(dtype, ndim, is_python_number)`.

    Tensors with dims take precedence over zero-dim tensors, and these over Python numbers; operands of lower precedence
    matter only if their category is higher (https://pytorch.org/docs/stable/tensor_attributes.html).
    """
    classes: list[DType | None] = [None, None, None]
    for dtype, ndim, number in operands:
        if number and dtype.category >= FLOAT:  # Python floats have the default type
            dtype = default_float if dtype.category == FLOAT else default_float.to_complex()
        rank = 2 if number else 0 if ndim else 1
        seen = classes[rank]
        classes[rank] = dtype if seen is None else promote_types(seen, dtype)
    result: DType | None = None
    for dtype in classes:
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif dtype.category == COMPLEX and result.category == FLOAT:  # only the category matters, not the size
            result = result.to_complex()
        elif dtype.category > result.category:
            result = promote_types(result, dtype)
    assert result is not None, "result_type of no operands"
    return result
