"""The agent of a worker: it sends this worker's calls, runs the calls of others, and sends the answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TypeVarTuple

from weft._base.capture import active_capture
from weft._base.timeline import Phase, spanned
from weft._base.types import AnyCallable, Arg, Result
from weft._comm.transport.pipe import Bytes, CallPipe
from weft._comm.transport.reactor import Reactor
from weft._comm.transport.reader_lock import Waiter
from weft._lazy.flushing import flush_pending
from weft.distributed.rpc._call import NEVER, PendingCall, PendingCalls
from weft.distributed.rpc._call_counts import CallCounter, Counts
from weft.distributed.rpc._context_release import check_creators, release
from weft.distributed.rpc._contexts import Contexts, PassContext, current_context
from weft.distributed.rpc._devices import DeviceMaps, Maps
from weft.distributed.rpc._errors import timeout_error
from weft.distributed.rpc._listener import ConnectOptions
from weft.distributed.rpc._message import Buffer, Receiver, pack, unpack
from weft.distributed.rpc._payloads import LONG_FLAGS, Payloads
from weft.distributed.rpc._peers import Peers
from weft.distributed.rpc._pending_deletes import PendingDeletes
from weft.distributed.rpc._protocol import AnyReply, AnyRequest, Control, Frame, Mark, Note, Reply, Request
from weft.distributed.rpc._references import OwnedValue, References
from weft.distributed.rpc._service import serve
from weft.distributed.rpc._shutdown_state import ShutdownState
from weft.distributed.rpc._trace.recording import CallTracer
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DistNetworkError, RpcError, RpcTimeoutError
from weft.futures import Future, waiting_for

Args = TypeVarTuple("Args")

_GRACE, _LEAST_GRACE = 5.0, 0.2  # seconds that running functions are given at the end; after the deadline
_CALL, _UNCOUNTED, _CHUNK, _TRACED = int(Frame.CALL), int(Frame.UNCOUNTED), int(Frame.CHUNK), int(Mark.TRACED)
_ANSWERS = int(Frame.ANSWER), int(Frame.ERROR)
_CALLS = _CALL, int(Frame.REQUEST), _UNCOUNTED
_TRACED_CALLS = Frame.CALL | Mark.TRACED, Frame.REQUEST | Mark.TRACED


class Agent:
    """The calls to and from one worker.

    `controls` are the functions of this package that peers may call. `size` is the number of workers, or None if
    workers may join and leave at any time. Threads of the agent first call `enter()`.
    """

    def __init__(
        self,
        workers: Workers,
        *,
        threads: int,
        seconds: float,
        connect_options: ConnectOptions,
        size: int | None,
        device_maps: Maps,
        controls: Mapping[str, Control],
        enter: Callable[[], None],
    ) -> None:
        self.me = workers.me
        self.workers = workers
        self.seconds = seconds
        self.size = size
        self.closing = False
        self.shutdown = threading.Lock()  # held by the thread that runs `shutdown`
        self.references = References(self.me[1:])
        # Lambdas, as `peers` is made last: once it listens, other workers may call this one, and everything that serves
        # them must exist by then.
        self.contexts = Contexts(self.me, lambda worker: self.peers.connected(worker))
        self.reactor = Reactor(f"weft rpc {self.me.name}", threads, enter)
        self.payloads = Payloads(self.reactor, lambda pipe: self.peers.add_lanes(pipe))
        self.deletes = PendingDeletes(self.reactor.wake)
        self.calls = PendingCalls(self.me, self.reactor, lambda: self.peers.outgoing(), self.read)
        self.devices = DeviceMaps(self.me, device_maps)
        self.shutdown_state = ShutdownState(self)
        self.call_counts = CallCounter()
        self.tracing = CallTracer(self.me, self.tell)
        self._controls = controls
        self._closing = threading.Lock()
        self.reactor.on_timer = self._run_timers
        try:
            self.peers = Peers(
                workers, self.reactor, self, connect_options, self._send_device_map
            )  # from here on, other workers may call this one
        except BaseException:
            self.reactor.close(_GRACE)
            raise

    def close(self, seconds: float | None = None) -> None:
        """Leave at once; pending calls fail. Running functions get at most `seconds` to end.

        Does nothing if it was called before.
        """
        with self._closing:
            if self.closing:
                return
            self.closing = True
        self.peers.close()
        self.reactor.close(_GRACE if seconds is None else min(_GRACE, max(seconds, _LEAST_GRACE)))
        # Calls through pipes fail when their pipe is closed; those of this worker to itself have none.
        self.calls.fail(None, f"{self.me} has left the job before its call to itself was done")

    # --- sending ---

    def call(
        self, to: WorkerInfo, function: AnyCallable, args: Arg, kwargs: Arg, seconds: float | None = None
    ) -> PendingCall:
        """Start a call of a user's function."""
        context = current_context()
        content = (function, args, kwargs) if context is None else (function, args, kwargs, context.id)
        return self._begin(to, None, content, self.seconds if seconds is None else seconds)

    def ask(self, to: WorkerInfo, request: Request[*Args], *args: *Args, limit: float | None = None) -> PendingCall:
        """Start a call of a control, which the other worker runs at once."""
        return self._begin(to, request, (request.name, args), self.seconds if limit is None else limit)

    def tell(self, to: WorkerInfo, note: Note[Arg, *Args], *args: *Args, sending: CallPipe | None = None) -> None:
        """Call a control that sends no answer: within a moment, or together with the next frames of `sending`.

        Does nothing if the worker is lost.
        """
        if to == self.me:
            note(self, *args)
            return
        try:
            pipe = self.peers.existing(to) or self.peers.reach(to, self.seconds)
        except RpcError:
            return
        self.call_counts.count(to, sent=1)
        # Notes are counted like calls: otherwise workers could leave while a reference is still being given up.
        pipe.put(Frame.NOTE, 0, pack((note.name, args), self.devices.receiver_of_call(to))[0])
        if pipe is not sending:
            self.reactor.call_soon(partial(self.reactor.flush, pipe))

    @spanned(Phase.CALL)
    def wait(self, future: Future[Result], limit: float | None) -> Result:
        """The value of any future, waited for at most `limit` seconds (None: the default, 0: no limit)."""
        limit = self.seconds if limit is None else limit
        if not future.done():
            waiter: Waiter = SimpleQueue()
            future.ring(waiter)
            # If this thread leads, nobody would read the connections while it blocks.
            self.reactor.yield_leadership()
            try:
                with waiting_for(remote=True):
                    waiter.get(timeout=limit or None)
            except Empty:
                raise timeout_error(limit) from None
        return future.value()

    def _begin(self, to: WorkerInfo, request: AnyRequest | None, content: Sequence[Arg], seconds: float) -> PendingCall:
        """Start a call: of a control, or of a user's function if `request` is None."""
        # A replay of a captured function would not repeat the call, so a function that calls another worker is run as
        # it stands each time.
        active_capture().needs_value("a remote call")
        try:
            pipe = None if to == self.me else self.peers.existing(to) or self.peers.reach(to, seconds)
        except RpcError as error:
            failed = PendingCall(self.calls, None, seconds)
            failed.set_exception(type(error)(*error.args))  # the future keeps it, but not the frames that it has passed
            return failed
        context = current_context()
        body, buffers = pack(content, self._receiver(to, context))
        kind = _CALL if request is None else request.kind
        # Counted before it is queued: if an answer could be counted first, a round of the termination detection might
        # find as many calls served as sent while this one is under way.
        if kind != _UNCOUNTED:
            self.call_counts.count(to, sent=1)
        number, call_type = next(self.calls.numbers), PendingCall
        if self.tracing.active:
            call_type, kind, buffers = self.tracing.outgoing(to, request, kind, number, content, body, buffers)
        call = call_type(self.calls, pipe, seconds)
        self.calls.add(number, call)
        if pipe is None:
            self._serve(None, kind, number, body, buffers)
        else:
            self._put(pipe, to, kind, number, body, buffers)
            if context is not None and context.over:  # it was released meanwhile
                self.tell(to, release, context.id)
        return call

    def _receiver(self, to: WorkerInfo, context: PassContext | None) -> Receiver:
        """The receiver of a call, which takes part in the context of distributed autograd if there is one."""
        receiver = self.devices.receiver_of_call(to)
        if context is None:
            return receiver
        context.peers.add(to)
        return receiver._replace(message=context.message())

    def _put(
        self, pipe: CallPipe, to: WorkerInfo, kind: int, number: int, body: bytes, buffers: list[memoryview]
    ) -> None:
        """Queue the frame of a pending call."""
        try:
            # Deletes of references that wait anyhow leave in the same `send`, and cost no message of their own.
            if self.deletes:
                self.deletes.send(self.tell, pipe)
            self.payloads.put(pipe, kind, number, body, buffers)
        # Nothing has left, and no answer will come: a call that stays counted as sent would keep all workers in
        # `shutdown`.
        except BaseException:  # the frame is too long, or there is no memory to lend
            pipe.calls.pop(number, None)
            self.call_counts.count(to, sent=-(kind != _UNCOUNTED))
            raise
        # `lost` may have run before the call was registered, and would then never fail it.
        if pipe.close_reason is not None:  # the connection was lost meanwhile
            self._fail_calls(pipe)
            self.references.lost(to[1:])

    def _send_device_map(self, to: WorkerInfo, pipe: CallPipe) -> None:
        """Queue the first frame for a callee: the device map with which it sends its answers."""
        if device_map := self.devices.map_as_text(to):
            pipe.put(Frame.DEVICES, 0, pack(device_map, self.devices.receiver_of_call(to))[0])

    def expect(self, owned: OwnedValue) -> OwnedValue:
        """A value of this worker that was requested. If it is not created yet, checks that its creator is alive."""
        if not owned.created:
            # Checked in another thread, as it may connect; the requester waits for the value's future.
            self.reactor.run(partial(self._check_creator_lives, *owned.id.creator))
        return owned

    def _check_creator_lives(self, number: int, incarnation: int) -> None:
        """Fail the values that a worker was to create, unless it is alive; then the end of its connection does this."""
        try:
            worker = self.workers.find(number)
            if worker is not None and worker != self.me and self.peers.existing(worker) is None:
                # The creator may have ended and another worker have joined under its name; the latter's incarnation
                # differs, so the value will never be created.
                worker = self.workers.find_again(worker)
            if worker is not None and worker.incarnation == incarnation and worker != self.me:
                self.peers.reach(worker, self.seconds)
                return
        except RpcTimeoutError:
            return  # it has been created
        except RpcError:
            pass
        self.references.lost((number, incarnation))

    def _run_timers(self) -> float | None:
        """Expire calls, and send deletes that are due; returns the seconds until the next of them."""
        self.calls.expire()
        if monotonic() >= self.deletes.due:
            self.deletes.send(self.tell)
        due = min(self.calls.next_end, self.deletes.due)
        return None if due == NEVER else max(0.0, due - monotonic())

    # --- receiving ---

    def received(self, pipe: CallPipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> None:
        """Handle a received frame."""
        if kind & LONG_FLAGS or kind == _CHUNK:
            # The pipe is closed after the `except` block. Otherwise the errors of its calls would have this one as
            # their context, whose frames keep references to other workers' values until a garbage collection.
            frame = wrong = None
            try:
                frame = self.payloads.receive(pipe, kind, number, body, buffers)
            except DistNetworkError as error:
                wrong = str(error)
            if wrong is not None:
                pipe.close(wrong)
            elif frame is not None:
                self._dispatch(frame.pipe, frame.kind, frame.number, frame.body, frame.buffers)
                if frame.pipe is not pipe:
                    frame.pipe.wake()
        elif pipe.main is pipe:
            self._dispatch(pipe, kind, number, body, buffers)
        else:
            pipe.close("it sent more than chunks where these belong")

    def read(self, body: Bytes, buffers: Sequence[Buffer]) -> Result:
        """The contents of a message to this worker."""
        return unpack(body, buffers, self)

    def _dispatch(self, pipe: CallPipe, kind: int, number: int, body: Bytes, buffers: Sequence[Buffer]) -> None:
        if kind in _ANSWERS:
            self.calls.answer(pipe, kind, number, body, buffers)
        # The trace is the last buffer. A peer that marks a call as traced without one is told that the kind is unknown,
        # instead of failing where it is unpacked.
        elif kind in _CALLS or (kind in _TRACED_CALLS and buffers):
            if not self.closing:  # otherwise the caller will notice that this worker has left
                self._serve(pipe, kind, number, body, buffers)
        elif kind == Frame.RETURN:
            self.payloads.take_back(pipe, number)
        elif kind == Frame.NOTE:
            if self._try(pipe, lambda: self._run_note(body)):
                self.call_counts.count(self.peers.at(pipe), served=1)
        elif kind == Frame.DEVICES:
            self._try(pipe, lambda: self.devices.set_caller_map(pipe, self.read(body, ())))
        else:
            pipe.close(f"it sent a frame of the unknown kind {kind}")

    def _run_note(self, body: Bytes) -> None:
        name, args = self.read(body, ())
        self._control(name, Frame.NOTE).function(self, *args)

    def _try(self, pipe: CallPipe, follow: Callable[[], object]) -> bool:
        wrong = None
        try:
            follow()
        except Exception as error:  # a note has no answer that could report it
            wrong = f"it sent a note that cannot be followed: {error!r}"
        if wrong is not None:
            pipe.close(wrong)
        return pipe.close_reason is None

    def _serve(self, pipe: CallPipe | None, kind: int, number: int, body: Bytes, buffers: Sequence[Buffer]) -> None:
        """Run a request: a user's function in the pool of threads, a control at once."""
        caller, span = self.me if pipe is None else self.peers.at(pipe), None
        if kind & _TRACED:
            *buffers, trace = buffers
            kind &= ~_TRACED
            span = self.tracing.incoming(caller, number, bytes(trace))
        reply = Reply(self, pipe, caller, kind, number, span)
        if kind == _CALL:
            reply.run_in_turn(serve, body, buffers)
        else:
            reply.run(self._run_request, body, buffers)

    def _run_request(self, reply: Reply[Agent], body: Bytes, buffers: Sequence[Buffer]) -> None:
        name, args = self.read(body, buffers)
        self._control(name, reply.kind).function(reply, *args)

    def _control(self, name: str, kind: int) -> Result:
        # A peer names the function, so it can only reach what is in the table, and only in the form in which it was
        # meant to be called.
        control = self._controls.get(name)
        if control is None or control.kind != kind:
            raise RpcError(f"{self.me} has no control {name!r} for frames of the kind {kind}")
        return control

    def run(self, function: Callable[..., None], *args: Arg) -> None:
        """Run a function in the pool. Its pending computations are started once no other function is waiting."""
        self.reactor.run(partial(self._run, function, *args))

    def _run(self, function: Callable[..., None], *args: Arg) -> None:
        function(*args)
        # After the answer, since the caller does not wait for what its function has only recorded, as an optimizer's
        # step. While other functions wait, their computations are started together with these.
        if not self.reactor.busy:
            with suppress(Exception):  # the error is raised where the value is used
                flush_pending()

    def answer(self, reply: AnyReply, kind: int, body: bytes, buffers: Sequence[memoryview]) -> None:
        """Send the answer to a request."""
        pipe = reply.pipe
        if pipe is None:
            self.calls.answer(None, kind, reply.number, body, buffers)
        else:
            self.payloads.put(pipe, kind, reply.number, body, buffers)
            # References in the answer were counted as sent; the caller's end has been handled before, so nobody else
            # would release them.
            if pipe.close_reason is not None:  # nobody will hold the references in the answer
                self.references.lost(reply.caller[1:])
                check_creators(self)
            elif self.reactor.busy:
                self.reactor.call_soon(partial(self.reactor.flush, pipe))  # more answers may follow at once
            else:
                self.reactor.flush(pipe)
        # After the answer is queued: as soon as a call counts as served, the workers may agree that nothing is under
        # way, and leave.
        if reply.kind != _UNCOUNTED:
            self.call_counts.count(reply.caller, served=1)

    # --- lost workers ---

    def lost(self, pipe: CallPipe) -> None:
        """Handle the end of a connection: the calls to its peer fail."""
        # Each end of a connection closes by itself, and several threads may notice it; only the first one goes on.
        peer = self.peers.forget(pipe)
        if peer is None:
            return
        self.payloads.forget(pipe)
        self.devices.forget(pipe)
        self._fail_calls(pipe)
        if self.closing:
            return
        self.workers.forget(peer)
        self.call_counts.lost(peer)
        self.references.lost(peer[1:])
        self.tracing.lost(peer)
        for context in self.contexts.lost(peer):
            release(self, context)
        check_creators(self)
        self.shutdown_state.lost(peer)

    def _fail_calls(self, pipe: CallPipe) -> None:
        self.calls.fail(
            pipe,
            f"{self.me} has left the job before worker {pipe.peer} answered"
            if self.closing
            else f"worker {pipe.peer} was lost while {self.me.name} waited for it: {pipe.close_reason}",
        )

    # --- statistics ---

    def get_debug_info(self) -> dict[str, str]:
        """Statistics of this worker under PyTorch's names, as texts."""
        idle = max(0, self.reactor.threads - self.reactor.running)
        return {
            "agent.thread_pool_size": str(self.reactor.workers),
            "agent.num_idle_threads": str(idle),
            "agent.num_pending_requests": str(len(self.calls.pending())),
        }

    def get_worker_info(self, name: str | None = None) -> WorkerInfo:
        """The worker of this name, by default this one. `RuntimeError` if there is none."""
        worker = self.me if name is None else self.workers.find(name)
        if worker is None:
            raise RpcError(f"unknown destination worker {name}")
        return worker

    def get_worker_infos(self) -> list[WorkerInfo]:
        """The workers of the job, by number."""
        return self.workers.everybody()

    def counts(self) -> Counts:
        """This worker's report for termination detection: calls sent and served, and running functions."""
        return self.call_counts.counts(self.reactor.running)

    def figures(self) -> dict[str, int]:
        """The numbers of threads, running functions, calls that wait for answers, and connections."""
        return {
            "num_threads": self.reactor.threads,
            "num_running": self.reactor.running,
            "num_pending_calls": len(self.calls.pending()),
            "num_connections": len(self.peers),
        }
