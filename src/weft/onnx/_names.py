"""What is imported for ONNX."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

from weft._tensor.tensor import Tensor
from weft.errors import UnsupportedCallError, WeftError


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


def export(*args: object, **kwargs: object) -> NoReturn:
    """Raises `NotImplementedError`, which says what to use instead."""
    raise UnsupportedCallError(
        "torch.onnx.export: no ONNX files are written here. weft.export.save(weft.export.export(module, args), path) "
        "writes a module with its tensors as StableHLO, which XLA and jax run; or give its state_dict() to PyTorch "
        "and export it there"
    )


class TrainingMode(IntEnum):
    """In which mode PyTorch's exporter would run a module."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(IntEnum):
    """What PyTorch's exporter would do with operators that ONNX lacks."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class OnnxExporterError(WeftError, RuntimeError):
    """An export to ONNX has failed; for `except` clauses, since none can begin here."""


class ONNXProgram:
    """Would be the result of `export`; making one raises `NotImplementedError`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        export()


def is_in_onnx_export() -> bool:
    """False."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: object, opset_version: int) -> None:
    """Does nothing: nothing is written as ONNX, so the function would never be called."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Does nothing, as `register_custom_op_symbolic`."""


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Tensor:
    """`reshape` to sizes in a tensor."""
    return x.reshape(shape.tolist())
