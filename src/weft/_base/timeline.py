"""The timeline: what Weft does with a thread's time, told to listeners while there are any.

Without listeners, a place that tells of its time makes one test more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from time import perf_counter_ns
from typing import NamedTuple, ParamSpec, TypeVar

from weft._base.types import Arg

P = ParamSpec("P")
R = TypeVar("R")


class Phase(StrEnum):
    """What a thread's time goes to."""

    RECORDING = "recording"  # operators, whole backward passes and optimizer steps
    INFERENCE = "inference"  # signatures: the types of results, found at an operator's first use with some types
    PLANNING = "planning"  # what a program has to compute, and which program that is
    TRACING = "tracing"  # a program by jax
    LOWERING = "lowering"  # to what XLA takes
    COMPILING = "compiling"
    LOADING = "loading"  # of a compiled program from the folder of compiled programs
    INTERPRETING = "interpreting"  # a program that is not compiled
    RUNNING = "running"  # a compiled program: giving it to XLA, and what XLA computes in the thread that calls it
    WAITING = "waiting"  # for what a device computes
    TRANSFER = "transfer"  # to and from devices
    DATA = "data"  # waiting for batches of a `DataLoader`, or making them
    COLLECTIVE = "collective"  # with other ranks
    CALL = "remote call"  # waiting for another worker
    PROFILING = "profiling"  # noting all this
    BLOCK = "block"  # of `record_function`, a module or a step: the program's own names


class Span(NamedTuple):
    """A stretch of a thread's time. Spans of a thread are nested or apart; inner ones are told of first.

    start, end   nanoseconds of `time.perf_counter_ns`
    work         what is known of it: for a program, what it computes
    """

    phase: Phase
    name: str
    thread: int
    start: int
    end: int
    work: Arg = None


Listener = Callable[[Span], None]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Exchange:
    """What a thread has other processes do: a call of another worker, a collective or a message.

    start, end       from its begin to its answer, in nanoseconds of `time.perf_counter_ns`
    shapes           of the tensors of a collective or a message
    caller, worker   for a call, the numbers of this worker and of the one that is called
    events           for a call, what the other worker's profiler has noted of it
    """

    name: str
    thread: int = field(default_factory=threading.get_ident)
    start: int = field(default_factory=perf_counter_ns)
    end: int | None = None
    shapes: Sequence[Sequence[int]] = ()
    caller: int = -1
    worker: int = -1
    events: list[Arg] = field(default_factory=list[Arg])


# no cell: listeners look on
class Listeners:
    """Those who are told of every span, in the thread whose time it is, and of exchanges as they begin."""

    all: tuple[Listener, ...] = ()
    of_exchanges: tuple[Callable[[Exchange], None], ...] = ()


def add_listener(listener: Listener) -> None:
    """Tell `listener` of the spans that end from now on."""
    Listeners.all = (*Listeners.all, listener)


def remove_listener(listener: Listener) -> None:
    """Undo `add_listener`."""
    Listeners.all = tuple([other for other in Listeners.all if other != listener])


def add_exchange_listener(listener: Callable[[Exchange], None]) -> None:
    """Tell `listener` of exchanges that begin from now on; functions of calls are profiled where they run."""
    Listeners.of_exchanges = (*Listeners.of_exchanges, listener)


def remove_exchange_listener(listener: Callable[[Exchange], None]) -> None:
    """Undo `add_exchange_listener`."""
    Listeners.of_exchanges = tuple([other for other in Listeners.of_exchanges if other is not listener])


def tell_exchange(exchange: Exchange) -> Exchange:
    """Tell the listeners of an exchange that begins; returns it."""
    for listener in Listeners.of_exchanges:
        listener(exchange)
    return exchange


def exchanging(name: str, shapes: Sequence[Sequence[int]], call: Callable[P, R]) -> Callable[P, R]:
    """`call`, whose end is that of an exchange that begins now."""
    exchange = tell_exchange(Exchange(name, shapes=shapes))

    def ending(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        finally:
            exchange.end = exchange.end or perf_counter_ns()

    return ending


def tell(phase: Phase, name: str, start: int, work: object = None) -> None:
    """Tell the listeners of a span of this thread that ends now."""
    span = Span(phase, name, threading.get_ident(), start, perf_counter_ns(), work)
    for listener in Listeners.all:
        listener(span)


def spanned(phase: Phase, name: str | Callable[..., str] = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function whose calls are spans of a phase. `name` may be found from the arguments."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        named = name or function.__name__.strip("_")

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not Listeners.all:
                return function(*args, **kwargs)
            start = perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                tell(phase, named if isinstance(named, str) else named(*args, **kwargs), start)

        return call

    return decorate


@contextmanager
def span(phase: Phase, name: str) -> Generator[None]:
    """A block that is a span, for what is rare enough to be one also without listeners."""
    start = perf_counter_ns()
    try:
        yield
    finally:
        if Listeners.all:
            tell(phase, name, start)
