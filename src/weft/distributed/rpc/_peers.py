"""The connections of a worker: opened when it first calls another one, and accepted from callers."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakKeyDictionary

from weft._comm.deadline import Deadline
from weft._comm.transport.acceptor import Channel
from weft._comm.transport.pipe import CallPipe, FrameHandler
from weft._comm.transport.reactor import Reactor
from weft.distributed.rpc._errors import timeout_error
from weft.distributed.rpc._listener import OBSERVER, ConnectOptions, Listener, MemoryListener, connect
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DistNetworkError, LostWorkerError, PeerGoneError, RpcError, RpcTimeoutError

_MOST_SECONDS = 60.0  # for making a connection
_IDENTITY = re.compile(r"(\d+) (\S+)(?: (\d+)( lane)?)?")  # a caller's number, name and incarnation
_LANES = 3  # further connections to a peer on another host, for long buffers
_MOMENT = 5.0  # seconds that a lane waits for its connection to be accepted


class Peers:
    """Pipes to and from other workers; `owner` handles their frames.

    `on_connect(worker, pipe)` queues the first frames of a pipe by which this worker calls another one.
    """

    def __init__(
        self,
        workers: Workers,
        reactor: Reactor,
        owner: FrameHandler,
        options: ConnectOptions,
        on_connect: Callable[[WorkerInfo, CallPipe], None],
    ) -> None:
        self._workers = workers
        self._reactor = reactor
        self._owner = owner
        self._outgoing: dict[WorkerInfo, CallPipe] = {}  # pipes to workers that this one calls
        self._worker_at: dict[CallPipe, WorkerInfo] = {}  # the worker at the other end, for all pipes
        self._workers_of: WeakKeyDictionary[CallPipe, WorkerInfo] = WeakKeyDictionary()  # including lost pipes
        self._ended: set[WorkerInfo] = set()  # workers that will never answer again
        self._closed = False
        self._observers: set[CallPipe] = set()  # connections of observers, which are not workers
        self._closed_bytes = (0, 0)  # bytes received and sent through lost pipes
        self._accepted = threading.Condition()
        self._with_lanes: set[CallPipe] = set()  # pipes that have lanes, or will have them
        self._connecting: defaultdict[WorkerInfo, threading.Lock] = defaultdict(threading.Lock)  # by callee
        self._options = options
        self._on_connect = on_connect
        self.listener = MemoryListener(self._accept) if options.in_memory else Listener(options, self._accept)

    def __len__(self) -> int:
        return len(self._worker_at)

    def outgoing(self) -> list[CallPipe]:
        """The pipes by which this worker calls others."""
        return list(self._outgoing.values())

    def existing(self, to: WorkerInfo) -> CallPipe | None:
        """The pipe to a worker, if there is one."""
        return self._outgoing.get(to)

    def connected(self, worker: WorkerInfo) -> bool:
        """Whether there is a pipe to or from a worker."""
        return worker in self._worker_at.values()

    def reach(self, to: WorkerInfo, seconds: float) -> CallPipe:
        """The pipe to a worker, made within this many seconds (0: the longest time for a connection).

        `RuntimeError` if it cannot be reached; `RpcTimeoutError` if the worker exists but does not answer.
        """
        deadline = Deadline(min(seconds, _MOST_SECONDS) if seconds else _MOST_SECONDS)
        # By callee: a worker that does not answer must not hold up first calls to others.
        lock = self._connecting[to]
        if not lock.acquire(timeout=deadline.left() or 0):
            raise self._timeout(to, deadline)
        try:
            return self._outgoing.get(to) or self._connect(to, deadline)
        finally:
            lock.release()

    def at(self, pipe: CallPipe) -> WorkerInfo:
        """The worker at the other end, even of a lost pipe, since frames received before its end are still counted."""
        return self._workers_of.get(pipe) or WorkerInfo(pipe.peer, -1)

    def forget(self, pipe: CallPipe) -> WorkerInfo | None:
        """Remove a lost pipe; returns its worker, or None if it was removed before or is not a worker's pipe."""
        if pipe in self._observers:
            self._observers.discard(pipe)
            self._reactor.remove(pipe)
            return None
        # Chunks that were on a lost lane cannot come any more, so the frames that wait for them never become complete:
        # the connection goes with its lane.
        if pipe.main is not pipe:
            self._reactor.remove(pipe)
            pipe.main.close(str(pipe.close_reason))
            return None
        worker = self._worker_at.pop(pipe, None)
        if worker is None:
            return None
        lanes, pipe.lanes = pipe.lanes, ()
        for lane in lanes:
            lane.close(str(pipe.close_reason))
        self._with_lanes.discard(pipe)
        self._closed_bytes = self._closed_bytes[0] + pipe.bytes_in, self._closed_bytes[1] + pipe.bytes_out
        if self._outgoing.get(worker) is pipe:
            del self._outgoing[worker]
        self._reactor.remove(pipe)
        return worker

    def add_lanes(self, pipe: CallPipe) -> None:
        """Open lanes for long buffers soon, if by this pipe this worker calls one on another host."""
        # Only the caller can open them, since it has the endpoint of the callee. They are made on first use: most
        # connections never carry a long buffer.
        if not pipe.same_host and pipe.main is pipe and pipe not in self._with_lanes:
            worker = self._worker_at.get(pipe)
            self._with_lanes.add(pipe)
            if worker is not None and self._outgoing.get(worker) is pipe:
                self._reactor.run(lambda: self._open_lanes(worker, pipe))

    def _open_lanes(self, worker: WorkerInfo, pipe: CallPipe) -> None:
        deadline, endpoint = Deadline(_MOST_SECONDS), self._workers.endpoint(worker)
        with suppress(DistNetworkError, OSError):  # it then works without lanes
            while endpoint is not None and len(pipe.lanes) < _LANES and pipe.close_reason is None:
                self._add_lane(pipe, connect(endpoint, self._options, f"{self._me()} lane", deadline))

    def _add_lane(self, pipe: CallPipe, channel: Channel) -> None:
        lane = CallPipe(channel.sock, self._owner, pipe.peer, channel.session, channel.tls, pipe)
        pipe.lanes = (*pipe.lanes, lane)
        self._reactor.add(lane, serve=True)
        if pipe.close_reason is not None:  # the connection was lost meanwhile
            lane.close(pipe.close_reason)

    def _me(self) -> str:
        me = self._workers.me
        return f"{me.id} {me.name} {me.incarnation}"

    def traffic(self) -> tuple[int, int]:
        """The bytes received from other workers, and sent to them."""
        pipes = list(self._worker_at)
        return (
            self._closed_bytes[0] + sum(pipe.bytes_in for pipe in pipes),
            self._closed_bytes[1] + sum(pipe.bytes_out for pipe in pipes),
        )

    def close(self) -> None:
        """Close all pipes, and accept no more."""
        self._closed = True
        self.listener.close()
        for pipe in [*self._worker_at, *self._observers]:
            pipe.close("this worker has left")
            pipe.free()

    def _connect(self, to: WorkerInfo, deadline: Deadline) -> CallPipe:
        me = self._workers.me
        if self._closed:
            raise RpcError(f"{me} has left the job, and cannot call {to}")
        if to in self._ended:
            raise LostWorkerError(f"{me} cannot reach {to}: its process has ended")
        endpoint = self._workers.endpoint(to)
        if endpoint is None:
            raise LostWorkerError(f"{to} has left the job; {me} cannot call it")
        try:
            channel = connect(endpoint, self._options, self._me(), deadline)
        except TimeoutError:
            raise self._timeout(to, deadline) from None
        except (DistNetworkError, OSError) as error:
            text = f"{me} cannot reach {to}: {error}"
            # A process that has ended never comes back under this incarnation; any other failure, as of the network,
            # may pass.
            if not isinstance(error, PeerGoneError):
                raise RpcError(text) from error
            self._ended.add(to)
            self._workers.forget(to)
            raise LostWorkerError(text) from error
        pipe = CallPipe(channel.sock, self._owner, to.name, channel.session, channel.tls)
        self._worker_at[pipe] = self._workers_of[pipe] = to
        self._outgoing[to] = pipe
        self._on_connect(to, pipe)
        self._reactor.add(pipe, serve=False)
        return pipe

    def _timeout(self, to: WorkerInfo, deadline: Deadline) -> RpcTimeoutError:
        detail = f"{self._workers.me} cannot reach {to}, whose process is stopped, or too busy"
        return timeout_error(deadline.seconds or 0.0, detail)

    def _accept(self, channel: Channel) -> None:
        """Accept a caller or an observer; other connections, such as liveness checks, are closed."""
        identity = channel.identity
        match = _IDENTITY.fullmatch(identity)
        if self._closed or (identity != OBSERVER and match is None):
            channel.sock.close()
            return
        caller = WorkerInfo(match[2], int(match[1]), int(match[3] or 0)) if match else None
        # A lane may arrive before its main connection, and must wait for it; accepting must not block.
        if match and match[4]:
            self._reactor.run(lambda: self._accept_lane(channel, caller))
            return
        pipe = CallPipe(channel.sock, self._owner, match[2] if match else identity, channel.session, channel.tls)
        if caller is None:
            self._observers.add(pipe)
        else:
            with self._accepted:
                self._worker_at[pipe] = self._workers_of[pipe] = caller
                self._accepted.notify_all()
        self._reactor.add(pipe, serve=True)

    def _accept_lane(self, channel: Channel, caller: WorkerInfo | None) -> None:
        """Accept a lane; its connection may not be accepted yet."""

        def main() -> CallPipe | None:
            # Two workers that call each other have a connection for each direction; lanes belong to the one by which
            # the other calls.
            mine = set(self._outgoing.values())
            return next((pipe for pipe, at in list(self._worker_at.items()) if at == caller and pipe not in mine), None)

        with self._accepted:
            main_pipe = self._accepted.wait_for(main, _MOMENT)
        if main_pipe is None or len(main_pipe.lanes) == _LANES:
            channel.sock.close()
        else:
            self._add_lane(main_pipe, channel)
