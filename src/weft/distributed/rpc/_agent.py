"""The agent of a worker: calls that go out, what comes in, and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from weft._base.state import ambient
from weft._comm.hub import Hub
from weft._comm.pipe import Bytes, Pipe
from weft._comm.turn import Bell
from weft._lazy.realize import flush_pending
from weft.distributed.rpc._contexts import Context, Contexts, current_context, within
from weft.distributed.rpc._devices import Devices, Maps
from weft.distributed.rpc._drops import NEVER, Drops
from weft.distributed.rpc._freight import LONG, RETURN, Freight
from weft.distributed.rpc._message import pack, unpack
from weft.distributed.rpc._peers import Peers
from weft.distributed.rpc._place import Ways
from weft.distributed.rpc._references import Owned, References
from weft.distributed.rpc._service import Answer, called, raised_there, serve
from weft.distributed.rpc._traffic import Counts, Traffic
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DistNetworkError, RpcError, RpcTimeoutError
from weft.futures import Future

if TYPE_CHECKING:
    from weft.distributed.rpc._tracing import Span, Tracer

CALL, CONTROL, UNCOUNTED, NOTE, ANSWER, ERROR, DEVICES = range(1, 8)
"""Kinds of frames: a function of the user, one of this package, one that is not counted as work, one without an answer;
what it returned, what it raised; the caller's device map."""

TRACED = 1 << 9
"""Added to the kind of a call or control that belongs to a trace, which its last buffer names."""

_GRACE, _LEAST_GRACE = 5.0, 0.2  # seconds that functions under way are given at the end; after the deadline
_TOGETHER = 200e-6  # seconds within which frames to one peer are sent together


