"""Contexts of distributed autograd: the tensors that a worker has sent and received, through which gradients flow.

A tensor on the tape that is sent in a context gets a number from its sender, which keeps its value. The receiver's copy
is on a tape that ends there, and knows the worker to which its gradient is sent. A worker has a context from the first
message in it until the context's creator releases it or is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import NamedTuple, NoReturn

import jax

from weft._autograd.graph import Vertex
from weft._base.types import Arg, Result
from weft._lazy.aval import Aval
from weft._lazy.role import Interior, Leaf, custom_of
from weft._lazy.signature import Output, Signature
from weft._lazy.value import Value, tick
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import GradientError

_CREATOR_BITS, _INCARNATION_BITS = 48, 36  # lowest bits of the creator's number and of its incarnation in an id
_INCARNATIONS = 1 << (_CREATOR_BITS - _INCARNATION_BITS)
_MOST_RELEASED = 1 << 12


class SentTensor(NamedTuple):
    """A tensor that was sent, and its receiver."""

    value: Value
    to: WorkerInfo


class ReceivedTensor(NamedTuple):
    """The sender and message of a received tensor. It stands for a derivative that only distributed passes can take."""

    context_id: int
    sender: WorkerInfo
    message: int
    number: int

    def __call__(self, *_: Arg) -> NoReturn:
        raise GradientError(
            f"a tensor on the way to the roots came from {self.sender} in a context of distributed autograd; call "
            "weft.distributed.autograd.backward(context_id, roots) in it, not backward()"
        )


class PassContext:
    """One worker's part of a context.

    sends      tensors that this worker has sent, by number
    receipts   numbers of the tensors that have arrived in one message, by its sender and number
    peers      workers with which this one has exchanged tensors or calls in the context
    gradients  gradients of this worker's leaves, by their role
    passes     the local passes of backward passes
    over       whether it was released
    """

    def __init__(self, number: int, me: WorkerInfo) -> None:
        self.id = number
        self.me = me
        self.lock = threading.RLock()
        self.sends: dict[int, SentTensor] = {}
        self.receipts: dict[tuple[WorkerInfo, int], list[int]] = {}
        self.peers: set[WorkerInfo] = set()
        self.gradients: dict[Leaf, Value] = {}
        self.passes: dict[Hashable, Result] = {}  # the class of passes is defined above this module
        self.over = False
        self._numbers = count()

    def message(self) -> ContextMessage:
        """A new message, which is about to be packed."""
        return ContextMessage(self, next(self._numbers))

    def send(self, value: Value, to: WorkerInfo) -> int:
        """Record that a tensor is sent to a worker; returns its number."""
        with self.lock:
            number = next(self._numbers)
            self.sends[number] = SentTensor(value, to)
            self.peers.add(to)
        return number

    def receive(self, value: Value, origin: ReceivedTensor) -> Value:
        """A tensor received from a worker, on the tape."""
        with self.lock:
            self.peers.add(origin.sender)
            self.receipts.setdefault((origin.sender, origin.message), []).append(origin.number)
        # The copy is a result and no leaf: a pass adds gradients of leaves to the context, and must hand this one back
        # to the sender.
        source = Value(value.aval, value.content)
        source.role = Leaf()
        copy = Value(value.aval, value.content)  # the result of an application that has been computed
        copy.origin, copy.inputs, copy.time = _receive_output(value.aval), (source,), tick()
        copy.role = Interior(custom=origin)
        return copy


class ContextMessage(NamedTuple):
    """A call or an answer in a context."""

    context: PassContext
    number: int

    def send(self, value: Value, to: WorkerInfo) -> ReceivedTensor:
        """Record that a tensor is sent to a worker in this message; returns the origin of its copy."""
        return ReceivedTensor(self.context.id, self.context.me, self.number, self.context.send(value, to))


def _received(array: jax.Array) -> tuple[jax.Array]:
    return (array,)


@cache
def _receive_output(aval: Aval) -> Output:
    return Signature("RecvRpc", _received, (aval,), device=aval.device).outputs[0]


def origin_of(value: Vertex) -> ReceivedTensor | None:
    """The origin of a received value; None for a value of this worker."""
    origin = custom_of(value.role)
    return origin if isinstance(origin, ReceivedTensor) else None


def _first_id(worker: WorkerInfo) -> int:
    """The first id that a worker assigns."""
    return (worker.id << _CREATOR_BITS) + (worker.incarnation % _INCARNATIONS << _INCARNATION_BITS)


def creator_of(number: int) -> int:
    """The number of the worker that has created a context, from its id."""
    return number >> _CREATOR_BITS


class Contexts:
    """The contexts of one worker. `connected(worker)` tells whether there is a connection to or from a worker."""

    def __init__(self, me: WorkerInfo, connected: Callable[[WorkerInfo], bool]) -> None:
        self._me = me
        self._connected = connected
        self._lost: dict[int, WorkerInfo] = {}  # workers that have ended, by the upper bits of their contexts' ids
        self._lock = threading.Lock()
        self._numbers = count(_first_id(me))
        self._all: dict[int, PassContext] = {}
        self._released: dict[int, None] = {}  # the latest ones, since calls in them may still arrive

    def make(self) -> PassContext:
        """Create a context."""
        return self.at(next(self._numbers))

    def at(self, number: int) -> PassContext:
        """The context with an id; created here if this is the first message in it. It may be over."""
        with self._lock:
            context = self._all.get(number)
            if context is None:
                context = PassContext(number, self._me)
                creator = self._lost.get(number >> _INCARNATION_BITS)
                # A late message must not bring a released context back: nobody would release it again. Ids of a lost
                # creator count as released, unless that worker is connected again.
                context.over = number in self._released or (creator is not None and not self._connected(creator))
                if not context.over:
                    self._all[number] = context
            return context

    def existing(self, number: int) -> PassContext:
        """The context with an id; `RuntimeError` if there is none."""
        context = self._all.get(number)
        if context is None:
            raise GradientError(f"Could not find autograd context with id: {number}")
        return context

    def release(self, number: int) -> PassContext | None:
        """Release a context; returns it, None if it was released before."""
        with self._lock:
            context = self._all.pop(number, None)
            self._released[number] = None
            if len(self._released) > _MOST_RELEASED:
                del self._released[next(iter(self._released))]
        if context is not None:
            context.over = True
        return context

    def lost(self, worker: WorkerInfo) -> list[int]:
        """Handle the end of a worker, and so of the contexts that it has created; returns those to release."""
        beginning = _first_id(worker) >> _INCARNATION_BITS
        with self._lock:
            # Kept, since messages about its contexts may still arrive from third workers.
            self._lost[beginning] = worker
            return [number for number in self._all if number >> _INCARNATION_BITS == beginning]

    def of_others(self) -> list[tuple[int, int]]:
        """The ids of contexts that other workers have created, with their creators' numbers."""
        with self._lock:
            return [(number, creator_of(number)) for number in self._all if creator_of(number) != self._me.id]

    def join(self, number: int, worker: WorkerInfo) -> bool:
        """Record that a worker takes part in a context, and must be told of its end; False if the context is over."""
        context = self._all.get(number)
        if context is None:
            return False
        context.peers.add(worker)
        return not context.over

    def figures(self) -> dict[str, int]:
        """The numbers of running backward passes here, and of contexts."""
        with self._lock:
            passes = sum(len(context.passes) for context in self._all.values())
            return {"num_current_backward_passes": passes, "num_autograd_contexts": len(self._all)}

    def __len__(self) -> int:
        return len(self._all)


class _ThreadLocal(threading.local):
    context: PassContext | None = None


_thread_local = _ThreadLocal()


def current_context() -> PassContext | None:
    """The context that this thread is in; None once it is released."""
    context = _thread_local.context
    return None if context is None or context.over else context


@contextmanager
def use_context(context: PassContext | None) -> Generator[None]:
    """Set this thread's context within the block; None means no context."""
    before, _thread_local.context = _thread_local.context, context
    try:
        yield
    finally:
        _thread_local.context = before
