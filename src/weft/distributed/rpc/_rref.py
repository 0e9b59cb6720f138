"""References to values on other workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Generic, NoReturn, TypeVar

from weft._base.types import AnyCallable, Arg, Args, Result
from weft._base.usage import log_api_usage_once
from weft._tensor.tensor import Tensor
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._arguments import checked, seconds, start, worker
from weft.distributed.rpc._backward import run
from weft.distributed.rpc._call import PendingCall
from weft.distributed.rpc._contexts import PassContext, current_context
from weft.distributed.rpc._message import current_reader
from weft.distributed.rpc._profiled_call import ProfiledResult, profiled
from weft.distributed.rpc._protocol import Note, Reply, request
from weft.distributed.rpc._references import GloballyUniqueId, Holder, Number, OwnedValue
from weft.distributed.rpc._service import Method, call_function, value_of
from weft.distributed.rpc._state import NO_AGENT, current_agent, here
from weft.distributed.rpc._trace.recording import title_of
from weft.distributed.rpc._workers import AnyWorker, WorkerInfo
from weft.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from weft.distributed.rpc.internal import RPCExecMode
from weft.errors import FutureError, RpcError, RpcTimeoutError
from weft.futures import Future

T = TypeVar("T")


def _type_of(number: GloballyUniqueId) -> type[object]:
    """The type of a value of this worker."""
    value: object = value_of(current_agent(), number)
    return type(value)


class RRef(Generic[T]):
    """A reference to a value, which its owner keeps while any worker has a reference to it.

    `RRef(value)` refers to a value of this worker. Others are made by `remote`, or received in calls and answers, which
    are the only way to send them. References are equal if they refer to the same value.
    """

    _agent: Agent
    _owner: WorkerInfo
    _id: GloballyUniqueId
    _owned: OwnedValue | None  # the value, if this worker is the owner; None in a fork
    _fork: GloballyUniqueId | None
    _acknowledgement: Future[Result]  # done once the owner knows of the fork, or has failed to create the value

    def __init__(self, value: T, type_hint: object = None) -> None:
        del type_hint
        agent = here().agent
        if agent is None:
            raise RpcError(NO_AGENT)
        owned = agent.references.create(agent.references.number())
        owned.value.set_result(value)
        self.init_as_owner(agent, owned)

    def init_as_owner(self, agent: Agent, owned: OwnedValue) -> None:
        self._agent, self._owner, self._id = agent, agent.me, owned.id
        self._owned, self._fork, self._acknowledgement = owned, None, owned.value

    def init_as_user(
        self,
        agent: Agent,
        owner: WorkerInfo,
        number: GloballyUniqueId,
        fork: GloballyUniqueId,
        acknowledgement: Future[Result],
    ) -> None:
        self._agent, self._owner, self._id = agent, owner, number
        self._owned, self._fork, self._acknowledgement = None, fork, acknowledgement

    # --- the owner ---

    def owner(self) -> WorkerInfo:
        """The worker that has the value."""
        return self._owner

    def owner_name(self) -> str:
        """The name of that worker."""
        return self._owner.name

    def is_owner(self) -> bool:
        """Whether this worker has the value."""
        return self._owned is not None

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of this reference, and the value is created."""
        return self._owned is not None or (self._acknowledgement.done() and not self._acknowledgement.failed)

    # --- the value ---

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> T:
        """A copy of the value or, on its owner, the value itself; waits for it.

        Raises the exception of the function that was to create it, and `RuntimeError` after `timeout` seconds (-1: the
        default, 0: no limit).
        """
        limit = seconds(timeout)
        if self._owned is not None:
            return self._agent.wait(self._owned.value, limit)
        self._require_agent("to_here()")
        self._require_created()
        try:
            return self._agent.ask(self._owner, fetch, self._id.pair, _context_id(), limit=limit).wait()
        except RpcError:
            if not self._acknowledgement.failed:
                raise
        return self._acknowledgement.value()  # raises: this worker knows more about the failure

    def local_value(self) -> T:
        """The value, on its owner; `RuntimeError` on other workers."""
        if self._owned is None:
            raise RpcError(
                f"For UserRRef(rref_id={self._id}, fork_id={self._fork}), can't call localValue() on user "
                f"{self._agent.me}. Call it on owner {self._owner}"
            )
        return self._owned.value.wait()

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> Result:
        """Methods of the value, run on its owner: `rref.rpc_sync().size()` waits for the result."""
        return _Methods(self._id, lambda *call: self._begin(timeout, *call, mode=RPCExecMode.SYNC).wait())

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> Result:
        """Methods of the value, run on its owner: `rref.rpc_async().size()` returns a future of the result."""
        return _Methods(self._id, lambda *call: self._begin(timeout, *call).push())

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> Result:
        """Methods of the value, run on its owner: `rref.remote().size()` returns a reference to the result.

        Waits until the value exists and has the method.
        """
        return _Methods(self._id, lambda *call: self._create(timeout, *call))

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Differentiate the value, a scalar tensor, on its owner.

        With a context of distributed autograd this is a pass over all workers. Without one, it is an ordinary
        `backward()`, which only the owner may call; `RuntimeError` on other workers.
        """
        local = dist_autograd_ctx_id == -1
        if self._owned is None:
            if local:
                raise RpcError("User RRefs require 'dist_autograd_ctx_id' to be specified")
            call = self._id, dist_autograd_ctx_id, retain_graph
            current_agent().call(self._owner, _differentiate, call, {}, 0).wait()
        elif local:
            _as_root(self.local_value()).backward(retain_graph=retain_graph)
        else:
            _differentiate(self._id, dist_autograd_ctx_id, retain_graph)

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Result:
        """The type of the value; without `blocking`, a future of it."""
        type_call = self._begin(timeout, _type_of, (self._id,), {}).push()
        return type_call.wait() if blocking else type_call

    def _begin(
        self,
        timeout: float,
        function: Arg,
        args: Args,
        kwargs: Mapping[str, Arg],
        mode: RPCExecMode = RPCExecMode.ASYNC,
    ) -> PendingCall:
        """Call a function on the owner; this reference is kept during the call."""
        self._require_created()
        call = start(current_agent(), self._owner, function, args, kwargs, timeout, mode)
        # The owner may otherwise hear that the last reference is gone before the call arrives, and free the value.
        call.add_done_callback(lambda _, kept=self: None)
        return call

    def _create(self, timeout: float, method: Method, args: Args, kwargs: Mapping[str, Arg]) -> RRef[Result]:
        # `remote` answers at once, so a method that does not exist would only show when the result is used.
        self._begin(timeout, method._replace(test_only=True), (), {}).wait()
        reference = _create_remotely(self._owner, method, args, kwargs, timeout)
        reference._acknowledgement.add_done_callback(lambda _, kept=self: None)
        return reference

    def _require_agent(self, call: str) -> None:
        if self._agent.closing:
            raise RpcError(
                f"{self!r} has been deleted. Cannot call {call} on it after deletion. {self._agent.me} has left the job"
            )

    def _require_created(self) -> None:
        """Raise the error of the value's creation, as far as this worker knows."""
        if self._acknowledgement.failed:
            self._acknowledgement.value()

    def created(self) -> Future[Result]:
        """A future that is done when the value is created, or its creation has failed."""
        return self._acknowledgement

    _get_future = _get_profiling_future = created

    # --- sending it ---

    def _reduce_for(self, to: WorkerInfo, undo: list[Callable[[], object]]) -> tuple[object, ...]:
        """How it is pickled for a worker: as a new fork, which `undo` deletes if packing fails."""
        self._require_created()
        references = self._agent.references
        fork = references.number()
        if self._owned is not None:
            references.add_fork(self._id, fork, to[1:])
            undo.append(partial(references.delete_fork, self._id, fork))
        else:
            references.keep_parent(fork, self, to[1:])
            undo.append(partial(references.child_known, fork))
        return _received_reference, (self._owner, self._id, fork, self._agent.me)

    def __reduce__(self) -> NoReturn:
        raise RpcError("Can not pickle rref in python pickler, rref can only be pickled when using RPC")

    def __del__(self) -> None:
        with suppress(AttributeError):  # if its construction has failed
            self._delete_fork()

    def _delete_fork(self) -> None:
        """Report to the owner, once, that this fork is deleted."""
        fork, self._fork = self._fork, None
        if fork is not None and not self._agent.closing:
            self._agent.deletes.add(self._owner, self._id, fork, self._acknowledgement)

    def __eq__(self, other: object) -> bool:
        return self._id == other._id if isinstance(other, RRef) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        if self._owned is not None:
            return f"OwnerRRef({self._id})"
        return f"UserRRef(RRefId = {self._id}, ForkId = {self._fork})"