class Call(Future[Any]):
    """The answer to a call. Who waits for it reads the pipe that it comes by, unless somebody else does."""

    def __init__(self, agent: Agent, pipe: Pipe | None, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.end = monotonic() + seconds if seconds else None
        self.pipe = pipe
        self._agent = agent

    def add_done_callback(self, callback: Callable[[Future[Any]], Any]) -> None:
        """The callback runs in the context of distributed autograd in which it is added."""
        context = current_context()
        super().add_done_callback(callback if context is None else partial(_run_within, context, callback))

    def _await(self) -> None:
        if self.pipe is None:
            self._agent.hub.step_back()
            super()._await()
            return
        self._agent.hub.read_until(self.pipe, self.done, self._ring, self.end)
        if not self._done:
            self._agent.expire()
            super()._await()

    def _leave_to_others(self) -> None:
        self._agent.push(self)
        self._agent.hub.step_back()


class Agent:
    """Calls to and from one worker.

    `controls(self)` has the methods that peers may have run at once. `size` is how many workers there are, None where
    they come and go.
    """

    def __init__(
        self, workers: Workers, *, threads: int, seconds: float, ways: Ways, size: int | None, device_maps: Maps,
        controls: Callable[[Agent], Any],
    ) -> None:  # fmt: skip
        self.me = workers.me
        self.workers = workers
        self.seconds = seconds
        self.size = size
        self.closing = False
        self.leaving = threading.Lock()  # held by who sees to the end of the job
        self.references = References(self.me[1:])
        self.contexts = Contexts(self.me, lambda worker: self.peers.connected(worker))
        self.hub = Hub(f"weft rpc {self.me.name}", threads)
        self.freight = Freight(self.hub, lambda pipe: self.peers.widen(pipe))
        self.drops = Drops(self.hub.wake)
        self.tracer: Tracer | None = None  # while there is a trace in which this worker takes part
        self.controls = controls(self)
        self.devices = Devices(self.me, device_maps)
        self._numbers = count(1)
        self._local: dict[int, Call] = {}  # calls to itself
        self._next_end = NEVER  # of any call
        self._clock = threading.Lock()
        self._closing = threading.Lock()
        self.traffic = Traffic()
        self.hub.alarm = self._look_at_the_clock
        try:
            self.peers = Peers(workers, self.hub, self, ways, self._introduce)  # from here on others may call
        except BaseException:
            self.hub.close(_GRACE)
            raise

    def close(self, seconds: float | None = None) -> None:
        """Leave at once; calls that wait fail. Functions under way get at most some seconds to end.

        Nothing where another thread has done so.
        """
        with self._closing:
            if self.closing:
                return
            self.closing = True
        self.peers.close()
        self.hub.close(_GRACE if seconds is None else min(_GRACE, max(seconds, _LEAST_GRACE)))
        while self._local:
            _, call = self._local.popitem()
            call.set_exception(RpcError(f"{self.me} has left the job before its call to itself was done"))

    # --- calls that go out ---

    def call(self, to: WorkerInfo, function: Any, args: Any, kwargs: Any, seconds: float | None = None) -> Call:
        """Begin a call. Who waits for it sends it; `push` does so for those who do not wait."""
        context = current_context()
        content = (function, args, kwargs) if context is None else (function, args, kwargs, context.id)
        return self._begin(to, CALL, content, self.seconds if seconds is None else seconds)

    def control(self, to: WorkerInfo, name: str, *args: Any, limit: float | None = None, counted: bool = True) -> Call:
        """The same for a control, which its worker runs at once."""
        kind = CONTROL if counted else UNCOUNTED
        return self._begin(to, kind, (name, args), self.seconds if limit is None else limit)

    def tell(self, to: WorkerInfo, name: str, *args: Any) -> Future[Any]:
        """The same, sent at once, without limit."""
        return self.push(self.control(to, name, *args, limit=0))

    def note(self, to: WorkerInfo, name: str, *args: Any, sending: Pipe | None = None) -> None:
        """Have a control run that has no answer: in a moment, or with what `sending` is about to send.

        Who has gone needs not be told.
        """
        if to == self.me:
            getattr(self.controls, name)(*args)
            return
        try:
            pipe = self.peers.known(to) or self.peers.reach(to, self.seconds)
        except RpcError:
            return
        self.traffic.count(to, made=1)
        pipe.put(NOTE, 0, pack((name, args), self.devices.of_callee(to))[0])
        if pipe is not sending:
            self.hub.soon(partial(self.hub.flush, pipe))

    def _introduce(self, to: WorkerInfo, pipe: Pipe) -> None:
        """Put what a callee is to know before anything else: the device map by which its answers come back."""
        if told := self.devices.told_to(to):
            pipe.put(DEVICES, 0, pack(told, self.devices.of_callee(to))[0])

    def push(self, call: Call) -> Call:
        """Send a call for which nobody waits now, and see that its answer is read."""
        pipe = call.pipe
        if pipe is not None:
            now = perf_counter()
            if now - pipe.pushed > _TOGETHER:
                pipe.pushed = now
                self.hub.flush(pipe)
            self.hub.soon(partial(self.hub.tend, pipe))
        return call

    def send(self, call: Call) -> None:
        """Send a call now; its answer is read by who waits for it."""
        if call.pipe is not None:
            self.hub.flush(call.pipe)

    def send_unattended(self, call: Call) -> None:
        """Send a call now for which nobody waits; its answer is read as soon as it comes."""
        if call.pipe is not None:
            self.hub.tend(call.pipe)

    def wait(self, future: Future[Any], limit: float | None) -> Any:
        """The value of any future, within some seconds (None: the default, 0: no limit)."""
        limit = self.seconds if limit is None else limit
        if not future.done():
            bell: Bell = SimpleQueue()
            future._ring(bell)
            self.hub.step_back()
            try:
                bell.get(timeout=limit or None)
            except Empty:
                raise _late(limit) from None
        return future.value()

    def _begin(self, to: WorkerInfo, kind: int, content: Any, seconds: float) -> Call:
        if (capture := ambient().capture) is not None:
            capture.needs_value("a remote call")
        try:
            pipe = None if to == self.me else self.peers.known(to) or self.peers.reach(to, seconds)
        except RpcError as error:  # what happens elsewhere is told by the answer
            unsent = Call(self, None, seconds)
            unsent.set_exception(error)
            return unsent
        receiver, context = self.devices.of_callee(to), current_context()
        if context is not None:
            context.peers.add(to)
            receiver = receiver._replace(message=context.message())
        body, buffers = pack(content, receiver)
        if kind != UNCOUNTED:
            self.traffic.count(to, made=1)
        number, made, asked = next(self._numbers), Call, kind
        if self.tracer is not None:
            made, kind, buffers = self.tracer.outgoing(to, kind, number, content, body, buffers)
        if pipe is None:
            call = self._local[number] = made(self, None, seconds)
            self._take(None, kind, number, body, buffers)
        else:
            if self.drops:
                self.drops.send(self.note, pipe)
            call = pipe.calls[number] = made(self, pipe, seconds)
            try:
                self.freight.put(pipe, kind, number, body, buffers)
            except BaseException:  # too long, or no memory to lend
                pipe.calls.pop(number, None)
                self.traffic.count(to, made=-(asked != UNCOUNTED))
                raise
            if pipe.why is not None:  # it was lost meanwhile
                self._fail_calls(pipe)
                self.references.lost(to[1:])
            if context is not None and context.over:  # it was released meanwhile
                self.note(to, "release", context.id)
        if call.end is not None and call.end < self._next_end:
            with self._clock:
                self._next_end = min(self._next_end, call.end)
            self.hub.wake()
        return call

    def expect(self, owned: Owned) -> Owned:
        """A value of this worker that was asked for; see that its creator lives where that has not told of it yet."""
        if not owned.created:
            self.hub.run(partial(self._look_for, *owned.id.creator))
        return owned

    def _look_for(self, number: int, incarnation: int) -> None:
        """Give up what a worker was to create, unless that lives: then its loss is told."""
        try:
            found = self.workers.find(number)
            if found is not None and found != self.me and self.peers.known(found) is None:
                found = self.workers.find_again(found)
            if found is not None and found.incarnation == incarnation and found != self.me:
                self.peers.reach(found, self.seconds)
                return
        except RpcTimeoutError:
            return  # it is there
        except RpcError:
            pass
        self.references.lost((number, incarnation))

    def _look_at_the_clock(self) -> float | None:
        """Do what is due; returns the seconds until something else is."""
        self.expire()
        if monotonic() >= self.drops.due:
            self.drops.send(self.note)
        due = min(self._next_end, self.drops.due)
        return None if due == NEVER else max(0.0, due - monotonic())

    def expire(self) -> None:
        """Fail the calls whose time is over."""
        now, late = monotonic(), []
        if now < self._next_end:
            return
        with self._clock:
            self._next_end = NEVER
            for calls in self._all_calls():
                for number, call in list(calls.items()):
                    if call.end is not None and call.end > now:
                        self._next_end = min(self._next_end, call.end)
                    elif call.end is not None and calls.pop(number, None) is not None:
                        late.append(call)
        for call in late:
            self._finish(call, call.set_exception, _late(call.seconds))

    def _all_calls(self) -> list[dict[int, Call]]:
        return [self._local, *(pipe.calls for pipe in self.peers.outgoing())]

    def pending(self) -> list[Call]:
        """The calls that wait for answers."""
        return [call for calls in self._all_calls() for call in list(calls.values())]

    # --- what comes ---

    def received(self, pipe: Pipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> None:
        """A frame has come."""
        if kind & LONG:
            try:
                parcel = self.freight.take(pipe, kind, number, body, buffers)
            except DistNetworkError as error:
                pipe.close(str(error))
                return
            if parcel is not None:
                self._arrived(parcel.pipe, parcel.kind, parcel.number, parcel.body, parcel.buffers)
                if parcel.pipe is not pipe:
                    parcel.pipe.nudge()
        elif pipe.main is pipe:
            self._arrived(pipe, kind, number, body, buffers)
        else:
            pipe.close("it sent more than chunks where these belong")

    def _arrived(self, pipe: Pipe, kind: int, number: int, body: Bytes, taken: list[Any]) -> None:
        if kind == RETURN:
            self.freight.take_back(pipe, number)
        elif kind == NOTE:
            self._noted(pipe, body)
        elif kind == DEVICES:
            self._followed(pipe, lambda: self.devices.heard(pipe, unpack(body, ())))
        elif kind in (ANSWER, ERROR):
            self._answered(pipe.calls, kind, number, body, taken)
        elif self.closing:
            return  # the caller is about to see that this worker has left
        elif kind in (CALL, CONTROL, UNCOUNTED) or (kind in (CALL | TRACED, CONTROL | TRACED) and taken):
            self._take(pipe, kind, number, body, taken)
        else:
            pipe.close(f"it sent a frame of the unknown kind {kind}")

    def _noted(self, pipe: Pipe, body: Bytes) -> None:
        if self._followed(pipe, lambda: self._controlled(body, ())):
            self.traffic.count(self.peers.at(pipe), served=1)

    def _followed(self, pipe: Pipe, follow: Callable[[], object]) -> bool:
        try:
            follow()
        except Exception as error:  # there is no answer to say so
            pipe.close(f"it sent a note that cannot be followed: {error!r}")
        return pipe.why is None

    def lost(self, pipe: Pipe) -> None:
        """A peer has gone: its calls fail, and no others."""
        peer = self.peers.forget(pipe)
        if peer is None:
            return
        self.freight.forget(pipe)
        self.devices.forget(pipe)
        self._fail_calls(pipe)
        if self.closing:
            return
        self.workers.forget(peer)
        self.traffic.lost(peer)
        self.references.lost(peer[1:])
        if self.tracer is not None:
            self.tracer.lost(peer)
        for context in self.contexts.lost(peer):
            self.controls.release(context)
        self.controls.find_makers()
        self.controls.lost(peer)

    def _fail_calls(self, pipe: Pipe) -> None:
        while pipe.calls:
            try:
                _, call = pipe.calls.popitem()
            except KeyError:
                return  # another thread was faster
            call.set_exception(
                RpcError(f"{self.me} has left the job before worker {pipe.peer} answered")
                if self.closing
                else RpcError(f"worker {pipe.peer} was lost while {self.me.name} waited for it: {pipe.why}")
            )

    def _answered(self, calls: dict[int, Any], kind: int, number: int, body: Bytes, buffers: Sequence[Any]) -> None:
        call = calls.pop(number, None)
        if call is None:
            return  # its time was over
        failed = kind == ERROR
        try:
            found = raised_there(body, buffers) if failed else unpack(body, buffers)
        except BaseException as error:
            peer = self.me.name if call.pipe is None else call.pipe.peer
            error.add_note(f"The answer of worker {peer} cannot be unpickled here; the function has run there.")
            failed, found = True, error
        self._finish(call, call.set_exception if failed else call.set_result, found)

    def _finish(self, call: Call, finish: Callable[[Any], None], found: Any) -> None:
        """Tell a call's outcome. Callbacks may wait for other calls."""
        if call.has_callbacks:
            self.hub.aside(partial(finish, found))
        else:
            finish(found)

    def _take(self, pipe: Pipe | None, kind: int, number: int, body: Bytes, buffers: Sequence[Any]) -> None:
        """Run what is asked for: a user's function in its turn, others at once."""
        caller, span = self.me if pipe is None else self.peers.at(pipe), None
        if kind & TRACED:
            *buffers, trace = buffers
            span = self.controls.tracer.incoming(caller, number, bytes(trace))
            kind &= ~TRACED
        if kind == CALL:
            self.run(self._serve, pipe, caller, kind, number, body, buffers, span)
        else:
            self._serve(pipe, caller, kind, number, body, buffers, span)

    def run(self, function: Callable[..., None], *args: Any) -> None:
        """Have a function run in its turn. What it leaves to be computed is started when nothing else is to be done."""
        self.hub.run(partial(self._run, function, *args))

    def _run(self, function: Callable[..., None], *args: Any) -> None:
        function(*args)
        if not self.hub.busy:
            with suppress(Exception):  # it is raised where the value is needed
                flush_pending()

    def _serve(
        self, pipe: Pipe | None, caller: WorkerInfo, kind: int, number: int, body: Bytes, buffers: Sequence[Any],
        span: Span | None,
    ) -> None:  # fmt: skip
        run: Callable[[], Any] = partial(called if kind == CALL else self._controlled, body, buffers)
        answer: Answer = partial(self._answer, pipe, caller, kind, number)
        if span is not None:
            run, answer = partial(span.run, run), partial(span.answer, answer)
        serve(run, self.me, self.devices.of_caller(caller, pipe), answer)

    def _controlled(self, body: Bytes, buffers: Sequence[Any]) -> Any:
        name, args = unpack(body, buffers)
        return getattr(self.controls, name)(*args)

    def _answer(
        self, pipe: Pipe | None, to: WorkerInfo, asked: int, number: int, well: bool, body: bytes,
        buffers: list[memoryview],
    ) -> None:  # fmt: skip
        kind = ANSWER if well else ERROR
        if pipe is None:
            self._answered(self._local, kind, number, body, buffers)
        else:
            self.freight.put(pipe, kind, number, body, buffers)
            if pipe.why is not None:  # nobody is there any more to have what the answer refers to
                self.references.lost(to[1:])
                self.controls.find_makers()
            elif self.hub.busy:
                self.hub.soon(partial(self.hub.flush, pipe))  # more answers are about to follow
            else:
                self.hub.flush(pipe)
        if asked != UNCOUNTED:
            self.traffic.count(to, served=1)

    # --- figures ---

    def get_debug_info(self) -> dict[str, str]:
        """Figures of this worker under PyTorch's names, as texts."""
        idle = max(0, self.hub.threads - self.hub.running)
        return {
            "agent.thread_pool_size": str(self.hub.workers),
            "agent.num_idle_threads": str(idle),
            "agent.num_pending_requests": str(len(self.pending())),
        }

    def get_worker_info(self, name: str | None = None) -> WorkerInfo:
        """The worker of this name, or this one. `RuntimeError` where there is none."""
        found = self.me if name is None else self.workers.find(name)
        if found is None:
            raise RpcError(f"unknown destination worker {name}")
        return found

    def get_worker_infos(self) -> list[WorkerInfo]:
        """The workers of the job, by number."""
        return self.workers.known()

    def counts(self) -> Counts:
        """What this worker reports at the end: the calls that it has made and served, and the functions that run."""
        return self.traffic.counts(self.hub.running)

    def figures(self) -> dict[str, int]:
        """How many threads there are, functions that run, calls that wait for answers, and connections."""
        return {
            "num_threads": self.hub.threads,
            "num_running": self.hub.running,
            "num_pending_calls": len(self.pending()),
            "num_connections": len(self.peers),
        }


def _run_within(context: Context, callback: Callable[[Future[Any]], Any], done: Future[Any]) -> None:
    with within(context):
        callback(done)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:{'.0f' if seconds >= 1e-3 else '.3g'}} ms"


def _late(seconds: float) -> RpcTimeoutError:
    return RpcTimeoutError(
        f"RPCErr:1:RPC ran for more than set timeout ({_milliseconds(seconds)}) and will now be marked with an error"
    )
