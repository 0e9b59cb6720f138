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
from typing import NamedTuple

import numpy as np

from weft._comm.board import Board
from weft._comm.deadline import Deadline
from weft._comm.layout import CALL, CHUNK, LINE
from weft._comm.reductions import check_reduction, combine, premultiplied
from weft.errors import ArgumentError

Array = np.ndarray
Phases = Iterator[None]

SMALL = 128 << 10  # bytes of all ranks together up to which everybody reduces everything
_BLOCK = 256 << 10  # bytes that are reduced at a time: they are still in the cache when the result is copied
_BYTE = np.dtype(np.uint8)


class Call(NamedTuple):
    """What a rank calls. It must be the same on all ranks."""

    operation: str
    size: int = 0
    dtype: np.dtype | None = None
    root: int | None = None
    reduction: str | None = None

    def __str__(self) -> str:
        text = self.operation if self.reduction is None else f"{self.operation}({self.reduction})"
        if self.dtype is not None:
            text += f" of {self.size} {self.dtype.name}"
        return text if self.root is None else f"{text} with root {self.root}"


@lru_cache(maxsize=1024)  # key: the call
def _encoded(call: Call) -> bytes:
    return str(call).encode().ljust(CALL, b"\0")


class Collectives:
    """The operations of one rank. Arrays are C-contiguous, of the same size and element type on all ranks.

    Ranks count from 0 within the group. Input and output may be the same array; otherwise they must not overlap.
    Every operation raises a `DistBackendError` where ranks call different things, end, or do not come by the deadline;
    the group cannot be used afterwards. Threads may call at the same time, but ranks must agree on the order.
    """

    def __init__(self, board: Board) -> None:
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

    # --- operations ---

    def all_reduce(
        self, source: Array, out: Array, reduction: str, deadline: Deadline, *, factor: float | Array | None = None
    ) -> None:
        """Reduce the arrays of all ranks into `out` on every rank. `factor` is for the reduction `premul_sum`."""
        source, out = _flat(source), _target(out, source)
        check_reduction(reduction, source.dtype)
        call = Call("all_reduce", source.size, source.dtype, None, reduction)
        if factor is not None:
            source = premultiplied(source, factor)
        self._run(call, self._reduce(source, out, reduction), deadline)

    def reduce(
        self,
        source: Array,
        out: Array | None,
        root: int,
        reduction: str,
        deadline: Deadline,
        *,
        factor: float | Array | None = None,
    ) -> None:
        """Reduce the arrays of all ranks into `out` on rank `root`; others need no `out`."""
        source = _flat(source)
        check_reduction(reduction, source.dtype)
        call = Call("reduce", source.size, source.dtype, self._rank(root), reduction)
        if factor is not None:
            source = premultiplied(source, factor)
        target = _target(out, source) if out is not None and self.board.rank == root else None
        self._run(call, self._reduce(source, target, reduction), deadline)

    def reduce_scatter(
        self,
        sources: Sequence[Array],
        out: Array,
        reduction: str,
        deadline: Deadline,
        *,
        factor: float | Array | None = None,
    ) -> None:
        """Reduce `sources[r]` of all ranks into `out` on rank r."""
        flats = self._one_each(sources)
        out = _target(out, *flats)
        check_reduction(reduction, out.dtype)
        call = Call("reduce_scatter", out.size, out.dtype, None, reduction)
        if factor is not None:
            flats = [premultiplied(source, factor) for source in flats]
        self._run(call, self._reduce_parts(flats, out, reduction), deadline)

    def broadcast(self, array: Array, root: int, deadline: Deadline) -> None:
        """Copy the array of rank `root` into those of the others."""
        flat = _flat(array) if root == self.board.rank else _target(array)
        call = Call("broadcast", flat.size, flat.dtype, self._rank(root))
        ours = root == self.board.rank
        self._run(call, self._spread(flat.nbytes, flat if ours else None, {} if ours else {root: flat}), deadline)

    def all_gather(self, source: Array, outs: Sequence[Array], deadline: Deadline) -> None:
        """Copy the array of each rank r into `outs[r]` on every rank."""
        source = _flat(source)
        targets = [_target(out, source) for out in self._one_each(outs)]
        call = Call("all_gather", source.size, source.dtype)
        self._run(call, self._spread(source.nbytes, source, dict(enumerate(targets))), deadline)

    def gather(self, source: Array, outs: Sequence[Array] | None, root: int, deadline: Deadline) -> None:
        """Copy the array of each rank r into `outs[r]` on rank `root`; others need no `outs`."""
        source = _flat(source)
        call = Call("gather", source.size, source.dtype, self._rank(root))
        targets = [_target(out, source) for out in self._one_each(outs or ())] if root == self.board.rank else ()
        self._run(call, self._spread(source.nbytes, source, dict(enumerate(targets))), deadline)

    def scatter(self, sources: Sequence[Array] | None, out: Array, root: int, deadline: Deadline) -> None:
        """Copy `sources[r]` of rank `root` into `out` on rank r; others need no `sources`."""
        parts = self._one_each(sources or ()) if root == self.board.rank else ()
        out = _target(out, *parts)
        call = Call("scatter", out.size, out.dtype, self._rank(root))
        self._run(call, self._deal(parts, {root: out}, lambda: out.nbytes), deadline)

    def all_to_all(self, sources: Sequence[Array], outs: Sequence[Array], deadline: Deadline) -> None:
        """Copy `sources[r]` of each rank s into `outs[s]` on rank r. Sizes may differ from pair to pair."""
        parts, targets = self._one_each(sources), [_target(out) for out in self._one_each(outs)]
        if any(np.may_share_memory(part, target) for part in parts for target in targets):
            parts = [part.copy() for part in parts]
        dtype = parts[0].dtype
        if dtype != targets[0].dtype:
            raise ArgumentError(f"all_to_all: {dtype.name} cannot be received as {targets[0].dtype.name}")
        sizes = [array.nbytes for array in (*parts, *targets)]
        steps = self._deal(parts, dict(enumerate(targets)), lambda: self._longest(dtype.itemsize))
        # The number of elements is each pair's own affair; it is checked by `_longest`.
        self._run(Call("all_to_all", 0, dtype), steps, deadline, sizes)

    def barrier(self, deadline: Deadline) -> None:
        """Return once every rank has called."""
        self._run(Call("barrier"), iter((None,)), deadline)

    # --- phases ---

    def _run(self, call: Call, steps: Phases, deadline: Deadline, counts: Sequence[int] | None = None) -> None:
        """Go through the phases of a call; anything that interrupts it breaks the board."""
        board = self.board
        with self._lock:
            board.check()
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

    def _spread(self, size: int, source: Array | None, targets: Mapping[int, Array]) -> Phases:
        """Show `source` to everybody, and copy what the ranks of `targets` show; each is `size` bytes."""
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
        size = self.board.size
        table = np.stack(self._counts[self.board.step & 1]) // itemsize
        sent, received = table[:, :size], table[:, size:].T
        for source, target in np.argwhere(sent != received):
            ranks = self.board.ranks
            self.board.fail(
                f"all_to_all: rank {ranks[source]} sends {sent[source, target]} elements to rank {ranks[target]}, "
                f"which expects {received[source, target]}"
            )
        return int(sent.max()) * itemsize

    # --- arguments ---

    def _size_of(self, array: Array) -> tuple[int, int, int]:
        return array.size, self.board.rank, self.board.size

    def _rank(self, root: int) -> int:
        if not 0 <= root < self.board.size:
            raise ArgumentError(f"root {root} is not a rank of a group of {self.board.size}")
        return root

    def _one_each(self, arrays: Sequence[Array]) -> list[Array]:
        """Flat arrays, one for each rank, all of one element type."""
        if len(arrays) != self.board.size:
            raise ArgumentError(f"expected one array for each of {self.board.size} ranks, got {len(arrays)}")
        if len({array.dtype for array in arrays}) > 1:
            raise ArgumentError(f"arrays must have one element type, got {[array.dtype.name for array in arrays]}")
        return [_flat(array) for array in arrays]


def _flat(array: Array) -> Array:
    """The array in one dim, without a copy."""
    if not array.flags.c_contiguous:
        raise ArgumentError("arrays must be contiguous to be sent or received")
    return array.reshape(-1)


def _target(array: Array, *sources: Array) -> Array:
    """A flat array to write into, of the size and type of what will be written."""
    for source in sources:
        if array.size != source.size or array.dtype != source.dtype:
            told = f"{source.size} {source.dtype.name} cannot go into {array.size} {array.dtype.name}"
            raise ArgumentError(f"input and output must be alike: {told}")
    if not array.flags.writeable:
        raise ArgumentError("the array to write into is read-only")
    return _flat(array)


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