PyRRef = RRef


class _Methods:
    """An object whose attributes are functions that pass on a method of a value, with arguments and keywords."""

    def __init__(self, number: GloballyUniqueId, call: AnyCallable) -> None:
        self._number, self._call = number, call

    def __getattr__(self, name: str) -> AnyCallable:
        method = Method(self._number, name)
        return lambda *args, **kwargs: self._call(method, args, kwargs)


def remote(
    to: AnyWorker, func: AnyCallable, args: Arg = None, kwargs: Arg = None, timeout: float = UNSET_RPC_TIMEOUT
) -> RRef[Result]:
    """Call a function on another worker and keep the result there; returns a reference to it at once.

    Errors are raised when the reference is used, including a timeout if the value is not created within `timeout`
    seconds.
    """
    log_api_usage_once("torch.distributed.rpc_remote")
    agent = current_agent()
    args, kwargs = checked(func, args, kwargs)
    return _create_remotely(worker(agent, to), func, args, kwargs, timeout)


_ANY_REFERENCE: type[RRef[Result]] = RRef


def _new_reference() -> RRef[Result]:
    return object.__new__(_ANY_REFERENCE)


def _create_remotely(owner: WorkerInfo, func: Arg, args: Arg, kwargs: Arg, timeout: float) -> RRef[Result]:
    agent = current_agent()
    limit, references = seconds(timeout), agent.references
    number, reference = references.number(), _new_reference()
    fork = None if owner == agent.me else references.number()
    func = profiled(agent.me, owner, func, RPCExecMode.REMOTE)
    # Before the request is sent, as the value may be created, and read, before this returns.
    if fork is None:
        reference.init_as_owner(agent, references.create(number))
    acknowledgement = agent.ask(
        owner, create, number.pair, fork and fork.pair, agent.me[1:], func, args, kwargs, _context_id(), limit=limit
    )
    if fork is not None:
        reference.init_as_user(agent, owner, number, fork, acknowledgement)
        acknowledgement.push()
    acknowledgement.add_done_callback(partial(_report_failure, agent, owner, number, fork))
    return reference


