"""The protocol of workers: kinds of frames, controls, and replies.

A frame has a kind, a number by which an answer finds its call, and a pickle (`_message.py`). A call runs a user's
function; a control runs a function of this package, identified by its name. Only the controls in the table
(`_controls.py`) can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple

from weft._base.types import Arg, Result
from weft.distributed.rpc._errors import pack_error
from weft.distributed.rpc._message import pack
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future

if TYPE_CHECKING:
    from weft._comm.transport.pipe import CallPipe
    from weft.distributed.rpc._contexts import PassContext
    from weft.distributed.rpc._devices import DeviceMaps
    from weft.distributed.rpc._trace.log import CallSpan

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Frame(IntEnum):
    """Kinds of frames. On the path of every call they are used as plain ints: an attribute look-up takes 0.1 µs."""

    CALL = 1
    """A user's function, to be answered."""
    REQUEST = 2
    """A control, to be answered."""
    UNCOUNTED = 3
    """A control, to be answered, for which `shutdown` does not wait."""
    NOTE = 4
    """A control without an answer."""
    ANSWER = 5
    """The return value of a function."""
    ERROR = 6
    """The exception of a function."""
    DEVICES = 7
    """The caller's device map, sent before anything else."""
    RETURN = 8
    """A loan of memory is returned, by its number."""
    CHUNK = 9
    """A part of a long buffer."""


class Mark(IntEnum):
    """Bits that are added to kinds of frames."""

    LENT = 1 << 8
    """Some buffers are in lent memory."""
    TRACED = 1 << 9
    """The call belongs to a trace, whose name is the last buffer."""
    CUT = 1 << 10
    """Some buffers are sent in chunks."""


_ANSWER = int(Frame.ANSWER)


class Request(Generic[*Args]):
    """A control with an answer: `function(reply, *args)` runs as soon as it arrives, and must send the reply.

    `title(args)` is its name in traces, or None if it does not serve a user's call.
    """

    def __init__(
        self, function: Callable[[AnyReply, *Args], None], kind: Frame, title: Callable[[Arg], str | None]
    ) -> None:
        self.function, self.kind, self.title = function, int(kind), title
        self.name = function.__name__
        self.__doc__ = function.__doc__


class Note(Generic[T, *Args]):
    """A control without an answer: `function(agent, *args)` runs as soon as it arrives. Calling it runs it here."""

    kind = int(Frame.NOTE)

    def __init__(self, function: Callable[[T, *Args], None]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, agent: T, *args: *Args) -> None:
        self.function(agent, *args)


AnyRequest: TypeAlias = Request[*tuple[Any, ...]]
Control: TypeAlias = AnyRequest | Note[Any, *tuple[Any, ...]]


def _untitled(args: Arg) -> None:
    del args


def request(
    *, counted: bool = True, title: Callable[[Arg], str | None] = _untitled
) -> Callable[[Callable[[AnyReply, *Args], None]], Request[*Args]]:
    """Make a function a control with an answer; `shutdown` does not wait for those that are not `counted`."""
    return lambda function: Request(function, Frame.REQUEST if counted else Frame.UNCOUNTED, title)


def table(*controls: Control) -> Mapping[str, Control]:
    """Controls by name."""
    by_name = {control.name: control for control in controls}
    assert len(by_name) == len(controls), "two controls have one name"
    return by_name


class Answering(Protocol):
    """An agent, as far as a reply needs it."""

    me: WorkerInfo
    devices: DeviceMaps

    def run(self, function: Callable[..., None], *args: Arg) -> None:
        """Have a function run in its turn."""
        ...

    def answer(self, reply: AnyReply, kind: int, body: bytes, buffers: Sequence[memoryview]) -> None:
        """Send the answer to a request."""
        ...


A = TypeVar("A", bound=Answering)


class Reply(Generic[A]):
    """The reply to a request. It must be sent once, now or later, by any thread.

    A value is sent in `context`, if that is a context of distributed autograd.
    """

    __slots__ = ("_span", "agent", "caller", "context", "kind", "number", "pipe")

    def __init__(
        self, agent: A, pipe: CallPipe | None, caller: WorkerInfo, kind: int, number: int, span: CallSpan | None
    ) -> None:
        self.agent, self.pipe, self.caller, self.kind, self.number = agent, pipe, caller, kind, number
        self.context: PassContext | None = None
        self._span = span

    def send(self, value: object) -> None:
        """Answer with a value."""
        try:
            receiver = self.agent.devices.receiver_of_answer(self.caller, self.pipe)
            if self.context is not None:
                receiver = receiver._replace(message=self.context.message())
            self._answer(_ANSWER, *pack(value, receiver))
        # The caller waits: a result that cannot be sent has to reach it as an error.
        except BaseException as error:  # it cannot be packed, or is too long
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        self._answer(Frame.ERROR, *pack_error(error, self.agent.me))

    def follow(self, future: Future[Result]) -> None:
        """Answer with the result or error of a future, once it is done."""
        future.add_done_callback(self._settle)

    def run(self, function: Callable[..., None], *args: Arg) -> None:
        """Call `function(self, *args)`, which sends the reply; an exception that it raises becomes the answer."""
        try:
            if self._span is None:
                function(self, *args)
            else:
                self._span.run(partial(function, self, *args))
        except BaseException as error:
            self.fail(error)

    def run_in_turn(self, function: Callable[..., None], *args: Arg) -> None:
        """As `run`, but in a thread of the pool, after the functions that are already waiting."""
        self.agent.run(self.run, function, *args)

    def _settle(self, done: Future[Result]) -> None:
        try:
            value = done.value()
        except BaseException as error:
            self.fail(error)
        else:
            self.send(value)

    def _answer(self, kind: int, body: bytes, buffers: Sequence[memoryview]) -> None:
        if self._span is not None:
            self._span.answered(body, buffers)
        self.agent.answer(self, kind, body, buffers)


AnyReply: TypeAlias = Reply[Any]
"""The reply to a request, by whichever agent."""
