"""The agent of a worker: calls that go out, what comes in, and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any

from weft._comm.hub import Hub
from weft._comm.pipe import Bytes, Pipe
from weft._comm.turn import Bell
from weft.distributed.rpc._contexts import Context, Contexts, current_context, within
from weft.distributed.rpc._devices import Devices, Maps
from weft.distributed.rpc._drops import NEVER, Drops
from weft.distributed.rpc._freight import RETURN, Freight
from weft.distributed.rpc._message import pack, unpack
from weft.distributed.rpc._peers import Peers
from weft.distributed.rpc._place import Ways
from weft.distributed.rpc._references import References
from weft.distributed.rpc._service import called, raised_there, serve
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DistNetworkError, RpcError, RpcTimeoutError
from weft.futures import Future

CALL, CONTROL, UNCOUNTED, NOTE, ANSWER, ERROR = range(1, 7)
"""Kinds of frames: a function of the user, one of this package, one that is not counted as work, one without an answer;
what it returned, what it raised."""

_GRACE = 5.0  # seconds that functions under way are given at the end
_TOGETHER = 50e-6  # seconds within which frames to one peer are sent together


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
            super()._await()
            return
        self._agent.hub.read_until(self.pipe, self.done, self._ring, self.end)
        if not self._done:
            self._agent.expire()
            super()._await()


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
        self.references = References(self.me.id)
        self.contexts = Contexts(self.me)
        self.hub = Hub(f"weft rpc {self.me.name}", threads)
        self.hub.alarm = self._look_at_the_clock
        self.freight = Freight(self.hub)
        self.drops = Drops(self.hub.wake)
        self.controls = controls(self)
        self._devices = Devices(workers, device_maps)
        self._numbers = count(1)
        self._local: dict[int, Call] = {}  # calls to itself
        self._next_end = NEVER  # of any call
        self._counting = threading.Lock()
        self._made = self._served = 0
        self._last_sent = 0.0
        self.peers = Peers(workers, self.hub, self, ways)  # from here on others may call

    def close(self) -> None:
        """Leave at once; calls that wait fail."""
        self.closing = True
        self.peers.close()
        self.hub.close(_GRACE)

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
        """The same, sent at once, without limit and without raising: what goes wrong is in the future."""
        try:
            return self.push(self.control(to, name, *args, limit=0))
        except RpcError as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def note(self, to: WorkerInfo, name: str, *args: Any, sending: Pipe | None = None) -> None:
        """Have a control run that has no answer: in a moment, or with what `sending` is about to send.

        Who has gone needs not be told.
        """
        if to.id == self.me.id:
            getattr(self.controls, name)(*args)
            return
        try:
            pipe = self.peers.known(to) or self.peers.reach(to, self.seconds)
        except RpcError:
            return
        self._count(made=1)
        pipe.put(NOTE, 0, pack((name, args), self._devices.of_callee(to))[0])
        if pipe is not sending:
            self.hub.soon(partial(self.hub.tend, pipe))

    def push(self, call: Call) -> Call:
        """Send a call for which nobody waits now, and see that its answer is read."""
        pipe = call.pipe
        if pipe is not None:
            now = perf_counter()
            if now - self._last_sent > _TOGETHER:
                self._last_sent = now
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
            try:
                bell.get(timeout=limit or None)
            except Empty:
                raise _late(limit) from None
        return future.value()

    def _begin(self, to: WorkerInfo, kind: int, content: Any, seconds: float) -> Call:
        receiver, context = self._devices.of_callee(to), current_context()
        if context is not None:
            context.peers.add(to)
            receiver = receiver._replace(message=context.message())
        body, buffers = pack(content, receiver)
        if kind != UNCOUNTED:
            self._count(made=1)
        number = next(self._numbers)
        if to.id == self.me.id:
            call = self._local[number] = Call(self, None, seconds)
            self._take(None, kind, number, body, buffers)
            self.hub.share()
        else:
            pipe = self.peers.known(to) or self.peers.reach(to, seconds)
            if self.drops:
                self.drops.send(partial(self.note, sending=pipe))
            call = pipe.calls[number] = Call(self, pipe, seconds)
            self.freight.put(pipe, kind, number, body, buffers)
            if pipe.why is not None:
                self._fail_calls(pipe)
        if call.end is not None and call.end < self._next_end:
            self._next_end = call.end
            self.hub.wake()
        return call

    def _look_at_the_clock(self) -> float | None:
        """Do what is due; returns the seconds until something else is."""
        self.expire()
        if monotonic() >= self.drops.due:
            self.drops.send(self.note)
        due = min(self._next_end, self.drops.due)
        return None if due == NEVER else max(0.0, due - monotonic())

    def expire(self) -> None:
        """Fail the calls whose time is over."""
        now = monotonic()
        if now >= self._next_end:
            self._next_end = NEVER
            for calls in self._all_calls():
                for number, call in list(calls.items()):
                    if call.end is not None and call.end <= now and calls.pop(number, None) is not None:
                        call.set_exception(_late(call.seconds))
                    elif call.end is not None:
                        self._next_end = min(self._next_end, call.end)

    def _all_calls(self) -> list[dict[int, Call]]:
        return [self._local, *(pipe.calls for pipe in self.peers.outgoing())]

    def pending(self) -> list[Call]:
        """The calls that wait for answers."""
        return [call for calls in self._all_calls() for call in list(calls.values())]

    # --- what comes ---

    def received(self, pipe: Pipe, kind: int, number: int, body: memoryview, buffers: list[memoryview]) -> None:
        """A frame has come."""
        try:
            kind, taken = self.freight.take(pipe, kind, buffers)
        except DistNetworkError as error:
            pipe.close(str(error))
            return
        if kind == RETURN:
            self.freight.take_back(pipe, number)
        elif kind == NOTE:
            name, args = unpack(body, ())
            getattr(self.controls, name)(*args)
            self._count(served=1)
        elif kind in (ANSWER, ERROR):
            self._answered(pipe.calls, kind, number, body, taken)
        elif kind in (CALL, CONTROL, UNCOUNTED):
            self._take(pipe, kind, number, body, taken)
        else:
            pipe.close(f"it sent a frame of the unknown kind {kind}")

    def lost(self, pipe: Pipe) -> None:
        """A peer has gone: its calls fail, and no others."""
        peer = self.peers.forget(pipe)
        if peer is None:
            return
        self.freight.forget(pipe)
        self._fail_calls(pipe)
        self.workers.forget(peer)
        self.references.lost(peer.id)
        self.contexts.lost(peer.id)
        if not self.closing:
            self.controls.lost(peer)

    def _fail_calls(self, pipe: Pipe) -> None:
        while pipe.calls:
            try:
                _, call = pipe.calls.popitem()
            except KeyError:
                return  # another thread was faster
            call.set_exception(RpcError(f"worker {pipe.peer} was lost while {self.me.name} waited for it: {pipe.why}"))

    def _answered(self, calls: dict[int, Any], kind: int, number: int, body: Bytes, buffers: Sequence[Any]) -> None:
        call = calls.pop(number, None)
        if call is None:
            return  # its time was over
        failed = kind == ERROR
        try:
            found = raised_there(body, buffers) if failed else unpack(body, buffers)
        except BaseException as error:
            failed, found = True, error
        finish = call.set_exception if failed else call.set_result
        if call.has_callbacks:
            self.hub.aside(partial(finish, found))
        else:
            finish(found)

    def _take(self, pipe: Pipe | None, kind: int, number: int, body: Bytes, buffers: Sequence[Any]) -> None:
        """Run what is asked for: a user's function in its turn, others at once."""
        peer = self._devices.of_caller(self.me if pipe is None else self.peers.at(pipe))
        answer = partial(self._answer, pipe, kind, number)
        if kind == CALL:
            self.hub.run(lambda: serve(lambda: called(body, buffers), self.me, peer, answer))
        else:
            serve(lambda: self._controlled(body, buffers), self.me, peer, answer)

    def _controlled(self, body: Bytes, buffers: Sequence[Any]) -> Any:
        name, args = unpack(body, buffers)
        return getattr(self.controls, name)(*args)

    def _answer(
        self, pipe: Pipe | None, asked: int, number: int, well: bool, body: bytes, buffers: list[memoryview]
    ) -> None:
        kind = ANSWER if well else ERROR
        if pipe is None:
            self._answered(self._local, kind, number, body, buffers)
        else:
            self.freight.put(pipe, kind, number, body, buffers)
            if self.hub.busy:
                self.hub.soon(partial(self.hub.tend, pipe))  # more answers are about to follow
            else:
                self.hub.flush(pipe)
        if asked != UNCOUNTED:
            self._count(served=1)

    # --- figures ---

    def _count(self, *, made: int = 0, served: int = 0) -> None:
        with self._counting:
            self._made += made
            self._served += served

    def counts(self) -> tuple[int, int, int]:
        """How many calls this worker has made, how many it has served, and how many functions run."""
        with self._counting:
            return self._made, self._served, self.hub.running

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


def _late(seconds: float) -> RpcTimeoutError:
    return RpcTimeoutError(
        f"RPCErr:1:RPC ran for more than set timeout ({1000 * seconds:.0f} ms) and will now be marked with an error"
    )
