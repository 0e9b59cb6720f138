"""Running the functions that peers call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft._comm.transport.pipe import Bytes
from weft.distributed.rpc._contexts import Context, use_context
from weft.distributed.rpc._errors import log_failure
from weft.distributed.rpc._message import unpack
from weft.distributed.rpc._protocol import Reply
from weft.distributed.rpc._references import GloballyUniqueId
from weft.distributed.rpc._state import current_agent
from weft.errors import RpcError
from weft.futures import Future


class Method(NamedTuple):
    """A method of a referenced value, called as a function on its owner."""

    number: GloballyUniqueId
    name: str

    def bound(self) -> Any:
        """The method itself; `AttributeError` if the value has none of this name."""
        return getattr(value_of(self.number), self.name)


def require_method(number: GloballyUniqueId, name: str) -> None:
    """Raise `AttributeError` if a value has no such method."""
    Method(number, name).bound()


def value_of(number: GloballyUniqueId) -> Any:
    """A value of this worker; waits until it is created."""
    agent = current_agent()
    return agent.expect(agent.references.owned(number)).value.wait()


def serve(reply: Reply, body: Bytes, buffers: Sequence[Any]) -> None:
    """Run the function of a call."""
    try:
        function, args, kwargs, *context = unpack(body, buffers)
    except (AttributeError, ModuleNotFoundError) as error:
        raise RpcError(
            f"{error}. Default RPC pickler does not serialize the function code. Ensure that UDFs are defined on both "
            "caller and callee modules."
        ) from error
    if context:
        reply.context = reply.agent.contexts.at(*context)
    result, later = call_function(function, args, kwargs, reply.context)
    if later:
        reply.follow(result)
    else:
        reply.send(result)


def call_function(function: Any, args: Any, kwargs: Any, context: Context | None) -> tuple[Any, bool]:
    """Call a user's function; returns its result, and whether that is a future of the actual result."""
    try:
        if type(function) is Method:
            function = function.bound()
        if context is None:
            result = function(*args, **kwargs)
        else:
            with use_context(context):
                result = function(*args, **kwargs)
        later = is_asynchronous(function)
        if later:
            _check_future(result)
        return result, later
    except Exception as error:
        log_failure(function, error)
        raise


def is_asynchronous(function: Any) -> bool:
    """Whether a function is marked by `functions.async_execution`: it returns a future of its result."""
    return getattr(function, "_wrapped_async_rpc_function", None) is not None


def _check_future(result: Any) -> None:
    if not isinstance(result, Future):
        kind = type(result)
        raise RpcError(
            "Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got "
            f"{kind.__module__}.{kind.__qualname__}"
        )
