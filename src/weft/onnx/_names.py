"""What is imported for ONNX."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NoReturn

from weft.errors import UnsupportedCallError


class TensorProtoDataType(IntEnum):
    """ONNX's numbers of element types."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises `NotImplementedError`, which says what to use instead."""
    raise UnsupportedCallError(
        "onnx.export: Weft exports programs as StableHLO, not as ONNX; use torch.export.export and torch.export.save"
    )


class ONNXProgram:
    """Would be the result of `export`; making one raises `NotImplementedError`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        export()


def is_in_onnx_export() -> bool:
    """False."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Does nothing: nothing is written as ONNX, so the function would never be called."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Does nothing, as `register_custom_op_symbolic`."""
