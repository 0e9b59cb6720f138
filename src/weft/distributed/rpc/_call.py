"""Calls whose answers have not arrived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from time import monotonic, perf_counter
from typing import Self

from weft._base.timeline import Phase, spanned
from weft._base.types import Result
from weft._comm.transport.pipe import Bytes, CallPipe
from weft._comm.transport.reactor import Reactor
from weft.distributed.rpc._contexts import PassContext, current_context, use_context
from weft.distributed.rpc._errors import remote_error, timeout_error
from weft.distributed.rpc._message import Buffer
from weft.distributed.rpc._protocol import Frame
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import LostWorkerError
from weft.futures import Future

NEVER = float("inf")
_ERROR = int(Frame.ERROR)
_TOGETHER = 200e-6  # seconds within which frames to one peer are sent together


class PendingCall(Future[Result]):
    """The answer to a call whose request is queued, but may not be sent.

    A thread that waits for it sends the request, and reads the pipe unless another thread does. Callers that do not
    wait at once must call `push` or `flush`.
    """

    _is_remote = True

    def __init__(self, calls: PendingCalls, pipe: CallPipe | None, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.end = monotonic() + seconds if seconds else None
        self.pipe = pipe
        self._calls = calls

    def push(self, *, now: bool = False) -> Self:
        """Send it, `now` or within a moment together with other frames, and read its answer as soon as it arrives."""
        pipe = self.pipe
        if pipe is None:
            return self
        if now:
            self._calls.reactor.poll(pipe)
            return self
        time = perf_counter()
        # The first call of a burst leaves at once, so that the other worker begins; those right after it share a system
        # call.
        if time - pipe.pushed > _TOGETHER:
            pipe.pushed = time
            self._calls.reactor.flush(pipe)
        self._calls.reactor.call_soon(partial(self._calls.reactor.poll, pipe))
        return self

    def flush(self) -> Self:
        """Send it now. The thread that waits for it reads its answer."""
        if self.pipe is not None:
            self._calls.reactor.flush(self.pipe)
        return self

    def add_done_callback(self, callback: Callable[[Future[Result]], object]) -> None:
        """Add a callback, which runs in the present context of distributed autograd."""
        context = current_context()
        super().add_done_callback(callback if context is None else partial(_run_within, context, callback))

    @spanned(Phase.CALL, "wait")
    def _await(self) -> None:
        # A call to this worker itself is run by its own pool, so another thread has to lead if this one does.
        if self.pipe is None:
            self._calls.reactor.yield_leadership()
            super()._await()
            return
        self._calls.reactor.read_until(self.pipe, self.done, self.ring, self.end)
        # `read_until` also ends at the timeout or when the pipe is lost; both settle the call, perhaps in another
        # thread.
        if not self._done:
            self._calls.expire()
            super()._await()

    def _leave_to_others(self) -> None:
        self.push()
        self._calls.reactor.yield_leadership()


class PendingCalls:
    """The calls of one worker that wait for answers: calls to itself here, others at their pipes."""

    def __init__(
        self,
        me: WorkerInfo,
        reactor: Reactor,
        outgoing: Callable[[], list[CallPipe]],
        read: Callable[[Bytes, Sequence[Buffer]], Result],
    ) -> None:
        self.numbers = count(1)
        self.next_end = NEVER  # the earliest timeout of all calls
        self.reactor = reactor
        self._me = me
        self._outgoing = outgoing
        self._read = read
        self._local: dict[int, PendingCall] = {}
        self._lock = threading.Lock()

    def at(self, pipe: CallPipe | None) -> dict[int, PendingCall]:
        """The calls through a pipe, by number; for None, those to this worker itself."""
        return self._local if pipe is None else pipe.calls

    def add(self, number: int, call: PendingCall) -> None:
        """Have a call wait for the answer with this number, and expire."""
        self.at(call.pipe)[number] = call
        # Most calls end after one that is watched already, and need not wake the reactor.
        if call.end is not None and call.end < self.next_end:
            with self._lock:
                self.next_end = min(self.next_end, call.end)
            self.reactor.wake()

    def pending(self) -> list[PendingCall]:
        """All of them."""
        return [call for calls in self._all() for call in list(calls.values())]

    def expire(self) -> None:
        """Fail the calls whose timeout has passed."""
        now, late = monotonic(), list[PendingCall]()
        if now < self.next_end:
            return
        with self._lock:
            self.next_end = NEVER
            for calls in self._all():
                for number, call in list(calls.items()):
                    if call.end is not None and call.end > now:
                        self.next_end = min(self.next_end, call.end)
                    # Whoever removes a call from the table settles it: the answer may arrive in another thread at the
                    # same moment.
                    elif call.end is not None and calls.pop(number, None) is not None:
                        late.append(call)
        for call in late:
            self._finish(call, call.set_exception, timeout_error(call.seconds))

    def answer(self, pipe: CallPipe | None, kind: int, number: int, body: Bytes, buffers: Sequence[Buffer]) -> None:
        """Handle the answer to a call."""
        call = self.at(pipe).pop(number, None)
        if call is None:
            return  # the call has timed out
        failed = kind == _ERROR
        try:
            outcome = remote_error(body, buffers) if failed else self._read(body, buffers)
        # What unpickling raises belongs to this caller; raised here, it would end the thread that reads for all.
        except BaseException as error:
            peer = self._me.name if pipe is None else pipe.peer
            error.add_note(f"The answer of worker {peer} cannot be unpickled here; the function has run there.")
            failed, outcome = True, error
        self._finish(call, call.set_exception if failed else call.set_result, outcome)

    def fail(self, pipe: CallPipe | None, why: str) -> None:
        """Fail all calls through a pipe, which is closed."""
        calls = self.at(pipe)
        while calls:
            try:
                _, call = calls.popitem()
            except KeyError:
                return  # another thread has done it
            call.set_exception(LostWorkerError(why))

    def _all(self) -> list[dict[int, PendingCall]]:
        return [self._local, *(pipe.calls for pipe in self._outgoing())]

    def _finish(self, call: PendingCall, finish: Callable[[Result], None], outcome: Result) -> None:
        """Set the outcome of a call; in another thread if it has callbacks, which may wait for other calls."""
        # This thread reads a connection: a callback that waits for another answer on it would wait for ever.
        if call.has_callbacks:
            self.reactor.defer(partial(finish, outcome))
        else:
            finish(outcome)


def _run_within(context: PassContext, callback: Callable[[Future[Result]], object], done: Future[Result]) -> None:
    with use_context(context):
        callback(done)
