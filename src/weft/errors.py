"""Every exception of the package, in one tree.

Each class is also the builtin that PyTorch raises in that place, so `except RuntimeError` keeps working.
"""


class WeftError(Exception):
    """Root of all errors raised on purpose."""


class ShapeError(WeftError, RuntimeError):
    """Shapes do not fit the operator."""


class DTypeError(WeftError, RuntimeError):
    """Element types do not fit the operator."""


class DeviceError(WeftError, RuntimeError):
    """Operands live on different devices, or a device does not exist."""


class ArgumentError(WeftError, TypeError):
    """An argument has a type that the operator does not take."""


class ValueRangeError(WeftError, ValueError):
    """An argument has the right type and a value outside of its range."""


class DimError(WeftError, IndexError):
    """A dim number lies outside of the tensor's dims."""


class IndexRangeError(WeftError, IndexError):
    """An index lies outside of the dim that it selects from."""


class DeferredIndexError(IndexRangeError, RuntimeError):
    """An index in a tensor was out of range, found when the program that used it had run.

    PyTorch raises `IndexError` for some of these operators and `RuntimeError` for others.
    """


class DeferredValueError(WeftError, RuntimeError):
    """A value in a tensor was outside of the operator's domain, found when the program that used it had run."""


class UnsupportedDTypeError(DTypeError, NotImplementedError):
    """The operator is not defined for this element type."""


class GradientError(WeftError, RuntimeError):
    """A backward pass was asked for something that the tape cannot give."""


class InPlaceError(WeftError, RuntimeError):
    """A write that the receiver does not allow."""


class StateDictError(WeftError, RuntimeError):
    """A state dict does not fit the module or optimizer."""


class CheckpointError(WeftError, RuntimeError):
    """A file is not a checkpoint, is damaged, or asks for something unsafe."""


class CompileError(WeftError, RuntimeError):
    """A function cannot be captured."""
