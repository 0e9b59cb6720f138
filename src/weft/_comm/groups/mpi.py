"""Groups connected by MPI: byte streams between ranks, and collective operations on NumPy arrays.

MPI has no timeouts, and lacks many of our types and reductions. So the ranks compare their calls before each operation
(`message_group.py`). Data is sent as bytes, by requests that are tested until they are done, and is reduced here
(`request_collectives.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from time import sleep

import mpi4py
import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.groups.message_group import MessageGroup
from weft._comm.groups.operations import CollectiveCall
from weft._comm.groups.request_collectives import RequestCollectives, Requests
from weft._comm.groups.stream import NO_STREAM, BufferedSource, NoStream
from weft.errors import DistBackendError

mpi4py.rc.finalize = False  # finalizing waits for all ranks, which may never come after a failure: see `finalize`
from mpi4py import MPI  # noqa: E402

Array = np.ndarray

_MOST = 1 << 20  # bytes in one message of a stream
_YIELDS = 1000  # times that the processor is yielded before sleeping
_NAP = 1e-3  # longest sleep, in seconds


class _MpiStream(BufferedSource):
    """Both ends of the streams to and from one peer."""

    def __init__(self, comm: MPI.Comm, peer: int) -> None:
        self._comm = comm
        self._peer = peer
        self._sending = MPI.REQUEST_NULL
        self._unsent = np.empty(0, np.uint8)  # read by MPI until the request is done
        self._buffer = np.empty(0, np.uint8)
        self.moved = False  # whether anything has arrived since this was last reset

    def write(self, data: Array) -> int:
        """Write as many bytes as fit; returns their number."""
        if not len(data) or not self._sending.Test():
            return 0
        self._unsent = data[:_MOST].copy()
        self._sending = self._comm.Isend([self._unsent, MPI.BYTE], self._peer)
        return len(self._unsent)

    def ready(self) -> int:
        """A lower bound of the number of bytes that can be taken."""
        if not len(self._buffer):
            status = MPI.Status()
            if self._comm.Iprobe(self._peer, MPI.ANY_TAG, status):
                self._buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
                self._comm.Recv([self._buffer, MPI.BYTE], self._peer)
                self.moved = True
        return len(self._buffer)


class MpiStreams:
    """The streams of one rank of a communicator. MPI does not report which ranks have ended."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._streams = {peer: _MpiStream(comm, peer) for peer in range(comm.size) if peer != comm.rank}
        self._idle = 0

    def outgoing(self, peer: int) -> _MpiStream | NoStream:
        """The stream to a peer."""
        return self._streams.get(peer, NO_STREAM)

    def incoming(self, peer: int) -> _MpiStream | NoStream:
        """The stream from a peer."""
        return self._streams.get(peer, NO_STREAM)

    def ended(self) -> dict[int, str]:
        """An empty dict: the launcher ends all ranks if one has ended."""
        return {}

    def pause(self, seconds: float) -> None:
        """Yield the processor; sleep if nothing has arrived for some time."""
        moved = [link for link in self._streams.values() if link.moved]
        for link in moved:
            link.moved = False
        self._idle = 0 if moved else self._idle + 1
        if self._idle < _YIELDS:
            os.sched_yield()
        else:
            sleep(min(seconds, _NAP))

    def close(self) -> None:
        """Does nothing: messages to ranks that have left may still be on their way."""


class MpiCollectives(RequestCollectives):
    """The operations of one rank, by requests of a communicator."""

    def __init__(self, group: MessageGroup, comm: MPI.Comm) -> None:
        super().__init__(group)
        self._comm = comm
        self._stuck: list[object] = []  # keeps alive what MPI may still write to after a failure

    def close(self) -> None:
        broken = self._group.broken
        super().close()
        if not broken:  # otherwise MPI may still use it
            self._comm.Free()

    def _await(self, request: MPI.Request, steps: object, call: CollectiveCall, deadline: Deadline) -> None:
        try:
            self._group.complete(request.Test, call, deadline)
        except BaseException:
            self._stuck.append(steps)
            raise

    def _sending(self, part: Array, peer: int) -> MPI.Request:
        return self._comm.Isend(_bytes(part), peer)

    def _receiving(self, target: Array, peer: int) -> MPI.Request:
        return self._comm.Irecv(_bytes(target), peer)

    def _gather_all(self, source: Array, parts: Array) -> Requests:
        yield self._comm.Iallgather(_bytes(source), _bytes(parts))

    def _gather_pieces(self, piece: Array, whole: Array, ends: Sequence[int]) -> Requests:
        counts = [whole.itemsize * (end - start) for start, end in pairwise(ends)]
        starts = [whole.itemsize * end for end in ends[:-1]]
        yield self._comm.Iallgatherv(_bytes(piece), _spans(whole, counts, starts))

    def _broadcast(self, data: Array, root: int) -> Requests:
        yield self._comm.Ibcast(_bytes(data), root)


def _bytes(array: Array | None) -> list[object]:
    """An array as a buffer argument for MPI."""
    return [None if array is None else array.reshape(-1).view(np.uint8), MPI.BYTE]


def _spans(array: Array, counts: Sequence[int], starts: Sequence[int]) -> list[object]:
    """Parts of an array, by number and start of their bytes, as a buffer argument for MPI."""
    return [array.view(np.uint8), counts, starts, MPI.BYTE]


# --- the job ----------------------------------------------------------------------------------------------------

_groups: list[MessageGroup] = []


def communicator(ranks: Sequence[int]) -> MPI.Comm:
    """A communicator of some ranks of the job. All of them must call this, since MPI waits without a timeout."""
    return MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.group.Incl(list(ranks)))


def collectives(rank: int, ranks: Sequence[int]) -> tuple[MessageGroup, MpiCollectives]:
    """This rank's part of a group with these `ranks` of the job, all of which must call this."""
    group = MessageGroup(MpiStreams(communicator(ranks)), rank, len(ranks), ranks)
    _groups.append(group)
    return group, MpiCollectives(group, communicator(ranks))


def job() -> tuple[int, int]:
    """This process's rank in the job that `mpiexec` has started, and the number of ranks."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DistBackendError("backend mpi needs an MPI library that several threads may call (MPI_THREAD_MULTIPLE)")
    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def broadcast_text(text: bytes, deadline: Deadline) -> bytes:
    """Broadcast a text of at most 256 bytes from rank 0 to all ranks of the job; `TimeoutError` at the deadline."""
    data = np.frombuffer(text.ljust(_TEXT, b"\0"), np.uint8).copy()
    _finish(MPI.COMM_WORLD.Ibcast(_bytes(data), 0), deadline)
    return data.tobytes().rstrip(b"\0")


def finalize(seconds: float) -> None:
    """Finalize MPI together with all ranks of the job; does nothing if a group has failed or ranks do not come."""
    if MPI.Is_finalized() or any(group.broken for group in _groups):
        return
    try:
        _finish(MPI.COMM_WORLD.Ibarrier(), Deadline(seconds))
    except TimeoutError:
        return
    MPI.Finalize()


def _finish(request: MPI.Request, deadline: Deadline) -> None:
    while not request.Test():
        if deadline.expired:
            _unfinished.append(request)
            raise TimeoutError
        sleep(_NAP)


_TEXT = 256
_unfinished: list[MPI.Request] = []  # MPI may still write to their buffers
