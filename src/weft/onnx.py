"""ONNX, for programs that import it: there is no exporter to its files, and calls say what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NoReturn

from weft._base.exports import missing
from weft.errors import UnsupportedCallError, WeftError

ExportableModule = Any
"""What exporters would take."""


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
    """A program in ONNX's form; for annotations, since there are none here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse("ONNXProgram")


def export(model: Any, args: Any = (), f: Any = None, **options: Any) -> NoReturn:
    """Raises `NotImplementedError`, which says how modules are exported here."""
    del model, args, f, options
    _refuse("export")


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Does nothing: no exporter would call the function."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Does nothing."""


def is_in_onnx_export() -> bool:
    """False."""
    return False


def _refuse(name: str) -> NoReturn:
    raise UnsupportedCallError(
        f"torch.onnx.{name}: no ONNX files are written here. weft.export.save(weft.export.export(module, args), path) "
        "writes a module with its tensors as StableHLO, which XLA and jax run; or give its state_dict() to PyTorch "
        "and export it there"
    )


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, lambda: globals())
