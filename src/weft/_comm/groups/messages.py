"""Messages between pairs of ranks: sends and receives that are under way together.

Each ordered pair of ranks has a stream of bytes, through which messages come in order. A thread that waits, here or in
a collective, moves all messages that can move, so sends and receives may be started in any order. An unexpected
message, one without a posted receive, is kept in private memory; those of one source and tag are received in the order
sent.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from threading import Lock

import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.groups.stream import PeerGroup
from weft.errors import ArgumentError, DistBackendError

Array = np.ndarray

_HEAD = struct.Struct("<qq32s")  # tag, bytes, element type


class MessageRequest:
    """A send or receive under way. `peer` is None for a receive from any rank, until a message has come."""

    __slots__ = ("data", "done", "error", "head", "moved", "peer", "tag", "text")

    def __init__(self, text: str, array: Array, peer: int | None, tag: int) -> None:
        if not array.flags.c_contiguous:
            raise ArgumentError("arrays must be contiguous to be sent or received")
        self.text = text
        self.peer = peer
        self.tag = tag
        self.done = False
        self.error: str | None = None
        self.data = array.reshape(-1).view(np.uint8)
        self.head = _HEAD.pack(tag, array.nbytes, array.dtype.name.encode())
        self.moved = 0


class _IncomingMessage:
    """A message of which the head has arrived, and the receive that it matches, once there is one."""

    __slots__ = ("data", "head", "moved", "request", "source", "tag")

    def __init__(self, source: int, head: bytes) -> None:
        self.source = source
        self.head = head
        self.tag, size, _ = _HEAD.unpack(head)
        self.data: Array = np.empty(size, np.uint8)
        self.moved = 0
        self.request: MessageRequest | None = None

    def matches(self, request: MessageRequest) -> bool:
        return request.tag == self.tag and request.peer in (None, self.source)

    def take(self, request: MessageRequest, ranks: Sequence[int]) -> None:
        """Match the message with a receive: bytes that arrive from now on go straight into its array."""
        self.request = request
        request.peer = self.source
        if request.head != self.head:
            sent, expected = _described(self.head), _described(request.head)
            request.error = f"{request.text}: rank {ranks[self.source]} sent {sent}, expected {expected}"
        else:
            request.data[: self.moved] = self.data[: self.moved]
            self.data = request.data


class Messages:
    """Sends and receives of one rank. Any thread may call."""

    def __init__(self, group: PeerGroup) -> None:
        self.group = group
        ranks = range(group.size)
        self._lock = Lock()
        self._targets = [group.outgoing(peer) for peer in ranks]
        self._sources = [group.incoming(peer) for peer in ranks]
        self._sends: list[deque[MessageRequest]] = [deque() for _ in ranks]
        self._incoming: list[_IncomingMessage | None] = [None] * group.size
        self._unexpected: list[_IncomingMessage] = []  # in the order of arrival
        self._posted: list[MessageRequest] = []  # receives without a message, in the order of starting
        group.progress = self.progress

    def send(self, array: Array, target: int, tag: int = 0) -> MessageRequest:
        """Begin to send. `array` must stay as it is until the request is done: all of it is on the way."""
        text = f"send to rank {self.group.ranks[self._rank(target)]} with tag {tag}"
        self.group.check(text)
        request = MessageRequest(text, array, target, tag)
        with self._lock:
            self._sends[target].append(request)
        self.progress()
        return request

    def receive(self, array: Array, source: int | None = None, tag: int = 0) -> MessageRequest:
        """Begin to receive into `array`, from any rank where `source` is None."""
        origin = "any rank" if source is None else f"rank {self.group.ranks[self._rank(source)]}"
        text = f"receive from {origin} with tag {tag}"
        self.group.check(text)
        if not array.flags.writeable:
            raise ArgumentError("the array to write into is read-only")
        request = MessageRequest(text, array, source, tag)
        with self._lock:
            # A message that came before its receive was posted waits among the unexpected ones, in the order of its
            # sender.
            arrival = next((arrival for arrival in self._unexpected if arrival.matches(request)), None)
            if arrival is None:
                self._posted.append(request)
            else:
                self._unexpected.remove(arrival)
                arrival.take(request, self.group.ranks)
                self._finish(arrival)
        self.progress()
        return request

    def wait(self, request: MessageRequest, deadline: Deadline) -> None:
        """Return once a request is done; a `DistBackendError` where its peer ends, or does not come in time."""
        if not request.done:
            self.group.check(request.text)
            others = [rank for rank in range(self.group.size) if rank != self.group.rank]
            peers = (others or [self.group.rank]) if request.peer is None else [request.peer]
            self.group.wait(lambda: () if request.done else peers, request.text, deadline)
        if request.error is not None:
            raise DistBackendError(request.error)

    def progress(self) -> bool:
        """Move what can move now; whether anything did."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread is at it
        try:
            moved = False
            for peer, sends in enumerate(self._sends):
                while sends and self._push(peer, sends[0]):
                    moved = True
                    if sends[0].done:
                        sends.popleft()
            for peer in range(self.group.size):
                while self._pull(peer):
                    moved = True
            return moved
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of the group's memory; requests under way stay undone."""
        with self._lock:
            self.group.progress = lambda: False
            for queue in (self._targets, self._sources, self._sends, self._incoming, self._unexpected, self._posted):
                queue.clear()

    def _push(self, peer: int, request: MessageRequest) -> bool:
        ring = self._targets[peer]
        begun = request.moved
        if begun < _HEAD.size:
            request.moved += ring.write(np.frombuffer(request.head, np.uint8)[begun:])
        if request.moved >= _HEAD.size:
            request.moved += ring.write(request.data[request.moved - _HEAD.size :])
        request.done = request.moved == _HEAD.size + len(request.data)
        return request.moved > begun

    def _pull(self, peer: int) -> bool:
        ring, arrival = self._sources[peer], self._incoming[peer]
        if arrival is None:
            if ring.ready() < _HEAD.size:
                return False
            head = np.empty(_HEAD.size, np.uint8)
            ring.take(head)
            arrival = self._incoming[peer] = self._match(peer, head.tobytes())
        begun = arrival.moved
        arrival.moved += ring.take(arrival.data[begun:])
        if arrival.moved == len(arrival.data):
            self._incoming[peer] = None
            self._finish(arrival)
            return True
        return arrival.moved > begun

    def _match(self, peer: int, head: bytes) -> _IncomingMessage:
        arrival = _IncomingMessage(peer, head)
        request = next((request for request in self._posted if arrival.matches(request)), None)
        if request is None:
            self._unexpected.append(arrival)
        else:
            self._posted.remove(request)
            arrival.take(request, self.group.ranks)
        return arrival

    def _finish(self, arrival: _IncomingMessage) -> None:
        """Finish the receive of a message that has come completely."""
        if arrival.request is not None and arrival.moved == len(arrival.data):
            arrival.request.done = True

    def _rank(self, peer: int) -> int:
        if not 0 <= peer < self.group.size:
            raise ArgumentError(f"{peer} is not a rank of a group of {self.group.size}")
        return peer


def _described(head: bytes) -> str:
    _, size, dtype = _HEAD.unpack(head)
    return f"{size} bytes of {dtype.rstrip(bytes(1)).decode()}"
