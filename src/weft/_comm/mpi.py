"""Ranks that MPI connects: streams between them, and collective operations on NumPy arrays.

MPI knows no timeouts, and few of its types and reductions are ours. Therefore the ranks meet before each operation
(`meeting.py`), data travels as bytes by requests that are asked until they are done, and values are combined here, in
the order of ranks: every rank gets the same bits, always.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from itertools import pairwise
from time import sleep

import mpi4py
import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.meeting import Meeting
from weft._comm.operations import Call, Operations, disagreement
from weft._comm.reductions import combine
from weft._comm.stream import NO_STREAM, NoStream
from weft.errors import DistBackendError

mpi4py.rc.finalize = False  # it waits for all ranks, which may never come after a failure: see `finalize`
from mpi4py import MPI  # noqa: E402

Array = np.ndarray
Requests = Iterator[MPI.Request | None]

_MOST = 1 << 20  # bytes of a message of a stream
_YIELDS = 1000  # times that the processor is offered to others before sleeping
_NAP = 1e-3  # longest seconds asleep
_SMALL = 128 << 10  # bytes of all ranks together up to which everybody reduces everything


class _Link:
    """Both ends of the streams to and from one peer."""

    def __init__(self, comm: MPI.Comm, peer: int) -> None:
        self._comm = comm
        self._peer = peer
        self._sending = MPI.REQUEST_NULL
        self._unsent = np.empty(0, np.uint8)  # MPI reads it until the request is done
        self._store = np.empty(0, np.uint8)
        self.moved = False  # whether anything came since this was last reset

    def write(self, data: Array) -> int:
        """Put in what fits; returns the number of bytes."""
        if not len(data) or not self._sending.Test():
            return 0
        self._unsent = data[:_MOST].copy()
        self._sending = self._comm.Isend([self._unsent, MPI.BYTE], self._peer)
        return len(self._unsent)

    def ready(self) -> int:
        """How many bytes are there, at least."""
        if not len(self._store):
            status = MPI.Status()
            if self._comm.Iprobe(self._peer, MPI.ANY_TAG, status):
                self._store = np.empty(status.Get_count(MPI.BYTE), np.uint8)
                self._comm.Recv([self._store, MPI.BYTE], self._peer)
                self.moved = True
        return len(self._store)

    def take(self, data: Array) -> int:
        """Take out what is there and wanted; returns the number of bytes."""
        count = min(self.ready(), len(data))
        data[:count] = self._store[:count]
        self._store = self._store[count:]
        return count


class MpiStreams:
    """The streams of one rank of a communicator. MPI does not tell who has ended."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._links = {peer: _Link(comm, peer) for peer in range(comm.size) if peer != comm.rank}
        self._idle = 0

    def outgoing(self, peer: int) -> _Link | NoStream:
        """The stream to a peer."""
        return self._links.get(peer, NO_STREAM)

    def incoming(self, peer: int) -> _Link | NoStream:
        """The stream from a peer."""
        return self._links.get(peer, NO_STREAM)

    def ended(self) -> dict[int, str]:
        """Nobody: whoever started the job ends all of it."""
        return {}

    def pause(self, seconds: float) -> None:
        """Let others run; sleep where nothing has come for some time."""
        moved = [link for link in self._links.values() if link.moved]
        for link in moved:
            link.moved = False
        self._idle = 0 if moved else self._idle + 1
        if self._idle < _YIELDS:
            os.sched_yield()
        else:
            sleep(min(seconds, _NAP))

    def close(self) -> None:
        """The communicator stays: messages to ranks that have left may be on the way."""


