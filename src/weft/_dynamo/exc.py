"""The errors of functions that are compiled by a backend, under PyTorch's names."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from weft.errors import CompileError, WeftError


class TorchDynamoException(WeftError, RuntimeError):
    """A function cannot be compiled by the backend of the user's choice."""


class InvalidBackend(TorchDynamoException):
    """There is no backend of this name."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend has raised an error, or returned nothing that can be called."""

    def __init__(self, backend_fn: Any, inner_exception: Exception, *_: object) -> None:
        self.backend_name = getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        kind = next(base for base in type(inner_exception).__mro__ if not issubclass(base, WeftError))
        super().__init__(f"backend={self.backend_name!r} raised:\n{kind.__name__}: {inner_exception}")


class Unsupported(TorchDynamoException, CompileError):
    """A function with `fullgraph=True` does what no graph can hold."""

    def __init__(self, msg: str, gb_type: str = "", *, case_name: str | None = None, real_stack: object = None) -> None:
        super().__init__(msg)
        self.msg, self.gb_type, self.case_name, self.real_stack = msg, gb_type, case_name, real_stack


class UserErrorType(Enum):
    """What a user's mistake is about."""

    DYNAMIC_CONTROL_FLOW = auto()
    ANTI_PATTERN = auto()
    STANDARD_LIBRARY = auto()
    CONSTRAINT_VIOLATION = auto()
    DYNAMIC_DIM = auto()
    INVALID_INPUT = auto()
    INVALID_OUTPUT = auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = auto()


class UserError(Unsupported):
    """A program does what no compiled function may do."""

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None) -> None:
        super().__init__(msg, case_name=case_name)
        self.error_type = error_type


class FailOnRecompileLimitHit(WeftError):
    """A function with `config.fail_on_recompile_limit_hit` has needed too many graphs."""


class RecompileError(TorchDynamoException):
    """A function with `config.error_on_recompile` needs another graph."""


# --- names by which programs may catch or compare; nothing here raises them --------------------------------------


def _kind(name: str, base: type[TorchDynamoException] = TorchDynamoException) -> type[TorchDynamoException]:
    text = "PyTorch's compiler raises it at a stage that there is not here."
    return type(name, (base,), {"__doc__": text, "__module__": __name__})


InternalTorchDynamoError = _kind("InternalTorchDynamoError")
ResetRequired = _kind("ResetRequired")
RestartAnalysis = _kind("RestartAnalysis")
SkipFrame = _kind("SkipFrame")
SpeculationRestartAnalysis = _kind("SpeculationRestartAnalysis", RestartAnalysis)
TensorifyScalarRestartAnalysis = _kind("TensorifyScalarRestartAnalysis", RestartAnalysis)
TorchRuntimeError = _kind("TorchRuntimeError")
UncapturedHigherOrderOpError = _kind("UncapturedHigherOrderOpError")
UnspecializeRestartAnalysis = _kind("UnspecializeRestartAnalysis", RestartAnalysis)
CondOpArgsMismatchError = _kind("CondOpArgsMismatchError")
