"""Running the functions that peers call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft._base.types import AnyCallable, Arg, Result
from weft._comm.transport.pipe import Bytes
from weft._tensor.assemble import PUBLIC
from weft.distributed.rpc._contexts import Contexts, PassContext, use_context
from weft.distributed.rpc._errors import log_failure
from weft.distributed.rpc._message import Buffer
from weft.distributed.rpc._protocol import Answering, Reply
from weft.distributed.rpc._references import GloballyUniqueId, OwnedValue, References
from weft.errors import RpcError
from weft.futures import is_future


class ValueOwner(Protocol):
    """An agent, as far as its values are concerned."""

    references: References

    def expect(self, owned: OwnedValue) -> OwnedValue:
        """A requested value of this worker."""
        ...


class ServingAgent(ValueOwner, Answering, Protocol):
    """An agent, as far as it is needed to serve calls."""

    contexts: Contexts

    def read(self, body: Bytes, buffers: Sequence[Buffer]) -> Result:
        """The contents of a message to this worker."""
        ...


class Method(NamedTuple):
    """A method of a referenced value, called as a function on its owner."""

    number: GloballyUniqueId
    name: str
    test_only: bool = False

    def bound(self, agent: ValueOwner) -> AnyCallable:
        """The method itself; `AttributeError` if the value has none of this name."""
        method = getattr(value_of(agent, self.number), self.name)
        return _do_nothing if self.test_only else method


def _do_nothing() -> None: ...


def value_of(agent: ValueOwner, number: GloballyUniqueId) -> Result:
    """A value of this worker; waits until it is created."""
    return agent.expect(agent.references.owned(number)).value.wait()


def serve(reply: Reply[ServingAgent], body: Bytes, buffers: Sequence[Buffer]) -> None:
    """Run the function of a call."""
    try:
        function, args, kwargs, *context = reply.agent.read(body, buffers)
    # PyTorch's sentence, which programs look for.
    except (AttributeError, ModuleNotFoundError) as error:
        raise RpcError(
            f"{error}. Default RPC pickler does not serialize the function code. Ensure that UDFs are defined on both "
            "caller and callee modules."
        ) from error
    if context:
        reply.context = reply.agent.contexts.at(*context)
    result, later = call_function(reply.agent, function, args, kwargs, reply.context)
    if later:
        reply.follow(result)
    else:
        reply.send(result)


def call_function(
    agent: ValueOwner, function: Arg, args: Arg, kwargs: Arg, context: PassContext | None
) -> tuple[Result, bool]:
    """Call a user's function; returns its result, and whether that is a future of the actual result."""
    try:
        if type(function) is Method:
            function = function.bound(agent)
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
        # Logged where it has happened: the caller may have gone, or ignore the error.
        log_failure(function, error)
        # PyTorch calls its operators by their schemas, and says so if none matches.
        if isinstance(error, TypeError) and _is_operator(function):
            raise RpcError(
                f"Overloaded torch operator invoked from Python failed to match any schema: {error}"
            ) from error
        raise


def _is_operator(function: object) -> bool:
    """Whether it is a public function of the operator table."""
    name = getattr(function, "__name__", "")
    return any(functions.get(name) is function for functions in PUBLIC.values())


def is_asynchronous(function: object) -> bool:
    """Whether a function is marked by `functions.async_execution`: it returns a future of its result."""
    return getattr(function, "_wrapped_async_rpc_function", None) is not None


def _check_future(result: object) -> None:
    if not is_future(result):
        kind = type(result)
        raise RpcError(
            "Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got "
            f"{kind.__module__}.{kind.__qualname__}"
        )
