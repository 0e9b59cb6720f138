"""Collective operations on NumPy arrays over a board.

An algorithm is a generator: what stands before a `yield` is the rank's own part of a phase, what follows reads the
parts of others. The first phase also carries what each rank calls, so that calls that do not fit each other raise on
every rank instead of mixing up data. Large arrays go through in chunks that stay in cache.

Sums are taken in the order of ranks, each element once or by everybody alike: every rank gets the same bits, always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import lru_cache
from threading import Lock

import numpy as np

from weft._comm.board import Board
from weft._comm.deadline import Deadline
from weft._comm.layout import CALL, CHUNK, LINE
from weft._comm.operations import Call, Operations, disagreement
from weft._comm.reductions import combine

Array = np.ndarray
Phases = Iterator[None]

SMALL = 128 << 10  # bytes of all ranks together up to which everybody reduces everything
_BLOCK = 256 << 10  # bytes that are reduced at a time: they are still in the cache when the result is copied
_BYTE = np.dtype(np.uint8)


@lru_cache(maxsize=1024)  # key: the call
def _encoded(call: Call) -> bytes:
    return str(call).encode()[:CALL].ljust(CALL, b"\0")


class Collectives(Operations):
    """The operations of one rank at a board."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.board = board
        self._lock = Lock()
        # Overflow gives inf and no warning. To enter a context is ten times as fast as `np.errstate`.
        self._quiet = copy_context()
        self._quiet.run(np.seterr, all="ignore")
        layout, ranks, data = board.layout, range(board.size), board.bytes
        self._calls = [[board.view[layout.call(r, half)] for r in ranks] for half in (0, 1)]
        self._counts = [[data[layout.counts(r, half)].view(np.int64) for r in ranks] for half in (0, 1)]
        self._areas = {_BYTE: [[data[layout.area(r, half)] for r in ranks] for half in (0, 1)]}

    def close(self) -> None:
        """Leave the group; the arrays of the caller stay."""
        self._calls.clear()
        self._counts.clear()
        self._areas.clear()
        self.board.close()

    # --- phases ---

    def _run(self, call: Call, steps: Phases, deadline: Deadline, counts: Sequence[int] | None = None) -> None:
        """Go through the phases of a call; anything that interrupts it breaks the board."""
        board = self.board
        with self._lock:
            board.check(call)
            mine = _encoded(call)
            half = (board.step + 1) & 1
            self._calls[half][board.rank][:] = mine
            if counts is not None:
                self._counts[half][board.rank][:] = counts
            try:
                next(steps)
                board.meet(call, deadline)
                for record in self._calls[half]:
                    if record != mine:
                        self._disagree(half)
                for _ in steps:
                    board.meet(call, deadline)
            except BaseException as error:
                board.abort(f"{call} was interrupted by {error!r}")  # does nothing where the board has failed
                raise

    def _disagree(self, half: int) -> None:
        """Raise the same text on every rank."""
        calls = [bytes(record).rstrip(b"\0").decode() for record in self._calls[half]]
        told = ", ".join(f"rank {self.board.ranks[rank]} called {call}" for rank, call in enumerate(calls))
        self.board.fail(f"the ranks call different operations: {told}")

    def _areas_of(self, dtype: np.dtype) -> list[list[Array]]:
        """Areas by half and rank, as arrays of a type."""
        found = self._areas.get(dtype)
        if found is None:
            found = [[area.view(dtype) for area in half] for half in self._areas[_BYTE]]
            self._areas[dtype] = found
        return found

    # --- algorithms ---

    def _reduce(self, source: Array, out: Array | None, reduction: str) -> Phases:
        """Reduce `source` of all ranks into `out` of those ranks that have one."""
        if source.nbytes * self.board.size > SMALL:
            return self._reduce_shared(source, out, reduction)
        return self._reduce_alone(source, out, reduction)

    def _reduce_alone(self, source: Array, out: Array | None, reduction: str) -> Phases:
        """Everybody shows all data, and whoever wants the result computes it."""
        board, areas, size = self.board, self._areas_of(source.dtype), source.size
        areas[(board.step + 1) & 1][board.rank][:size] = source
        yield
        if out is not None:
            self._quiet.run(combine, reduction, [area[:size] for area in areas[board.step & 1]], out)

    def _reduce_shared(self, source: Array, out: Array | None, reduction: str) -> Phases:
        """Each rank reduces its piece of a chunk. A phase carries a chunk's data and the chunk before's results."""
        board, areas, (size, me, ranks) = self.board, self._areas_of(source.dtype), self._size_of(source)
        piece = _piece(source, -(-source.nbytes // CHUNK) * ranks)
        span = piece * ranks
        for at in range(0, size + span, span):
            own = areas[(board.step + 1) & 1][me]
            for rank in range(ranks):
                if rank != me:
                    _put(own, rank * piece, source[at + rank * piece : at + (rank + 1) * piece])
            yield
            seen = areas[board.step & 1]
            if at and out is not None:
                for rank in range(ranks):
                    if rank != me:
                        _get(out[at - span + rank * piece : at - span + (rank + 1) * piece], seen[rank], span)
            mine = slice(at + me * piece, at + (me + 1) * piece)
            self._reduce_piece(source[mine], None if out is None else out[mine], me * piece, span, reduction)

    def _reduce_piece(self, source: Array, out: Array | None, at: int, results_at: int, reduction: str) -> None:
        """Reduce what stands at `at` in all areas, this rank's part being `source`; show it, and keep it in `out`."""
        board, areas = self.board, self._areas_of(source.dtype)
        results = areas[(board.step + 1) & 1][board.rank][results_at:]
        block = _BLOCK // source.itemsize
        for start in range(0, source.size, block):
            end = min(start + block, source.size)
            parts = [area[at + start : at + end] for area in areas[board.step & 1]]
            parts[board.rank] = source[start:end]
            self._quiet.run(combine, reduction, parts, results[start:end])
            if out is not None:
                out[start:end] = results[start:end]

    def _reduce_parts(self, sources: Sequence[Array], out: Array, reduction: str) -> Phases:
        """Each rank shows a piece of every part, and reduces the pieces of its own one."""
        board, areas, (size, me, ranks) = self.board, self._areas_of(out.dtype), self._size_of(out)
        piece = _piece(out, -(-out.nbytes * ranks // CHUNK))
        for at in range(0, max(size, 1), piece):
            own = areas[(board.step + 1) & 1][me]
            for rank, source in enumerate(sources):
                _put(own, rank * piece, source[at : at + piece])
            yield
            target = out[at : at + piece]
            self._quiet.run(
                combine,
                reduction,
                [area[me * piece : me * piece + target.size] for area in areas[board.step & 1]],
                target,
            )

    def _spread(self, size: int, source: Array | None, targets: Mapping[int, Array], only: int | None = None) -> Phases:
        """Show `source`, and copy what the ranks of `targets` show; each is `size` bytes."""
        del only  # whoever wants it looks
        board, areas = self.board, self._areas[_BYTE]
        shown = None if source is None else source.view(_BYTE)
        wanted = {rank: target.view(_BYTE) for rank, target in targets.items()}
        for at in range(0, max(size, 1), CHUNK):
            if shown is not None:
                _put(areas[(board.step + 1) & 1][board.rank], 0, shown[at : at + CHUNK])
            yield
            for rank, target in wanted.items():
                _get(target[at : at + CHUNK], areas[board.step & 1][rank], 0)

    def _deal(self, parts: Sequence[Array], targets: Mapping[int, Array], longest: Callable[[], int]) -> Phases:
        """Show to each rank its part, and copy what the ranks of `targets` have for this one.

        `longest` is asked in the first phase for the number of bytes of the longest part of any rank.
        """
        board, areas = self.board, self._areas[_BYTE]
        piece = CHUNK // board.size // LINE * LINE
        shown = [part.view(_BYTE) for part in parts]
        wanted = {rank: target.view(_BYTE) for rank, target in targets.items()}
        at, end = 0, 1
        while at < end:
            for rank, part in enumerate(shown):
                _put(areas[(board.step + 1) & 1][board.rank], rank * piece, part[at : at + piece])
            yield
            if not at:
                end = longest()
            for rank, target in wanted.items():
                _get(target[at : at + piece], areas[board.step & 1][rank], board.rank * piece)
            at += piece

    def _longest(self, itemsize: int) -> int:
        """The most bytes that any pair of ranks exchanges; raises on every rank where a pair does not agree."""
        table = np.stack(self._counts[self.board.step & 1]) // itemsize
        if (trouble := disagreement(table, self.board.ranks)) is not None:
            self.board.fail(trouble)
        return int(table.max()) * itemsize

    def _size_of(self, array: Array) -> tuple[int, int, int]:
        return array.size, self.board.rank, self.board.size


def _piece(array: Array, pieces: int) -> int:
    """Elements of each of that many equal pieces of an array, whole cache lines long."""
    line = max(1, LINE // array.itemsize)
    return max(1, -(-array.size // max(pieces, 1) // line)) * line


def _put(area: Array, at: int, data: Array) -> None:
    if data.size:
        area[at : at + data.size] = data


def _get(target: Array, area: Array, at: int) -> None:
    if target.size:
        target[...] = area[at : at + target.size]
