"""Decorators of functions that write operators as ONNX. Nothing calls such functions here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from weft.onnx._names import TensorProtoDataType

cast_pytorch_to_onnx = {
    "Byte": TensorProtoDataType.UINT8,
    "Char": TensorProtoDataType.INT8,
    "Double": TensorProtoDataType.DOUBLE,
    "Float": TensorProtoDataType.FLOAT,
    "Half": TensorProtoDataType.FLOAT16,
    "Int": TensorProtoDataType.INT32,
    "Long": TensorProtoDataType.INT64,
    "Short": TensorProtoDataType.INT16,
    "Bool": TensorProtoDataType.BOOL,
    "BFloat16": TensorProtoDataType.BFLOAT16,
}
"""ONNX's types of elements by PyTorch's names for them."""

F = TypeVar("F", bound=Callable[..., Any])


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """A decorator that changes nothing."""
    return lambda function: function
