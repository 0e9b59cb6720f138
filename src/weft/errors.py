"""Every exception of the package, in one tree.

Each class also derives from the builtin that PyTorch raises in its place, so `except RuntimeError` keeps working.
"""

import io
import pickle
import sys
from collections.abc import Callable
from traceback import StackSummary, format_exception_only
from urllib.error import URLError


class WeftError(Exception):
    """Root of all errors raised on purpose."""


class ShapeError(WeftError, RuntimeError):
    """Shapes do not fit the operator."""


class UnsupportedShapeError(ShapeError, NotImplementedError):
    """The operator is not defined for this number of dims."""


class DTypeError(WeftError, RuntimeError):
    """Element types do not fit the operator."""


class DeviceError(WeftError, RuntimeError):
    """Operands live on different devices, or a device does not exist."""


class OutOfMemoryError(WeftError, RuntimeError, MemoryError):
    """A device or the host has no memory left for the result."""


class LostError(WeftError, RuntimeError):
    """The elements of a tensor are gone, since a program that was to overwrite them has failed."""


class NoDeviceError(DeviceError, AssertionError):
    """There is no device of this kind, where PyTorch asserts that there is one."""


class ArgumentError(WeftError, TypeError):
    """An argument has a type that the operator does not take."""


class ValueRangeError(WeftError, ValueError):
    """An argument has the right type and a value outside of its range."""


class OutOfRangeError(WeftError, RuntimeError):
    """An argument has the right type and a value outside of its range, where PyTorch raises `RuntimeError`."""


class SchemaError(WeftError, ValueError, RuntimeError):
    """A text is no operator's schema, or annotations cannot be written as one."""


class RegistrationError(WeftError, RuntimeError):
    """An operator, or a part of it, cannot be registered."""


class UnsupportedError(WeftError, NotImplementedError):
    """What an argument asks for is not there yet."""


class IntegerRangeError(ValueRangeError, OverflowError):
    """An integer is outside of the range of every suitable element type."""


class UnsupportedCallError(WeftError, NotImplementedError):
    """A call is not defined in this situation, or for these options."""


class PreconditionError(WeftError, AssertionError):
    """A precondition of a call does not hold, where PyTorch raises `AssertionError`."""


class NoDataError(WeftError, NotImplementedError):
    """The elements of a tensor on the meta device are needed, which has none."""


class NotDefinedError(WeftError, NotImplementedError):
    """An object does not define this operation, or not for these arguments."""


class MismatchError(WeftError, AssertionError):
    """Two results that a test expects to be close are not."""


class NameKeyError(WeftError, KeyError):
    """There is nothing with this name."""

    __str__ = Exception.__str__  # a KeyError shows its text as Python would write it


class LacksAttributeError(WeftError, AttributeError):
    """An object does not have a requested attribute."""


class MissingNameError(LacksAttributeError):
    """A module does not have a name. The text names the nearest one that it has."""

    def __init__(self, module: str, name: str, nearest: Callable[[], str | None] = lambda: None) -> None:
        super().__init__(module, name)
        self.name, self.obj = name, None  # so that tracebacks, which know fewer names, add no other one
        self._nearest = nearest

    def __str__(self) -> str:
        module, name = self.args
        torch = sys.modules.get("torch")
        lacks = ""
        if torch is not None and torch is sys.modules["weft"]:
            module, lacks = ".".join(["torch", *module.split(".")[1:]]), ": Weft does not have it"
        near = self._nearest()
        return f"module {module!r} has no attribute {name!r}{lacks}" + (f"; the nearest is {near!r}" if near else "")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args


class MemberError(LacksAttributeError, NameKeyError):
    """There is nothing with this name, such as a parameter in a container, where PyTorch raises `AttributeError`."""


class NoFileError(LacksAttributeError, ArgumentError):
    """An object is neither a path nor a file."""


class DimError(WeftError, IndexError):
    """A dim number lies outside of the tensor's dims."""


class DimNameError(WeftError, RuntimeError):
    """Names of dims do not fit together, or are no names, or no dim has this name."""


class IndexRangeError(WeftError, IndexError):
    """An index lies outside of the dim that it selects from."""


