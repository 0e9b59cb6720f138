"""Callbacks around operators and blocks, for the monitoring of programs that one does not want to change.

Operators are recorded, and computed later, many together. So what a callback sees is the recording of an operator.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from contextvars import Token
from enum import Enum
from itertools import chain
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from weft._autograd.engine import is_running
from weft._base.device import device
from weft._base.dtype import DType
from weft._base.pending import Pending, watch
from weft._base.scopes import observe_scopes
from weft._base.site import user_site
from weft._base.size import Size
from weft._base.state import Ambient, ambient, leave, replace_ambient, using
from weft._base.types import Arg, AttributeValue
from weft._lazy.value import Value
from weft._tensor.tensor import Tensor, wrap
from weft.errors import ArgumentError, OptionError, ValueRangeError

_log = logging.getLogger(__name__)


class RecordScope(Enum):
    """What a callback is called for; members have PyTorch's names and numbers.

    An operator of the program, an operator that a backward pass records, or a block of `profiler.record_function`.
    """

    FUNCTION = 0
    BACKWARD_FUNCTION = 1
    USER_SCOPE = 7


class TensorType(NamedTuple):
    """Shape, dtype and device of a tensor."""

    shape: Size
    dtype: DType
    device: device


class RecordFunction:
    """What callbacks see of an operator, or of a block.

    name        the operator's; that of a derivative is `grad of NAME`, that of a check of indices `check of NAME`
    scope       what it is
    debug_info  what `debug_info` has set where it was recorded

    What is not in this list can be read only while a callback runs, so that nothing is kept alive.
    """

    __slots__ = ("_frame", "_value", "debug_info", "name", "scope")

    def __init__(self, name: str, scope: RecordScope, frame: FrameType, value: Value | None = None) -> None:
        self.name = name
        self.scope = scope
        self.debug_info = ambient().context.debug_info
        self._frame: FrameType | None = frame  # that calls the callback, while it runs
        self._value = value

    def __repr__(self) -> str:
        return f"RecordFunction(name={self.name!r}, scope={self.scope.name})"

    @property
    def is_backward(self) -> bool:
        """Whether a backward pass records it."""
        return self.scope is RecordScope.BACKWARD_FUNCTION

    @property
    def thread_id(self) -> int:
        """The thread that records it, by `threading.get_native_id`."""
        self._require_frame()
        return threading.get_native_id()

    @property
    def input_types(self) -> tuple[TensorType | type, ...]:
        """The types of the inputs, in order: `TensorType`, or the Python type of a number. None for a block."""
        return tuple([type(x.number) if x.aval.weak else _type_of(x) for x in self._operands()])

    @property
    def inputs(self) -> tuple[object, ...]:
        """The inputs: tensors outside of the graph, and Python's numbers, which have no shape.

        Reading elements computes what they depend on.
        """
        return tuple([x.number if x.aval.weak else _detached(x) for x in self._operands()])

    @property
    def output_type(self) -> TensorType | None:
        """The type of the first output; None for a block."""
        value = self._recorded()
        return None if value is None else _type_of(value)

    @property
    def site(self) -> str:
        """`file:line` of the program; for an operator of a backward pass, the line that has called `backward`."""
        self._require_frame()
        return user_site(self._frame)

    def _operands(self) -> tuple[Value, ...]:
        value = self._recorded()
        return () if value is None else value.inputs

    def _recorded(self) -> Value | None:
        self._require_frame()
        return self._value

    def _require_frame(self) -> None:
        if self._frame is None:
            raise OptionError(f"{self!r}: its tensors, types and line can be read only while a callback runs")


def _type_of(value: Value) -> TensorType:
    aval = value.aval
    return TensorType(Size(aval.shape), aval.dtype, aval.device)


def _detached(value: Value) -> Tensor:
    return wrap(value).detach()


Enter = Callable[[RecordFunction], Any]
Exit = Callable[[RecordFunction, Any], Any]


class CallbackHandle:
    """A callback that has been added. `with` removes it at the end of a block."""

    def __init__(
        self, enter: Enter, exit: Exit | None, scopes: frozenset[RecordScope], probability: float, *, everywhere: bool
    ) -> None:
        self._enter = enter
        self._exit = exit
        self._forward, self._backward, self._blocks = [scope if scope in scopes else None for scope in RecordScope]
        self._probability = probability
        self._random = np.random.default_rng()  # of its own: the program's seeds give the program's numbers
        self.distance = chain.from_iterable(self._distances()).__next__
        self._everywhere = everywhere
        self._logged: set[tuple[str, type]] = set()  # failures
        self._ends: tuple[Callable[[], None], ...] = ()
        self.enable()

    def enable(self) -> None:
        """Call it again, after `disable`."""
        if not self._ends:
            everywhere = self._everywhere
            self._ends = (watch(self, everywhere=everywhere), observe_scopes(self._block, everywhere=everywhere))

    def disable(self) -> None:
        """Do not call it, which costs nothing, until `enable`."""
        ends, self._ends = self._ends, ()
        for end in ends:
            end()

    remove = disable

    def __enter__(self) -> CallbackHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    # --- called by what records, and by blocks ---

    def _distances(self) -> Iterator[list[int]]:
        """How many operators on the next one is, each time, many of them at once."""
        while True:
            yield self._random.geometric(self._probability, 256).tolist()

    def show(self, value: Arg) -> None:
        """Call it for an operator."""
        scope = self._backward if is_running() else self._forward
        if scope is None:
            return
        function = RecordFunction(value.origin.signature.name, scope, sys._getframe(), value)
        token = _enter_unseen(function)
        try:
            context = self._enter(function)
        # A callback that fails must not fail the program that it watches.
        except Exception as error:
            self._log_failure(error, "beginning", function)
        else:
            if self._exit is not None:
                self._exited(self._exit, function, context)
        finally:
            leave(token)
            function._frame = function._value = None

    def _block(self, name: str) -> Callable[[], None] | None:
        """Call it at the beginning of a block; returns what is called at its end."""
        if self._blocks is None or self._random.random() >= self._probability:
            return None
        function = RecordFunction(name, self._blocks, sys._getframe())
        token = _enter_unseen(function)
        try:
            context = self._enter(function)
        except Exception as error:
            self._log_failure(error, "beginning", function)
            return None
        finally:
            leave(token)
            function._frame = None
        exit = self._exit
        if exit is None:
            return None

        def end() -> None:
            function._frame = sys._getframe()
            token = _enter_unseen(function)
            try:
                self._exited(exit, function, context)
            finally:
                leave(token)
                function._frame = None

        return end

    def _exited(self, exit: Exit, function: RecordFunction, context: object) -> None:
        try:
            exit(function, context)
        except Exception as error:
            self._log_failure(error, "end", function)

    def _log_failure(self, error: Exception, moment: str, function: RecordFunction) -> None:
        """Log a failure, if it is the first of its kind: a callback fails for one operator as for the next."""
        if (moment, type(error)) not in self._logged:
            self._logged.add((moment, type(error)))
            _log.warning(
                "a callback has failed at the %s of %s (it is called again; more failures by %s are not logged)",
                moment,
                function.name,
                type(error).__name__,
                exc_info=True,
            )


class _Thread(threading.local):
    def __init__(self) -> None:
        self.unseen = Ambient(Pending(watched=False), grad=False)


_thread = _Thread()


def _enter_unseen(function: RecordFunction) -> Token[Ambient | None]:
    """Enter the state in which callbacks run: what they record is shown to nobody, and is not the program's."""
    if _thread.unseen.context.debug_info is not function.debug_info:
        _thread.unseen = _thread.unseen.replaced(debug_info=function.debug_info)
    return replace_ambient(_thread.unseen)


