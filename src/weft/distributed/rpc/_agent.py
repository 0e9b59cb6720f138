"""The agent of a worker: calls that go out, what comes in, and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVarTuple

from weft._base.state import ambient
from weft._comm.transport.pipe import Bytes, Pipe
from weft._comm.transport.reactor import Reactor
from weft._comm.transport.reader_lock import Waiter
from weft._lazy.realize import flush_pending
from weft.distributed.rpc._call import NEVER, Call, Calls, late_error
from weft.distributed.rpc._contexts import Contexts, current_context
from weft.distributed.rpc._devices import Devices, Maps
from weft.distributed.rpc._listener import ConnectOptions
from weft.distributed.rpc._message import pack, unpack
from weft.distributed.rpc._payloads import LONG, Payloads
from weft.distributed.rpc._peers import Peers
from weft.distributed.rpc._pending_deletes import PendingDeletes
from weft.distributed.rpc._protocol import Control, Frame, Mark, Note, Reply, Request
from weft.distributed.rpc._references import Owned, References
from weft.distributed.rpc._release import find_makers, release
from weft.distributed.rpc._service import serve
from weft.distributed.rpc._shutdown import Leaving
from weft.distributed.rpc._tracing import Tracer
from weft.distributed.rpc._traffic import Counts, Traffic
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DistNetworkError, RpcError, RpcTimeoutError
from weft.futures import Future

Args = TypeVarTuple("Args")

_GRACE, _LEAST_GRACE = 5.0, 0.2  # seconds that functions under way are given at the end; after the deadline
_CALL, _UNCOUNTED, _CHUNK, _TRACED = int(Frame.CALL), int(Frame.UNCOUNTED), int(Frame.CHUNK), int(Mark.TRACED)
_ANSWERS = int(Frame.ANSWER), int(Frame.ERROR)
_CALLS = _CALL, int(Frame.REQUEST), _UNCOUNTED
_TRACED_CALLS = Frame.CALL | Mark.TRACED, Frame.REQUEST | Mark.TRACED


class Agent:
    """Calls to and from one worker.

    `controls` is what peers may have run at once. `size` is how many workers there are, None where they come and go.
    Threads of the agent begin with `enter`.
    """

    def __init__(
        self, workers: Workers, *, threads: int, seconds: float, connecting: ConnectOptions, size: int | None,
        device_maps: Maps, controls: Mapping[str, Control], enter: Callable[[], None],
    ) -> None:  # fmt: skip
        self.me = workers.me
        self.workers = workers
        self.seconds = seconds
        self.size = size
        self.closing = False
        self.shutdown = threading.Lock()  # held by who sees to the end of the job
        self.references = References(self.me[1:])
        self.contexts = Contexts(self.me, lambda worker: self.peers.connected(worker))
        self.reactor = Reactor(f"weft rpc {self.me.name}", threads, enter)
        self.payloads = Payloads(self.reactor, lambda pipe: self.peers.widen(pipe))
        self.deletes = PendingDeletes(self.reactor.wake)
        self.calls = Calls(self)
        self.devices = Devices(self.me, device_maps)
        self.leaving = Leaving(self)
        self.traffic = Traffic()
        self.tracing = Tracer(self)
        self._controls = controls
        self._closing = threading.Lock()
        self.reactor.on_timer = self._look_at_the_clock
        try:
            self.peers = Peers(workers, self.reactor, self, connecting, self._introduce)  # from here on others may call
        except BaseException:
            self.reactor.close(_GRACE)
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
        self.reactor.close(_GRACE if seconds is None else min(_GRACE, max(seconds, _LEAST_GRACE)))
        self.calls.fail(None, f"{self.me} has left the job before its call to itself was done")

    # --- what goes out ---

    def call(self, to: WorkerInfo, function: Any, args: Any, kwargs: Any, seconds: float | None = None) -> Call:
        """Begin a call of a user's function."""
        context = current_context()
        content = (function, args, kwargs) if context is None else (function, args, kwargs, context.id)
        return self._begin(to, None, content, self.seconds if seconds is None else seconds)

    def ask(self, to: WorkerInfo, request: Request[*Args], *args: *Args, limit: float | None = None) -> Call:
        """Begin a call of a control, which its worker runs at once."""
        return self._begin(to, request, (request.name, args), self.seconds if limit is None else limit)

    def tell(self, to: WorkerInfo, note: Note[*Args], *args: *Args, sending: Pipe | None = None) -> None:
        """Have a control run that has no answer: in a moment, or with what `sending` is about to send.

        Who has gone needs not be told.
        """
        if to == self.me:
            note(self, *args)
            return
        try:
            pipe = self.peers.known(to) or self.peers.reach(to, self.seconds)
        except RpcError:
            return
        self.traffic.count(to, made=1)
        pipe.put(Frame.NOTE, 0, pack((note.name, args), self.devices.of_callee(to))[0])
        if pipe is not sending:
            self.reactor.call_soon(partial(self.reactor.flush, pipe))

    def wait(self, future: Future[Any], limit: float | None) -> Any:
        """The value of any future, within some seconds (None: the default, 0: no limit)."""
        limit = self.seconds if limit is None else limit
        if not future.done():
            waiter: Waiter = SimpleQueue()
            future._ring(waiter)
            self.reactor.yield_leadership()
            try:
                waiter.get(timeout=limit or None)
            except Empty:
                raise late_error(limit) from None
        return future.value()

    def _begin(self, to: WorkerInfo, request: Request[*tuple[Any, ...]] | None, content: Any, seconds: float) -> Call:
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
        kind = _CALL if request is None else request.kind
        if kind != _UNCOUNTED:
            self.traffic.count(to, made=1)
        number, call_type, marked = next(self.calls.numbers), Call, kind
        if self.tracing.active:
            call_type, marked, buffers = self.tracing.outgoing(to, request, kind, number, content, body, buffers)
        if pipe is not None and self.deletes:
            self.deletes.send(self.tell, pipe)
        call = self.calls.at(pipe)[number] = call_type(self, pipe, seconds)
        if pipe is None:
            self._take(None, marked, number, body, buffers)
        else:
            self._put(pipe, to, marked, number, body, buffers)
            if context is not None and context.over:  # it was released meanwhile
                self.tell(to, release, context.id)
        if call.end is not None and call.end < self.calls.next_end:
            self.calls.watch(call.end)
        return call

    def _put(self, pipe: Pipe, to: WorkerInfo, kind: int, number: int, body: bytes, buffers: list[memoryview]) -> None:
        """Put a call down that waits for its answer."""
        try:
            self.payloads.put(pipe, kind, number, body, buffers)
        except BaseException:  # too long, or no memory to lend
            pipe.calls.pop(number, None)
            self.traffic.count(to, made=-(kind != _UNCOUNTED))
            raise
        if pipe.close_reason is not None:  # it was lost meanwhile
            self._fail_calls(pipe)
            self.references.lost(to[1:])

    def _introduce(self, to: WorkerInfo, pipe: Pipe) -> None:
        """Put what a callee is to know before anything else: the device map by which its answers come back."""
        if device_map := self.devices.told_to(to):
            pipe.put(Frame.DEVICES, 0, pack(device_map, self.devices.of_callee(to))[0])

    def expect(self, owned: Owned) -> Owned:
        """A value of this worker that was asked for; see that its creator lives where that has not told of it yet."""
        if not owned.created:
            self.reactor.run(partial(self._look_for, *owned.id.creator))
        return owned

    def _look_for(self, number: int, incarnation: int) -> None:
        """Give up what a worker was to create, unless that lives: then its loss is told."""
        try:
            worker = self.workers.find(number)
            if worker is not None and worker != self.me and self.peers.known(worker) is None:
                worker = self.workers.find_again(worker)
            if worker is not None and worker.incarnation == incarnation and worker != self.me:
                self.peers.reach(worker, self.seconds)
                return
        except RpcTimeoutError:
            return  # it is there
        except RpcError:
            pass
        self.references.lost((number, incarnation))

    def _look_at_the_clock(self) -> float | None:
        """Do what is due; returns the seconds until something else is."""
        self.calls.expire()
        if monotonic() >= self.deletes.due:
            self.deletes.send(self.tell)
        due = min(self.calls.next_end, self.deletes.due)
        return None if due == NEVER else max(0.0, due - monotonic())

    # --- what comes ---

    def received(self, pipe: Pipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> None:
        """A frame has come."""
        if kind & LONG or kind == _CHUNK:
            try:
                parcel = self.payloads.take(pipe, kind, number, body, buffers)
            except DistNetworkError as error:
                pipe.close(str(error))
                return
            if parcel is not None:
                self._arrived(parcel.pipe, parcel.kind, parcel.number, parcel.body, parcel.buffers)
                if parcel.pipe is not pipe:
                    parcel.pipe.wake()
        elif pipe.main is pipe:
            self._arrived(pipe, kind, number, body, buffers)
        else:
            pipe.close("it sent more than chunks where these belong")

    def _arrived(self, pipe: Pipe, kind: int, number: int, body: Bytes, taken: list[Any]) -> None:
        if kind in _ANSWERS:
            self.calls.answer(pipe, kind, number, body, taken)
        elif kind in _CALLS or (kind in _TRACED_CALLS and taken):
            if not self.closing:  # else the caller is about to see that this worker has left
                self._take(pipe, kind, number, body, taken)
        elif kind == Frame.RETURN:
            self.payloads.take_back(pipe, number)
        elif kind == Frame.NOTE:
            if self._followed(pipe, lambda: self._noted(body)):
                self.traffic.count(self.peers.at(pipe), served=1)
        elif kind == Frame.DEVICES:
            self._followed(pipe, lambda: self.devices.heard(pipe, unpack(body, ())))
        else:
            pipe.close(f"it sent a frame of the unknown kind {kind}")

    def _noted(self, body: Bytes) -> None:
        name, args = unpack(body, ())
        self._control(name, Frame.NOTE).function(self, *args)

    def _followed(self, pipe: Pipe, follow: Callable[[], object]) -> bool:
        try:
            follow()
        except Exception as error:  # there is no answer to say so
            pipe.close(f"it sent a note that cannot be followed: {error!r}")
        return pipe.close_reason is None

    def _take(self, pipe: Pipe | None, kind: int, number: int, body: Bytes, buffers: Sequence[Any]) -> None:
        """Run what is asked for: a user's function in its turn, controls at once."""
        caller, span = self.me if pipe is None else self.peers.at(pipe), None
        if kind & _TRACED:
            *buffers, trace = buffers
            kind &= ~_TRACED
            span = self.tracing.incoming(caller, number, bytes(trace))
        reply = Reply(self, pipe, caller, kind, number, span)
        if kind == _CALL:
            reply.run_in_turn(serve, body, buffers)
        else:
            reply.run(self._requested, body, buffers)

    def _requested(self, reply: Reply, body: Bytes, buffers: Sequence[Any]) -> None:
        name, args = unpack(body, buffers)
        self._control(name, reply.kind).function(reply, *args)

    def _control(self, name: str, kind: int) -> Any:
        control = self._controls.get(name)
        if control is None or control.kind != kind:
            raise RpcError(f"{self.me} has no control {name!r} for frames of the kind {kind}")
        return control

    def run(self, function: Callable[..., None], *args: Any) -> None:
        """Have a function run in its turn. What it leaves to be computed is started when nothing else is to be done."""
        self.reactor.run(partial(self._run, function, *args))

    def _run(self, function: Callable[..., None], *args: Any) -> None:
        function(*args)
        if not self.reactor.busy:
            with suppress(Exception):  # it is raised where the value is needed
                flush_pending()

    def answer(self, reply: Reply, kind: int, body: bytes, buffers: Sequence[memoryview]) -> None:
        """Send what answers a request."""
        pipe = reply.pipe
        if pipe is None:
            self.calls.answer(None, kind, reply.number, body, buffers)
        else:
            self.payloads.put(pipe, kind, reply.number, body, buffers)
            if pipe.close_reason is not None:  # nobody is there any more to have what the answer refers to
                self.references.lost(reply.caller[1:])
                find_makers(self)
            elif self.reactor.busy:
                self.reactor.call_soon(partial(self.reactor.flush, pipe))  # more answers are about to follow
            else:
                self.reactor.flush(pipe)
        if reply.kind != _UNCOUNTED:
            self.traffic.count(reply.caller, served=1)

    # --- who is lost ---

    def lost(self, pipe: Pipe) -> None:
        """A peer has gone: its calls fail, and no others."""
        peer = self.peers.forget(pipe)
        if peer is None:
            return
        self.payloads.forget(pipe)
        self.devices.forget(pipe)
        self._fail_calls(pipe)
        if self.closing:
            return
        self.workers.forget(peer)
        self.traffic.lost(peer)
        self.references.lost(peer[1:])
        self.tracing.lost(peer)
        for context in self.contexts.lost(peer):
            release(self, context)
        find_makers(self)
        self.leaving.lost(peer)

    def _fail_calls(self, pipe: Pipe) -> None:
        self.calls.fail(
            pipe,
            f"{self.me} has left the job before worker {pipe.peer} answered"
            if self.closing
            else f"worker {pipe.peer} was lost while {self.me.name} waited for it: {pipe.close_reason}",
        )

    # --- figures ---

    def get_debug_info(self) -> dict[str, str]:
        """Figures of this worker under PyTorch's names, as texts."""
        idle = max(0, self.reactor.threads - self.reactor.running)
        return {
            "agent.thread_pool_size": str(self.reactor.workers),
            "agent.num_idle_threads": str(idle),
            "agent.num_pending_requests": str(len(self.calls.pending())),
        }

    def get_worker_info(self, name: str | None = None) -> WorkerInfo:
        """The worker of this name, or this one. `RuntimeError` where there is none."""
        worker = self.me if name is None else self.workers.find(name)
        if worker is None:
            raise RpcError(f"unknown destination worker {name}")
        return worker

    def get_worker_infos(self) -> list[WorkerInfo]:
        """The workers of the job, by number."""
        return self.workers.known()

    def counts(self) -> Counts:
        """What this worker reports at the end: the calls that it has made and served, and the functions that run."""
        return self.traffic.counts(self.reactor.running)

    def figures(self) -> dict[str, int]:
        """How many threads there are, functions that run, calls that wait for answers, and connections."""
        return {
            "num_threads": self.reactor.threads,
            "num_running": self.reactor.running,
            "num_pending_calls": len(self.calls.pending()),
            "num_connections": len(self.peers),
        }
