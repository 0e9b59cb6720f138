"""How PyTorch spells element types in the texts of its errors."""

from __future__ import annotations

_WORDS = {
    "bool": ("Bool", "bool"),
    "uint8": ("Byte", "unsigned char"),
    "int8": ("Char", "signed char"),
    "int16": ("Short", "short int"),
    "int32": ("Int", "int"),
    "int64": ("Long", "long int"),
    "uint16": ("UInt16", "short unsigned int"),
    "uint32": ("UInt32", "unsigned int"),
    "uint64": ("UInt64", "long unsigned int"),
    "float8_e4m3fn": ("Float8_e4m3fn", "c10::Float8_e4m3fn"),
    "float8_e5m2": ("Float8_e5m2", "c10::Float8_e5m2"),
    "float8_e4m3fnuz": ("Float8_e4m3fnuz", "c10::Float8_e4m3fnuz"),
    "float8_e5m2fnuz": ("Float8_e5m2fnuz", "c10::Float8_e5m2fnuz"),
    "float8_e8m0fnu": ("Float8_e8m0fnu", "c10::Float8_e8m0fnu"),
    "float16": ("Half", "c10::Half"),
    "bfloat16": ("BFloat16", "c10::BFloat16"),
    "float32": ("Float", "float"),
    "float64": ("Double", "double"),
    "complex64": ("ComplexFloat", "c10::complex<float>"),
    "complex128": ("ComplexDouble", "c10::complex<double>"),
    "quint8": ("QUInt8", "c10::quint8"),
    "qint8": ("QInt8", "c10::qint8"),
    "qint32": ("QInt32", "c10::qint32"),
}


def scalar_name(typed: object) -> str:
    """PyTorch's name of an element type, or of an array's, such as `Float`."""
    return _WORDS[_name(typed)][0]


def c_name(typed: object) -> str:
    """The C++ name of an element type, or of an array's, such as `float`."""
    return _WORDS[_name(typed)][1]


def _name(typed: object) -> str:
    dtype = getattr(typed, "dtype", typed)
    return getattr(dtype, "name", str(dtype))