class ElementError(WeftError):
    """An element of a tensor is not valid for the operator.

    It is raised by the call if the element is in memory, otherwise when a result is read. The classes below derive from
    two builtins, PyTorch's first.
    """


class IndexValueError(ElementError, IndexRangeError, RuntimeError):
    """An element of an index tensor was out of range."""


class IndexDomainError(ElementError, OutOfRangeError, IndexRangeError):
    """An element of an index tensor was out of range, where PyTorch raises `RuntimeError`."""


class DomainError(ElementError, OutOfRangeError, ValueRangeError):
    """An element of a tensor was outside of the operator's domain."""


class ValueDomainError(ElementError, ValueRangeError, RuntimeError):
    """An element of a tensor was outside of the operator's domain, where PyTorch raises `ValueError`."""


class LayoutError(WeftError, RuntimeError):
    """A tensor has another layout than the call takes, or its indices do not fit the layout."""


class UnsupportedDTypeError(DTypeError, NotImplementedError):
    """The operator is not defined for this element type."""


class ConversionError(WeftError, RuntimeError, ValueError):
    """A tensor cannot be converted to the requested Python object."""


class GradientError(WeftError, RuntimeError):
    """A backward pass needs something that the tape does not have."""


class GradcheckError(GradientError):
    """A derivative differs from finite differences, or a backward pass does not behave as it must."""


class LinAlgError(WeftError, RuntimeError):
    """A matrix is singular, not positive definite, or similar, and the caller asked for a check."""


class ExportError(WeftError, BufferError):
    """A tensor cannot be exported to another library by DLPack."""


class InPlaceError(WeftError, RuntimeError):
    """A write that its target does not allow."""


class OptionError(WeftError, RuntimeError):
    """Options of an optimizer exclude each other or do not suit its parameters, or a switch has no such value."""


class SettingError(WeftError, RuntimeError):
    """A setting cannot have the given value."""


class AmpError(WeftError, RuntimeError):
    """Mixed precision is asked for where it is unsafe, or its steps are taken in another order than they allow."""


class ModuleError(WeftError, RuntimeError):
    """A module, a hook of it or a parametrization is used in a way that it does not allow."""


class StateDictError(WeftError, RuntimeError):
    """A state dict does not fit the module or optimizer."""


class UnsupportedStateError(StateDictError, NotImplementedError):
    """A state dict holds what cannot be in one of this form."""


class OptimizerStateError(ValueRangeError, StateDictError):
    """A state dict has other groups, options or shapes than the optimizer, where PyTorch raises `ValueError`."""


class DistError(WeftError, RuntimeError):
    """An operation between processes has failed."""


class DistBackendError(DistError):
    """A collective has failed: peers are missing, have ended, or have called something else.

    missing  the ranks of the job that have not come, or have failed first, if known
    """

    missing: tuple[int, ...] = ()


class UnsupportedBackendError(DistError):
    """A group's backend does not have this operation."""


class CollectiveArgumentsError(DistBackendError):
    """Ranks have called a collective with arguments that do not fit together. All of them raise this.

    Nothing has been exchanged, so the group can be used further.
    """


class DistNetworkError(DistError):
    """A connection could not be made, was refused, or was lost."""


class PeerGoneError(DistNetworkError):
    """Nobody listens at the address any more: the process there has ended."""


class JobKeyError(DistNetworkError):
    """A peer has another job key, or is not a process of Weft; trying again does not help."""


class DistStoreError(DistError):
    """A store did not answer, or a key did not come in time."""


class QueueEmptyError(DistStoreError):
    """A queue of a store is empty, and the call should not wait."""


class UnsupportedStoreError(DistStoreError, NotImplementedError):
    """This kind of store cannot do that."""


class RpcError(DistError):
    """A remote call failed."""


class LostWorkerError(RpcError):
    """The other worker has ended or left the job."""


class RpcTimeoutError(RpcError):
    """A remote call was not answered in time."""


class RendezvousError(DistError):
    """The nodes of a job could not find each other."""


class RendezvousClosedError(RendezvousError):
    """The job has ended; nobody may join any more."""


class RendezvousTimeoutError(RendezvousError):
    """Too few nodes came in time."""


class RendezvousConnectionError(RendezvousError):
    """The rendezvous backend cannot be reached."""


