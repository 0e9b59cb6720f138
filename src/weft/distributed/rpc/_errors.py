"""Remote errors: an exception of a function on one worker is raised again on its caller."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence

from weft._comm.transport.pipe import Bytes
from weft.distributed.rpc._message import Buffer, Receiver, pack, same_device, unpack
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import RpcError, RpcTimeoutError

_log = logging.getLogger(__name__)
_ANYBODY = Receiver(None, same_device)  # for messages without tensors


def log_failure(function: object, error: Exception) -> None:
    """Log the exception of a user's function, because its caller may be lost or ignore it."""
    if getattr(error, "_remote_text", None) is None:  # otherwise it was logged where it was raised
        name = getattr(function, "__qualname__", repr(function))
        _log.error("%s, which was called from elsewhere, has failed: %s", name, error, exc_info=error)


def timeout_error(seconds: float, detail: str = "") -> RpcTimeoutError:
    """The error of a call that has no answer within its timeout."""
    limit = f"{1000 * seconds:{'.0f' if seconds >= 1e-3 else '.3g'}} ms"
    text = f"RPCErr:1:RPC ran for more than set timeout ({limit}) and will now be marked with an error"
    return RpcTimeoutError(f"{text}: {detail}" if detail else text)


def remote_error(body: Bytes, buffers: Sequence[Buffer]) -> BaseException:
    """The error of a remote function: of the same type if that can be made from a text, else an `RpcError`."""
    kind, name, text = unpack(body, buffers, None)
    try:
        error = unpack(kind, (), None)(text)
        if isinstance(error, Exception):
            error._remote_text = text  # pyright: ignore[reportAttributeAccessIssue]
            return error
    except Exception:
        first_line, _, rest = text.partition("\n")
        why = "a type that cannot be made here from a text alone. Original exception on remote side was"
        text = f"{first_line} {name}, {why}\n{rest}"
    error = RpcError(text)
    error._remote_text = text  # pyright: ignore[reportAttributeAccessIssue]
    return error


def pack_error(error: BaseException, me: WorkerInfo) -> tuple[bytes, list[memoryview]]:
    """An error of this worker as a message."""
    text = f"On {me}:\n{_error_text(error)}"
    try:
        kind = pack(type(error), _ANYBODY)[0]
    except Exception:
        kind = b""  # the type cannot be sent
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    with_events = getattr(error, "_with_events", None)  # of a function that is profiled
    return pack((kind, name, text if with_events is None else with_events(text)), _ANYBODY)


def _error_text(error: BaseException) -> str:
    """An error's text and traceback. The text of a remote error already has its type and worker."""
    text = getattr(error, "_remote_text", None)
    if text is None:
        return f"{_repr(error)}\n{''.join(traceback.format_exception(error))}"
    return f"{text}\nwhich was raised again here:\n{''.join(traceback.format_tb(error.__traceback__))}"


def _repr(error: BaseException) -> str:
    try:
        return repr(error).replace("\\n", "\n")
    except Exception:
        return f"<{type(error).__qualname__}, whose repr() fails>"