def _report_failure(
    agent: Agent,
    owner: WorkerInfo,
    number: GloballyUniqueId,
    fork: GloballyUniqueId | None,
    acknowledgement: Future[Result],
) -> None:
    """Tell the owner that the value will not be created. It does not know this if it could not read the request."""
    if acknowledgement.failed and not agent.closing:
        try:
            acknowledgement.value()
        except RpcTimeoutError:
            return  # the value may still be created
        except BaseException as error:
            agent.tell(owner, creation_failed, number, fork, agent.me[1:], str(error))


def _context_id() -> int | None:
    context = current_context()
    return None if context is None else context.id


# --- controls -----------------------------------------------------------------------------


def _differentiate(number: GloballyUniqueId, context_id: int, retain_graph: bool) -> None:
    agent = current_agent()
    run(agent, context_id, [_as_root(value_of(agent, number))], retain_graph, smart=True)


def _as_root(value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise RpcError(f"RRef should contain a tensor for .backward(), but contains a {type(value).__name__}")
    return value


def _received_reference(
    owner: WorkerInfo, number: GloballyUniqueId, fork: GloballyUniqueId, parent: WorkerInfo
) -> RRef[Result]:
    """The reference received from another worker, in a call or an answer."""
    agent: Agent = current_reader()
    reference = _new_reference()
    references = agent.references
    # The owner itself keeps its value by the reference; the fork that was counted for the way here can go.
    if owner == agent.me:
        reference.init_as_owner(agent, references.owned(number))
        if parent == owner:
            references.delete_fork(number, fork)
        else:
            agent.tell(parent, child_known, fork)
        return reference
    acknowledgement: Future[Result] = Future()
    reference.init_as_user(agent, owner, number, fork, acknowledgement)
    if parent == owner:
        # The owner has counted this fork when it sent it.
        acknowledgement.set_result(None)
        return reference
    added = agent.ask(owner, add_fork, number, fork, agent.me[1:], limit=0).push()
    added.add_done_callback(partial(_fork_known, agent, parent, fork, acknowledgement))
    return reference


def _fork_known(
    agent: Agent, parent: WorkerInfo, fork: GloballyUniqueId, acknowledgement: Future[Result], added: Future[Result]
) -> None:
    acknowledgement.settle(added.value)
    agent.tell(parent, child_known, fork)


@request(title=lambda args: title_of(args[3]))
def create(
    reply: Reply[Agent],
    number: Number,
    fork: Number | None,
    holder: Holder,
    func: AnyCallable,
    args: Arg,
    kwargs: Arg,
    context_id: int | None,
) -> None:
    """Compute a value that stays here; answered when it is created."""
    agent = reply.agent
    if fork is not None:
        agent.references.add_fork(number, fork, holder)
    context = None if context_id is None else agent.contexts.at(context_id)
    reply.run_in_turn(_create, agent.references.create(number).value, func, args, kwargs, context)


def _create(
    reply: Reply[Agent], value: Future[Result], func: AnyCallable, args: Arg, kwargs: Arg, context: PassContext | None
) -> None:
    try:
        result, later = call_function(reply.agent, func, args, kwargs, context)
    except BaseException as error:
        value.set_exception(error)
        raise
    if later:
        result.add_done_callback(partial(_finish_later, reply, value))
    else:
        _finish(reply, value, result)


def _finish_later(reply: Reply[Agent], value: Future[Result], done: Future[Result]) -> None:
    try:
        result = done.value()
    except BaseException as error:
        value.set_exception(error)
        reply.fail(error)
    else:
        _finish(reply, value, result)


def _finish(reply: Reply[Agent], value: Future[Result], result: object) -> None:
    """Set a created value: its creator is answered before the callers that wait for it."""
    is_profiled = isinstance(result, ProfiledResult)
    # In this order, the creator knows that its value exists before any result that others compute from it arrives.
    reply.send(result.without_value() if is_profiled else None)
    value.set_result(result.value if is_profiled else result)


@Note
def creation_failed(agent: Agent, number: Number, fork: Number | None, holder: Holder, why: str) -> None:
    """Fail a value whose request could not be read here."""
    # As `create` would have done: the creator deletes its fork later, and the value, which now is an error, lasts until
    # then.
    if fork is not None:
        agent.references.add_fork(number, fork, holder)
    with suppress(FutureError):  # the function itself has failed already
        agent.references.create(number).value.set_exception(RpcError(why))


@request(title=lambda _: "RRef.to_here")
def fetch(reply: Reply[Agent], number: Number, context_id: int | None) -> None:
    """Answered with a value, once it is created."""
    agent = reply.agent
    if context_id is not None:
        reply.context = agent.contexts.at(context_id)
    reply.follow(agent.expect(agent.references.owned(number)).value)


@request()
def add_fork(reply: Reply[Agent], number: Number, fork: Number, holder: Holder) -> None:
    """Record a fork on a worker, to which another user has sent it."""
    # The creator's request comes by another connection; if the creator dies before, this value would be waited for
    # without end.
    reply.agent.expect(reply.agent.references.add_fork(number, fork, holder))
    reply.send(None)


@Note
def child_known(agent: Agent, fork: Number) -> None:
    """Note that the owner knows of a fork that this worker has sent."""
    agent.references.child_known(fork)
