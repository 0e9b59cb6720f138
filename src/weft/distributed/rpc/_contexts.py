"""Contexts of distributed autograd: what a worker has sent and received that gradients flow through.

A tensor on the tape that travels in a context gets a number from its sender, who keeps it; the receiver's copy is on a
tape that ends there, and knows whom its gradient goes to. A worker has a context from when it first hears of it until
its maker lets go of it, or is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, NamedTuple, NoReturn

from weft._autograd.graph import Vertex
from weft._lazy.signature import Output, Signature
from weft._lazy.value import Aval, Tape, Value, tick
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import GradientError

_MAKER_BITS, _INCARNATION_BITS = 48, 36  # from which on a context's id tells who made it, and its incarnation
_INCARNATIONS = 1 << (_MAKER_BITS - _INCARNATION_BITS)
_MOST_RELEASED = 1 << 12


class Sent(NamedTuple):
    """A tensor that was sent, and whom to."""

    value: Value
    to: WorkerInfo


class Received(NamedTuple):
    """Where a received tensor comes from, with what message; stands for the derivative, which only distributed passes
    can take."""

    context_id: int
    sender: WorkerInfo
    message: int
    number: int

    def __call__(self, *_: Any) -> NoReturn:
        raise GradientError(
            f"a tensor on the way to the roots came from {self.sender} in a context of distributed autograd; call "
            "weft.distributed.autograd.backward(context_id, roots) in it, not backward()"
        )


class Context:
    """One worker's part in a context.

    sends      tensors that others have got from this worker, by number
    receipts   numbers of the tensors that came in one message, by its sender and number
    peers      workers that have got tensors from this one, or sent some, or were called in it
    gradients  of leaves of this worker, by their tape
    parts      this worker's parts in backward passes, by the number of the pass
    over       whether it was let go of
    """

    def __init__(self, number: int, me: WorkerInfo) -> None:
        self.id = number
        self.me = me
        self.lock = threading.RLock()
        self.sends: dict[int, Sent] = {}
        self.receipts: dict[tuple[WorkerInfo, int], list[int]] = {}
        self.peers: set[WorkerInfo] = set()
        self.gradients: dict[Tape, Value] = {}
        self.parts: dict[Any, Any] = {}
        self.over = False
        self._numbers = count()

    def message(self) -> Message:
        """A message that is about to be packed."""
        return Message(self, next(self._numbers))

    def send(self, value: Value, to: WorkerInfo) -> int:
        """Note that a tensor goes to a worker; returns its number."""
        with self.lock:
            number = next(self._numbers)
            self.sends[number] = Sent(value, to)
            self.peers.add(to)
        return number

    def receive(self, value: Value, come: Received) -> Value:
        """A tensor that has come from a worker, on the tape."""
        with self.lock:
            self.peers.add(come.sender)
            self.receipts.setdefault((come.sender, come.message), []).append(come.number)
        source = Value(value.aval, value.array)
        source.tape = Tape(leaf=True)
        copy = Value(value.aval, value.array)  # an application that is computed already
        copy.origin, copy.inputs, copy.time = _way_in(value.aval), (source,), tick()
        copy.tape = Tape()
        copy.tape.custom = come
        return copy


class Message(NamedTuple):
    """A call or an answer in a context."""

    context: Context
    number: int

    def send(self, value: Value, to: WorkerInfo) -> Received:
        """Note that a tensor goes to a worker with this message; returns what its copy is to know."""
        return Received(self.context.id, self.context.me, self.number, self.context.send(value, to))


@cache
def _way_in(aval: Aval) -> Output:
    return Signature("RecvRpc", lambda array: (array,), (aval,), device=aval.device).outputs[0]


def received(value: Vertex) -> Received | None:
    """Where a value has come from, None for those of this worker."""
    come = value.tape and value.tape.custom
    return come if isinstance(come, Received) else None


def _first_of(worker: WorkerInfo) -> int:
    """The first id that a worker gives."""
    return (worker.id << _MAKER_BITS) + (worker.incarnation % _INCARNATIONS << _INCARNATION_BITS)


def maker_of(number: int) -> int:
    """The number of the worker that has made the context of an id."""
    return number >> _MAKER_BITS


class Contexts:
    """The contexts of one worker. `connected(worker)` says whether there is a connection to or from a worker."""

    def __init__(self, me: WorkerInfo, connected: Callable[[WorkerInfo], bool]) -> None:
        self._me = me
        self._connected = connected
        self._lost: dict[int, WorkerInfo] = {}  # those that have ended, by what their contexts' ids begin with
        self._lock = threading.Lock()
        self._numbers = count(_first_of(me))
        self._all: dict[int, Context] = {}
        self._released: dict[int, None] = {}  # the latest ones; calls in them may still be on their way

    def make(self) -> Context:
        """A new one."""
        return self.at(next(self._numbers))

    def at(self, number: int) -> Context:
        """The context of an id, which this worker may hear of for the first time, or when it is over."""
        with self._lock:
            context = self._all.get(number)
            if context is None:
                context = Context(number, self._me)
                maker = self._lost.get(number >> _INCARNATION_BITS)
                context.over = number in self._released or (maker is not None and not self._connected(maker))
                if not context.over:
                    self._all[number] = context
            return context

    def existing(self, number: Any) -> Context:
        """The context of an id; `RuntimeError` where there is none."""
        context = self._all.get(number)
        if context is None:
            raise GradientError(f"Could not find autograd context with id: {number}")
        return context

    def release(self, number: int) -> Context | None:
        """Let go of a context; returns it, None where that was done before."""
        with self._lock:
            context = self._all.pop(number, None)
            self._released[number] = None
            if len(self._released) > _MOST_RELEASED:
                del self._released[next(iter(self._released))]
        if context is not None:
            context.over = True
        return context

    def lost(self, worker: WorkerInfo) -> list[int]:
        """A worker has ended, and so have the contexts that it has made; returns those that are to be released."""
        beginning = _first_of(worker) >> _INCARNATION_BITS
        with self._lock:
            self._lost[beginning] = worker
            return [number for number in self._all if number >> _INCARNATION_BITS == beginning]

    def of_others(self) -> list[tuple[int, int]]:
        """The ids of contexts that others have made, with the numbers of these."""
        with self._lock:
            return [(number, maker_of(number)) for number in self._all if maker_of(number) != self._me.id]

    def join(self, number: int, worker: WorkerInfo) -> bool:
        """Note that a worker has a part in a context of this one and is to hear of its end; whether that is to come."""
        context = self._all.get(number)
        if context is None:
            return False
        context.peers.add(worker)
        return not context.over

    def figures(self) -> dict[str, int]:
        """How many backward passes go on here, and how many contexts there are."""
        with self._lock:
            passes = sum(len(context.parts) for context in self._all.values())
            return {"num_current_backward_passes": passes, "num_autograd_contexts": len(self._all)}

    def __len__(self) -> int:
        return len(self._all)


class _Thread(threading.local):
    context: Context | None = None


_thread = _Thread()


def current_context() -> Context | None:
    """The context that this thread is in, until it is let go of."""
    context = _thread.context
    return None if context is None or context.over else context


@contextmanager
def within(context: Context | None) -> Iterator[None]:
    """Be in a context, or in none."""
    before, _thread.context = _thread.context, context
    try:
        yield
    finally:
        _thread.context = before