class MpiCollectives(Operations):
    """The operations of one rank, by requests of a communicator. A step is a request to wait for."""

    def __init__(self, meeting: Meeting, comm: MPI.Comm) -> None:
        super().__init__(meeting)
        self._meeting = meeting
        self._comm = comm
        self._quiet = copy_context()  # overflow gives inf and no warning
        self._quiet.run(np.seterr, all="ignore")
        self._stuck: list[object] = []  # holds what MPI may still write into after a failure
        self._counts = np.empty(0, np.int64)

    def close(self) -> None:
        """Leave the group."""
        broken = self._meeting.broken
        self._meeting.close()
        if not broken:  # else MPI may still use it
            self._comm.Free()

    def _run(self, call: Call, steps: Requests, deadline: Deadline, counts: Sequence[int] | None = None) -> None:
        def go_through() -> None:
            if counts is not None:
                self._counts = np.empty((self.board.size, len(counts)), np.int64)
                mine = np.array(counts, np.int64)
                request = self._comm.Iallgather(_bytes(mine), _bytes(self._counts))
                self._await(request, (mine, self._counts), call, deadline)
            for request in steps:
                if request is not None:  # a barrier's is: the meeting is all that it needs
                    self._await(request, steps, call, deadline)

        self._meeting.run(call, go_through, deadline)

    def _await(self, request: MPI.Request, steps: object, call: Call, deadline: Deadline) -> None:
        try:
            self._meeting.complete(request.Test, call, deadline)
        except BaseException:
            self._stuck.append(steps)
            raise

    def _longest(self, itemsize: int) -> int:
        table = self._counts // itemsize
        if (trouble := disagreement(table, self.board.ranks)) is not None:
            self.board.fail(trouble)
        return int(table.max()) * itemsize

    # --- algorithms ---

    def _reduce(self, source: Array, out: Array | None, reduction: str) -> Requests:
        size, ranks, me = source.size, self.board.size, self.board.rank
        if source.nbytes * ranks <= _SMALL:
            parts = np.empty((ranks, size), source.dtype)
            yield self._comm.Iallgather(_bytes(source), _bytes(parts))
            if out is not None:
                self._quiet.run(combine, reduction, list(parts), out)
            return
        ends = [size * rank // ranks for rank in range(ranks + 1)]
        pieces = [source[start:end] for start, end in pairwise(ends)]
        result = np.empty_like(pieces[me]) if out is None else out[ends[me] : ends[me + 1]].copy()
        yield from self._reduce_parts(pieces, result, reduction)
        whole = np.empty_like(source) if out is None else out
        item = source.itemsize
        counts = [item * piece.size for piece in pieces]
        yield self._comm.Iallgatherv(_bytes(result), _spans(whole, counts, [item * end for end in ends[:-1]]))

    def _reduce_parts(self, sources: Sequence[Array], out: Array, reduction: str) -> Requests:
        parts = [np.empty_like(out) for _ in sources]
        yield from self._deal(sources, dict(enumerate(parts)), lambda: 0)
        self._quiet.run(combine, reduction, parts, out)

    def _spread(
        self, size: int, source: Array | None, targets: Mapping[int, Array], only: int | None = None
    ) -> Requests:
        me = self.board.rank
        if only is not None:  # everybody to one
            assert source is not None, "everybody has something to show"
            yield from self._exchanged({only: source}, targets)
        elif source is None or not targets:  # one to everybody
            root, data = (me, source) if source is not None else next(iter(targets.items()))
            yield self._comm.Ibcast(_bytes(data), root)
        else:  # everybody to everybody
            parts = np.empty((self.board.size, source.size), source.dtype)
            yield self._comm.Iallgather(_bytes(source), _bytes(parts))
            for rank, target in targets.items():
                target[...] = parts[rank]

    def _deal(self, parts: Sequence[Array], targets: Mapping[int, Array], longest: Callable[[], int]) -> Requests:
        longest()  # the check alone
        yield from self._exchanged(dict(enumerate(parts)), targets)

    def _exchanged(self, parts: Mapping[int, Array], targets: Mapping[int, Array]) -> Requests:
        """Hand `parts` to their ranks, and receive `targets` from theirs, without copies."""
        me = self.board.rank
        requests = [
            self._comm.Irecv(_bytes(target), peer) for peer, target in targets.items() if target.size and peer != me
        ]
        requests += [self._comm.Isend(_bytes(part), peer) for peer, part in parts.items() if part.size and peer != me]
        if me in parts and me in targets:
            targets[me][...] = parts[me]
        yield from requests


def _bytes(array: Array | None) -> list[object]:
    """An array, as MPI is told of it."""
    return [None if array is None else array.reshape(-1).view(np.uint8), MPI.BYTE]


def _spans(array: Array, counts: Sequence[int], starts: Sequence[int]) -> list[object]:
    """Parts of an array, by their bytes and where these start, as MPI is told of them."""
    return [array.view(np.uint8), counts, starts, MPI.BYTE]


# --- the job ----------------------------------------------------------------------------------------------------

_meetings: list[Meeting] = []


def communicator(ranks: Sequence[int]) -> MPI.Comm:
    """A communicator of some ranks of the job. All of them must be here: MPI waits without end."""
    return MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.group.Incl(list(ranks)))


def collectives(rank: int, ranks: Sequence[int]) -> tuple[Meeting, MpiCollectives]:
    """This rank's part of a group, all of whose `ranks` of the job are here."""
    meeting = Meeting(MpiStreams(communicator(ranks)), rank, len(ranks), ranks)
    _meetings.append(meeting)
    return meeting, MpiCollectives(meeting, communicator(ranks))


def job() -> tuple[int, int]:
    """This process's rank in the job that `mpiexec` started, and their number."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DistBackendError("backend mpi needs an MPI library that several threads may call (MPI_THREAD_MULTIPLE)")
    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def told(text: bytes, deadline: Deadline) -> bytes:
    """The text of rank 0, of at most 256 bytes, on all ranks of the job; `TimeoutError` where it does not come."""
    data = np.frombuffer(text.ljust(_TEXT, b"\0"), np.uint8).copy()
    _finish(MPI.COMM_WORLD.Ibcast(_bytes(data), 0), deadline)
    return data.tobytes().rstrip(b"\0")


def finalize(seconds: float) -> None:
    """Leave MPI with all ranks of the job; where a group has failed, or ranks do not come, without."""
    if MPI.Is_finalized() or any(meeting.broken for meeting in _meetings):
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
_unfinished: list[MPI.Request] = []  # MPI may still write into what belongs to them
