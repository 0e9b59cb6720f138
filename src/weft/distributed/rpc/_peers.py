"""The connections of a worker: made when it first calls another one, and taken from those that call it."""

from __future__ import annotations

import socket
import threading

from weft._comm.deadline import Deadline
from weft._comm.hub import Hub
from weft._comm.pipe import Owner, Pipe
from weft._comm.secure import Secure
from weft.distributed.rpc._place import Place, Ways, reach
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DistNetworkError, RpcError


class Peers:
    """Pipes to and from others; `owner` gets what comes through them."""

    def __init__(self, workers: Workers, hub: Hub, owner: Owner, ways: Ways) -> None:
        self._workers = workers
        self._hub = hub
        self._owner = owner
        self._outgoing: dict[int, Pipe] = {}  # to those that this worker calls
        self._numbers: dict[Pipe, int] = {}  # of who is at the other end, for all pipes
        self._connecting = threading.Lock()
        self._ways = ways
        self.place = Place(ways, self._admit)

    def __len__(self) -> int:
        return len(self._numbers)

    def outgoing(self) -> list[Pipe]:
        """The pipes by which this worker calls others."""
        return list(self._outgoing.values())

    def known(self, to: WorkerInfo) -> Pipe | None:
        """The pipe to a worker, if there is one."""
        return self._outgoing.get(to.id)

    def reach(self, to: WorkerInfo, seconds: float) -> Pipe:
        """The pipe to a worker, made within some seconds (0: no limit); `RuntimeError` where it cannot be."""
        with self._connecting:
            pipe = self._outgoing.get(to.id)
            if pipe is None:
                pipe = self._outgoing[to.id] = self._connected(to, Deadline(seconds or None))
        return pipe

    def at(self, pipe: Pipe) -> WorkerInfo:
        """Who is at the other end."""
        return WorkerInfo(pipe.peer, self._numbers.get(pipe, -1))

    def forget(self, pipe: Pipe) -> WorkerInfo | None:
        """Give up a pipe that is lost; returns who was there, None where that is known already."""
        number = self._numbers.pop(pipe, None)
        if number is None:
            return None
        if self._outgoing.get(number) is pipe:
            del self._outgoing[number]
        self._hub.remove(pipe)
        return WorkerInfo(pipe.peer, number)

    def close(self) -> None:
        """Close all pipes, and take no more."""
        self.place.close()
        for pipe in list(self._numbers):
            pipe.close("this worker has left")
            pipe.free()

    def _connected(self, to: WorkerInfo, deadline: Deadline) -> Pipe:
        me, place = self._workers.me, self._workers.place(to)
        if place is None:
            raise RpcError(f"{to} has left the job; {me} cannot call it")
        try:
            sock, cipher = reach(place, self._ways, f"{me.id} {me.name}", deadline)
        except (DistNetworkError, OSError) as error:
            raise RpcError(f"{me} cannot reach {to}: {error}") from error
        pipe = Pipe(sock, self._owner, to.name, cipher)
        self._numbers[pipe] = to.id
        self._hub.add(pipe, serve=False)
        return pipe

    def _admit(self, sock: socket.socket, cipher: Secure | None, who: str) -> None:
        """A worker has connected, to call this one."""
        number, _, name = who.partition(" ")
        pipe = Pipe(sock, self._owner, name, cipher)
        self._numbers[pipe] = int(number)
        self._hub.add(pipe, serve=True)
