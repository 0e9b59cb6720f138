"""Collective operations on NumPy arrays over shared memory.

An algorithm is a generator. In each phase, a rank writes its own part before the `yield`, and reads the parts of the
others after it. The first phase also has each rank's call, so that calls which differ raise on every rank, and never
mix up data. Large arrays are processed in chunks that fit into the cache.

Sums are computed in the order of ranks, each element by one rank, or by all ranks in the same way: every rank always
gets the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import lru_cache
from threading import Lock

import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.groups.memory_group import MemoryGroup
from weft._comm.groups.operations import CollectiveCall, Operations, size_mismatch
from weft._comm.groups.reductions import combine
from weft._comm.shared_memory.layout import CALL, CHUNK, LINE
from weft.errors import CollectiveArgumentsError

Array = np.ndarray
Phases = Iterator[None]

SMALL = 128 << 10  # bytes of all ranks together up to which each rank reduces all data
_BLOCK = 256 << 10  # bytes that are reduced at a time, so that they are still in the cache when the result is copied
_BYTE = np.dtype(np.uint8)


@lru_cache(maxsize=1024)  # key: the call
def _encoded(call: CollectiveCall) -> bytes:
    return str(call).encode()[:CALL].ljust(CALL, b"\0")


class Collectives(Operations):
    """The operations of one rank of a group."""

    def __init__(self, group: MemoryGroup) -> None:
        super().__init__(group)
        self.group = group
        self._lock = Lock()
        # Overflow gives inf without a warning. Entering a context is ten times faster than `np.errstate`.
        self._quiet = copy_context()
        self._quiet.run(np.seterr, all="ignore")
        layout, ranks, data = group.layout, range(group.size), group.bytes
        self._calls = [[group.view[layout.call(r, half)] for r in ranks] for half in (0, 1)]
        self._counts = [[data[layout.counts(r, half)].view(np.int64) for r in ranks] for half in (0, 1)]
        self._areas = {_BYTE: [[data[layout.area(r, half)] for r in ranks] for half in (0, 1)]}

    def close(self) -> None:
        """Leave the group; the caller's arrays are not affected."""
        self._calls.clear()
        self._counts.clear()
        self._areas.clear()
        self.group.close()

    # --- phases ---

    def _run(
        self, call: CollectiveCall, steps: Phases, deadline: Deadline, counts: Sequence[int] | None = None
    ) -> None:
        """Run the phases of a call; any exception fails the group, unless all ranks raise it for their arguments."""
        group = self.group
        with self._lock:
            group.check(call)
            mine = memoryview(_encoded(call))
            half = (group.step + 1) & 1
            self._calls[half][group.rank][:] = mine
            if counts is not None:
                self._counts[half][group.rank][:] = counts
            try:
                next(steps)
                group.barrier(call, deadline)
                # Compared after the first phase, in which data were written and not read yet: calls that differ never
                # mix them up.
                for record in self._calls[half]:
                    if record != mine:
                        self._disagree(half)
                for _ in steps:
                    group.barrier(call, deadline)
            # All ranks raise it in the same phase, so their counters agree and the group can be used further.
            except CollectiveArgumentsError:
                raise
            except BaseException as error:
                group.abort(f"{call} was interrupted by {error!r}")  # does nothing if the group has already failed
                raise

    def _disagree(self, half: int) -> None:
        """Raise an error for different calls, with the same text on every rank."""
        calls = [bytes(record).rstrip(b"\0").decode() for record in self._calls[half]]
        self.group.disagree([(call, rank) for rank, call in enumerate(calls)])

    def _areas_of(self, dtype: np.dtype) -> list[list[Array]]:
        """The ranks' areas by half and rank, as arrays of a type."""
        areas = self._areas.get(dtype)
        if areas is None:
            areas = [[area.view(dtype) for area in half] for half in self._areas[_BYTE]]
            self._areas[dtype] = areas
        return areas

    # --- algorithms ---

    def _reduce(self, source: Array, out: Array | None, reduction: str) -> Phases:
        """Reduce `source` of all ranks into `out`, on the ranks that have one."""
        # Few bytes are faster reduced by everybody, in one phase, than by parts in two.
        if source.nbytes * self.group.size > SMALL:
            return self._reduce_shared(source, out, reduction)
        return self._reduce_alone(source, out, reduction)

    def _reduce_alone(self, source: Array, out: Array | None, reduction: str) -> Phases:
        """A reduction in which each rank writes all its data, and each rank with an `out` computes the result."""
        group, areas, size = self.group, self._areas_of(source.dtype), source.size
        areas[(group.step + 1) & 1][group.rank][:size] = source
        yield
        if out is not None:
            self._quiet.run(combine, reduction, [area[:size] for area in areas[group.step & 1]], out)

    def _reduce_shared(self, source: Array, out: Array | None, reduction: str) -> Phases:
        """A reduction in which each rank reduces its piece of each chunk. A phase also has the last chunk's results."""
        group, areas, (size, me, ranks) = self.group, self._areas_of(source.dtype), self._size_of(source)
        piece = _piece(source, -(-source.nbytes // CHUNK) * ranks)
        span = piece * ranks
        # One round more than there is data, for the results of the last chunk.
        for at in range(0, size + span, span):
            own = areas[(group.step + 1) & 1][me]
            for rank in range(ranks):
                if rank != me:
                    _put(own, rank * piece, source[at + rank * piece : at + (rank + 1) * piece])
            yield
            seen = areas[group.step & 1]
            if at and out is not None:
                for rank in range(ranks):
                    if rank != me:
                        _get(out[at - span + rank * piece : at - span + (rank + 1) * piece], seen[rank], span)
            mine = slice(at + me * piece, at + (me + 1) * piece)
            self._reduce_piece(source[mine], None if out is None else out[mine], me * piece, span, reduction)

    def _reduce_piece(self, source: Array, out: Array | None, at: int, results_at: int, reduction: str) -> None:
        """Reduce the data at `at` of all areas, where this rank's part is `source`, into its area and into `out`."""
        group, areas = self.group, self._areas_of(source.dtype)
        results = areas[(group.step + 1) & 1][group.rank][results_at:]
        block = _BLOCK // source.itemsize
        for start in range(0, source.size, block):
            end = min(start + block, source.size)
            parts = [area[at + start : at + end] for area in areas[group.step & 1]]
            parts[group.rank] = source[start:end]
            self._quiet.run(combine, reduction, parts, results[start:end])
            if out is not None:
                out[start:end] = results[start:end]

    def _reduce_parts(self, sources: Sequence[Array], out: Array, reduction: str) -> Phases:
        """A reduction in which each rank writes a piece of every part, and reduces the pieces of its own part."""
        group, areas, (size, me, ranks) = self.group, self._areas_of(out.dtype), self._size_of(out)
        piece = _piece(out, -(-out.nbytes * ranks // CHUNK))
        for at in range(0, max(size, 1), piece):
            own = areas[(group.step + 1) & 1][me]
            for rank, source in enumerate(sources):
                _put(own, rank * piece, source[at : at + piece])
            yield
            target = out[at : at + piece]
            self._quiet.run(
                combine,
                reduction,
                [area[me * piece : me * piece + target.size] for area in areas[group.step & 1]],
                target,
            )

    def _share(self, size: int, source: Array | None, targets: Mapping[int, Array], only: int | None = None) -> Phases:
        """Write `source`, and copy what the ranks in `targets` write; each is `size` bytes."""
        del only  # any rank can read it
        group, areas = self.group, self._areas[_BYTE]
        data = None if source is None else source.view(_BYTE)
        wanted = {rank: target.view(_BYTE) for rank, target in targets.items()}
        for at in range(0, max(size, 1), CHUNK):
            if data is not None:
                _put(areas[(group.step + 1) & 1][group.rank], 0, data[at : at + CHUNK])
            yield
            for rank, target in wanted.items():
                _get(target[at : at + CHUNK], areas[group.step & 1][rank], 0)

    def _exchange(self, parts: Sequence[Array], targets: Mapping[int, Array], longest: Callable[[], int]) -> Phases:
        """Write the part for each rank, and copy the parts that the ranks in `targets` have for this one.

        `longest()`, called in the first phase, is the number of bytes of the longest part of any rank.
        """
        group, areas = self.group, self._areas[_BYTE]
        piece = CHUNK // group.size // LINE * LINE
        data = [part.view(_BYTE) for part in parts]
        wanted = {rank: target.view(_BYTE) for rank, target in targets.items()}
        at, end = 0, 1
        while at < end:
            for rank, part in enumerate(data):
                _put(areas[(group.step + 1) & 1][group.rank], rank * piece, part[at : at + piece])
            yield
            # Ranks only know their own parts; how many rounds there are follows from the longest one of all.
            if not at:
                end = longest()
            for rank, target in wanted.items():
                _get(target[at : at + piece], areas[group.step & 1][rank], group.rank * piece)
            at += piece

    def _longest(self, itemsize: int) -> int:
        """The most bytes that any pair of ranks exchanges; raises on every rank if a pair does not agree."""
        table = np.stack(self._counts[self.group.step & 1]) // itemsize
        if (mismatch := size_mismatch(table, self.group.ranks)) is not None:
            raise CollectiveArgumentsError(mismatch)
        return int(table.max()) * itemsize

    def _size_of(self, array: Array) -> tuple[int, int, int]:
        return array.size, self.group.rank, self.group.size


def _piece(array: Array, pieces: int) -> int:
    """The number of elements in each of `pieces` equal pieces of an array, rounded up to whole cache lines."""
    line = max(1, LINE // array.itemsize)
    return max(1, -(-array.size // max(pieces, 1) // line)) * line


def _put(area: Array, at: int, data: Array) -> None:
    if data.size:
        area[at : at + data.size] = data


def _get(target: Array, area: Array, at: int) -> None:
    if target.size:
        target[...] = area[at : at + target.size]