class RendezvousStateError(RendezvousError):
    """The shared state of a rendezvous is corrupt, or nodes disagree about the job."""


class RendezvousGracefulExitError(RendezvousError):
    """A node is not part of the job and ends without an error."""


class FutureError(WeftError, RuntimeError):
    """A future was set twice, or read before it was done."""


class CheckpointError(WeftError, RuntimeError):
    """A file is not a checkpoint, is damaged, or asks for something unsafe."""


class RecomputationError(WeftError, RuntimeError):
    """A checkpointed function has done something else when it was called again."""


class CheckpointException(CheckpointError):
    """A distributed checkpoint could not be saved or loaded: some ranks have failed, and all ranks raise this.

    failures  by rank, the exception and its traceback
    """

    def __init__(self, msg: str, failures: dict[int, tuple[BaseException, StackSummary]]) -> None:
        super().__init__(msg, failures)
        self._failures = failures
        # Made here: an error of these that is raised again has this one as its context, which formatting it would show.
        self._text = _text_of_failures(msg, failures)

    @property
    def failures(self) -> dict[int, tuple[BaseException, StackSummary]]:
        """By rank, the exception and its traceback."""
        return self._failures

    def __str__(self) -> str:
        return self._text


def _text_of_failures(msg: str, failures: dict[int, tuple[BaseException, StackSummary]]) -> str:
    ranks_of: dict[str, list[int]] = {}  # of equal errors, which are shown once
    for rank, (error, trace) in failures.items():
        ranks_of.setdefault("".join([*trace.format(), *format_exception_only(error)]), []).append(rank)
    texts = [
        f"Traceback (most recent call last): (RANK {', '.join(map(str, ranks))})\n{text}"
        for text, ranks in ranks_of.items()
    ]
    ranks = ", ".join(map(str, failures))
    first = "".join(format_exception_only(next(iter(failures.values()))[0])).partition("\n")[0]
    return "\n".join([f"{msg}, by an error on rank {ranks}: {first}", *texts]).rstrip()


class ExtensionError(WeftError, OSError):
    """A library is compiled for PyTorch and cannot be loaded."""


class EndOfFileError(WeftError, EOFError):
    """A file has ended where something is to be read."""


class NoCheckpointError(CheckpointError, FileNotFoundError):
    """There is no checkpoint where one is to be read, or a file of it is missing."""


class EmptyFileError(EndOfFileError, CheckpointError):
    """There is nothing to load where a file is read."""


class UnreadableError(CheckpointError, io.UnsupportedOperation):
    """An open file cannot be read, or not at any place."""


class PickleError(CheckpointError, pickle.UnpicklingError):
    """A checkpoint holds something else than tensors and plain objects, or a damaged pickle."""


class PicklingError(CheckpointError, pickle.PicklingError):
    """An object cannot be saved, since a part of it cannot be pickled."""


class DownloadError(WeftError, URLError):
    """A file could not be downloaded. `code` is the HTTP status of a refusal, None without a response."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return str(self.reason)


class HubError(WeftError, RuntimeError):
    """A published repository cannot be downloaded, is not trusted, or lacks something that was requested."""


class CompileError(WeftError, RuntimeError):
    """A function cannot be captured."""


class NeedsValueError(CompileError):
    """A traced function reads the value of a tensor, which has none under a jax transformation."""


class TransformError(WeftError, RuntimeError):
    """A function cannot be transformed, or a transform is called with arguments that it does not take."""


class UnsupportedTransformError(TransformError, NotImplementedError):
    """Options of a transform that do not go together."""


class XlaError(WeftError, RuntimeError):
    """What `weft.xla` is asked for cannot be done with these devices, tensors or closures."""


class ProgramError(WeftError, RuntimeError):
    """A function cannot be exported as asked, or an exported program does not take these inputs."""


class DatasetError(WeftError, AssertionError):
    """Datasets or indices do not fit together; PyTorch asserts that they do."""


class WorkerError(WeftError, RuntimeError):
    """A worker process of a loader died, did not start, or did not answer in time."""


class ProcessException(WeftError):
    """A process that runs a function has failed: the one of this index, with this number."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The function has raised; the message holds the process's own traceback."""


class ProcessExitedException(ProcessException):
    """The process was ended by a signal, or with an exit code of its own."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)
