"""Running what peers ask for."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from weft._comm.pipe import Bytes
from weft.distributed.rpc._contexts import Context, within
from weft.distributed.rpc._message import Receiver, pack, unpack
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import RpcError
from weft.futures import Future

_log = logging.getLogger(__name__)

Answer = Callable[[bool, bytes, list[memoryview]], None]
"""Gets whether all went well, and the answer or what is to be raised."""


_ANYBODY = Receiver(None, lambda device: device)  # of a message without tensors


class Later:
    """What a function of this package returns whose result is still to come."""

    __slots__ = ("future",)

    def __init__(self, future: Future[Any]) -> None:
        self.future = future


class InTurn:
    """What a control returns whose result a function is to compute, which `start` runs in its turn."""

    __slots__ = ("function", "start")

    def __init__(self, start: Callable[..., None], function: Callable[[], Any]) -> None:
        self.start, self.function = start, function


class Created:
    """A value that stays with its owner: `known` gets it when the caller was told that it is there."""

    __slots__ = ("known", "value")

    def __init__(self, known: Future[Any], value: Any) -> None:
        self.known, self.value = known, value


class Within:
    """The result of a function that has run in a context of distributed autograd."""

    __slots__ = ("context", "result")

    def __init__(self, context: Context, result: Any) -> None:
        self.context, self.result = context, result


def is_asynchronous(function: Any) -> bool:
    """Whether a function returns a future of its result, and says so by `functions.async_execution`."""
    return getattr(function, "_wrapped_async_rpc_function", None) is not None


def serve(run: Callable[[], Any], me: WorkerInfo, peer: Receiver, answer: Answer) -> None:
    """Run a function for a peer, and answer with its result, now or later, or with what it raises."""
    try:
        result = run()
        if type(result) is Within:
            peer, result = peer._replace(message=result.context.message()), result.result
        if type(result) is Later:
            result.future.add_done_callback(lambda done: serve(done.value, me, peer, answer))
        elif type(result) is InTurn:
            result.start(serve, result.function, me, peer, answer)
        elif type(result) is Created:
            answer(True, *pack(None, peer))
            result.known.set_result(result.value)
        else:
            answer(True, *pack(result, peer))
    except BaseException as error:  # also of an answer that is too long to be sent
        answer(False, *_told(error, me))


def called(body: Bytes, buffers: Sequence[Any]) -> Any:
    """Run the function of a call."""
    try:
        function, args, kwargs, *context = unpack(body, buffers)
    except (AttributeError, ModuleNotFoundError) as error:
        raise RpcError(
            f"{error}. Default RPC pickler does not serialize the function code. Ensure that UDFs are defined on both "
            "caller and callee modules."
        ) from error
    try:
        if not context:
            return applied(function, args, kwargs)
        found = current_agent().contexts.at(*context)
        with within(found):
            return Within(found, applied(function, args, kwargs))
    except Exception as error:
        log_failure(function, error)
        raise


def log_failure(function: Any, error: Exception) -> None:
    """Log what a user's function raises: its caller, who is told, may have gone or look at nothing."""
    if getattr(error, "_text_from_afar", None) is None:  # else it was logged where it was raised
        name = getattr(function, "__qualname__", repr(function))
        _log.error("%s, which was called from elsewhere, has failed: %s", name, error, exc_info=error)


def applied(function: Any, args: Any, kwargs: Any) -> Any:
    """What a function returns, `Later` where that is still to come."""
    result = function(*args, **kwargs)
    return Later(_checked_future(result)) if is_asynchronous(function) else result


def raised_there(body: Bytes, buffers: Sequence[Any]) -> BaseException:
    """The error of a function that ran elsewhere, of the same type where that takes a text."""
    kind, name, text = unpack(body, buffers)
    try:
        made = unpack(kind, ())(text)
        if isinstance(made, Exception):
            made._text_from_afar = text  # pyright: ignore[reportAttributeAccessIssue]
            return made
    except Exception:
        where, _, rest = text.partition("\n")
        why = "a type that cannot be made here from a text alone. Original exception on remote side was"
        text = f"{where} {name}, {why}\n{rest}"
    made = RpcError(text)
    made._text_from_afar = text  # pyright: ignore[reportAttributeAccessIssue]
    return made


def _told(error: BaseException, me: WorkerInfo) -> tuple[bytes, list[memoryview]]:
    text = f"On {me}:\n{_shown(error)}"
    try:
        kind = pack(type(error), _ANYBODY)[0]
    except Exception:
        kind = b""  # it cannot be sent
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return pack((kind, name, text), _ANYBODY)


def _shown(error: BaseException) -> str:
    """An error and where it was raised. One that has come from another worker says so itself, and its type."""
    told = getattr(error, "_text_from_afar", None)
    if told is None:
        return f"{_repr(error)}\n{''.join(traceback.format_exception(error))}"
    return f"{told}\nwhich was raised again here:\n{''.join(traceback.format_tb(error.__traceback__))}"


def _repr(error: BaseException) -> str:
    try:
        return repr(error).replace("\\n", "\n")
    except Exception:
        return f"<{type(error).__qualname__}, whose repr() fails>"


def _checked_future(found: Any) -> Future[Any]:
    if not isinstance(found, Future):
        kind = type(found)
        raise RpcError(
            "Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got "
            f"{kind.__module__}.{kind.__qualname__}"
        )
    return found