def add_global_callback(
    enter: Enter,
    exit: Exit | None = None,
    *,
    scopes: Collection[RecordScope] = tuple(RecordScope),
    sampling_prob: float = 1.0,
) -> CallbackHandle:
    """Call `enter(record_function)` and then `exit(record_function, result_of_enter)` for operators of all threads.

    For an operator, both are called when it has been recorded, before it is computed, and in the thread that records
    it; for a block, at its beginning and its end. Each operator and each block of these `scopes` is chosen with the
    probability `sampling_prob`, and those that are not chosen cost nothing. Operators of a backward pass may be shown
    at its end. What a callback computes is shown to nobody. An exception in a callback is logged, once for each type of
    exception, and the callback is called again for what follows.

    Best called at the start of a program: of what other threads record in the same moment, some may be missed.
    """
    return _added(enter, exit, scopes, sampling_prob, everywhere=True)


def add_thread_local_callback(
    enter: Enter,
    exit: Exit | None = None,
    *,
    scopes: Collection[RecordScope] = tuple(RecordScope),
    sampling_prob: float = 1.0,
) -> CallbackHandle:
    """As `add_global_callback`, for what this thread records. The handle must be used in this thread."""
    return _added(enter, exit, scopes, sampling_prob, everywhere=False)


def _added(
    enter: Enter, exit: Exit | None, scopes: Collection[RecordScope], sampling_prob: float, *, everywhere: bool
) -> CallbackHandle:
    if not callable(enter) or not (exit is None or callable(exit)):
        raise ArgumentError(f"callbacks must be functions of a RecordFunction, got {enter!r} and {exit!r}")
    chosen = frozenset(scopes) if isinstance(scopes, Collection) else frozenset()
    if not chosen or not all(isinstance(scope, RecordScope) for scope in chosen):
        raise ArgumentError(f"scopes must be members of weft.monitor.RecordScope, at least one, got {scopes!r}")
    if not isinstance(sampling_prob, (int, float)) or not 0 < sampling_prob <= 1:
        raise ValueRangeError(f"sampling_prob must be above 0 and at most 1, got {sampling_prob!r}")
    return CallbackHandle(enter, exit, chosen, sampling_prob, everywhere=everywhere)


@contextmanager
def debug_info(**items: object) -> Generator[None]:
    """Tell callbacks more of what is recorded in the block, such as `model_id="a"`: `RecordFunction.debug_info`.

    Blocks within add items, or replace them. A backward pass that runs in the block belongs to it, and so do threads
    that the library starts in it to run the program's functions.
    """
    with using(debug_info={**ambient().context.debug_info, **items}):
        yield


def get_debug_info(name: str) -> AttributeValue:
    """An item that `debug_info` has set around this line, or None."""
    return ambient().context.debug_info.get(name)
