"""The interface of collective operations on NumPy arrays: it checks arguments and starts algorithms.

An algorithm is a generator. The subclass determines how it is run and what it yields: over shared memory
(`collectives.py`), or by MPI (`mpi.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.groups.reductions import check_reduction, premultiplied
from weft.errors import ArgumentError

Array = np.ndarray
Steps = Iterator[Any]


class CollectiveCall(NamedTuple):
    """An operation as called by a rank; it must be equal on all ranks."""

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


class RankGroup(Protocol):
    """What operations need of a group."""

    rank: int
    size: int
    ranks: tuple[int, ...]

    def fail(self, text: str) -> NoReturn:
        """Fail the group on all ranks, and raise."""
        ...


class Operations(ABC):
    """The operations of one rank. Arrays are C-contiguous, of the same size and element type on all ranks.

    Ranks are counted from 0 within the group. Input and output may be the same array; otherwise they must not overlap.
    Every operation raises a `DistBackendError` if ranks call different operations, end, or do not come by the deadline;
    the group cannot be used afterwards. Several threads may call, but ranks must agree on the order of the calls.
    """

    def __init__(self, group: RankGroup) -> None:
        self.group = group

    @abstractmethod
    def close(self) -> None:
        """Leave the group; the caller's arrays are not affected."""

    # --- the implementation ---

    @abstractmethod
    def _run(self, call: CollectiveCall, steps: Steps, deadline: Deadline, counts: Sequence[int] | None = None) -> None:
        """Run the steps of a call. `counts` are the bytes to and from each rank, if they differ between pairs."""

    @abstractmethod
    def _reduce(self, source: Array, out: Array | None, reduction: str) -> Steps:
        """Reduce `source` of all ranks into `out` of those ranks that have one."""

    @abstractmethod
    def _reduce_parts(self, sources: Sequence[Array], out: Array, reduction: str) -> Steps:
        """Reduce the parts that all ranks have for this one into `out`."""

    @abstractmethod
    def _share(self, size: int, source: Array | None, targets: Mapping[int, Array], only: int | None = None) -> Steps:
        """Share `source` with all ranks, or with the rank `only`, and copy what the ranks in `targets` share.

        Each is `size` bytes.
        """

    @abstractmethod
    def _exchange(self, parts: Sequence[Array], targets: Mapping[int, Array], longest: Callable[[], int]) -> Steps:
        """Send each rank its part, and copy the parts that the ranks in `targets` have for this one.

        `longest()`, called in the first step, is the number of bytes of the longest part of any rank.
        """

    @abstractmethod
    def _longest(self, itemsize: int) -> int:
        """The most bytes that any pair of ranks exchanges; raises on every rank if a pair does not agree."""

    # --- operations ---

    def all_reduce(
        self, source: Array, out: Array, reduction: str, deadline: Deadline, *, factor: float | Array | None = None
    ) -> None:
        """Reduce the arrays of all ranks into `out` on every rank. `factor` is for the reduction `premul_sum`."""
        source, out = _flat(source), _target(out, source)
        check_reduction(reduction, source.dtype)
        call = CollectiveCall("all_reduce", source.size, source.dtype, None, reduction)
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
        call = CollectiveCall("reduce", source.size, source.dtype, self._rank(root), reduction)
        if factor is not None:
            source = premultiplied(source, factor)
        target = _target(out, source) if out is not None and self.group.rank == root else None
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
        call = CollectiveCall("reduce_scatter", out.size, out.dtype, None, reduction)
        if factor is not None:
            flats = [premultiplied(source, factor) for source in flats]
        self._run(call, self._reduce_parts(flats, out, reduction), deadline)

    def broadcast(self, array: Array, root: int, deadline: Deadline) -> None:
        """Copy the array of rank `root` into those of the others."""
        flat = _flat(array) if root == self.group.rank else _target(array)
        call = CollectiveCall("broadcast", flat.size, flat.dtype, self._rank(root))
        ours = root == self.group.rank
        self._run(call, self._share(flat.nbytes, flat if ours else None, {} if ours else {root: flat}), deadline)

    def all_gather(self, source: Array, outs: Sequence[Array], deadline: Deadline) -> None:
        """Copy the array of each rank r into `outs[r]` on every rank."""
        source = _flat(source)
        targets = [_target(out, source) for out in self._one_each(outs)]
        call = CollectiveCall("all_gather", source.size, source.dtype)
        self._run(call, self._share(source.nbytes, source, dict(enumerate(targets))), deadline)

    def gather(self, source: Array, outs: Sequence[Array] | None, root: int, deadline: Deadline) -> None:
        """Copy the array of each rank r into `outs[r]` on rank `root`; others need no `outs`."""
        source = _flat(source)
        call = CollectiveCall("gather", source.size, source.dtype, self._rank(root))
        targets = [_target(out, source) for out in self._one_each(outs or ())] if root == self.group.rank else ()
        self._run(call, self._share(source.nbytes, source, dict(enumerate(targets)), root), deadline)

    def scatter(self, sources: Sequence[Array] | None, out: Array, root: int, deadline: Deadline) -> None:
        """Copy `sources[r]` of rank `root` into `out` on rank r; others need no `sources`."""
        parts = self._one_each(sources or ()) if root == self.group.rank else ()
        out = _target(out, *parts)
        call = CollectiveCall("scatter", out.size, out.dtype, self._rank(root))
        self._run(call, self._exchange(parts, {root: out}, lambda: out.nbytes), deadline)

    def all_to_all(self, sources: Sequence[Array], outs: Sequence[Array], deadline: Deadline) -> None:
        """Copy `sources[r]` of each rank s into `outs[s]` on rank r. Sizes may differ from pair to pair."""
        parts, targets = self._one_each(sources), [_target(out) for out in self._one_each(outs)]
        if any(np.may_share_memory(part, target) for part in parts for target in targets):
            parts = [part.copy() for part in parts]
        dtype = parts[0].dtype
        if dtype != targets[0].dtype:
            raise ArgumentError(f"all_to_all: {dtype.name} cannot be received as {targets[0].dtype.name}")
        sizes = [array.nbytes for array in (*parts, *targets)]
        steps = self._exchange(parts, dict(enumerate(targets)), lambda: self._longest(dtype.itemsize))
        # Numbers of elements may differ between pairs; `_longest` checks them.
        self._run(CollectiveCall("all_to_all", 0, dtype), steps, deadline, sizes)

    def barrier(self, deadline: Deadline, operation: str = "barrier") -> None:
        """Return once every rank has called this for the same `operation`."""
        self._run(CollectiveCall(operation), iter((None,)), deadline)

    # --- arguments ---

    def _rank(self, root: int) -> int:
        if not 0 <= root < self.group.size:
            raise ArgumentError(f"root {root} is not a rank of a group of {self.group.size}")
        return root

    def _one_each(self, arrays: Sequence[Array]) -> list[Array]:
        """Flat arrays, one for each rank, all of one element type."""
        if len(arrays) != self.group.size:
            raise ArgumentError(f"expected one array for each of {self.group.size} ranks, got {len(arrays)}")
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
            mismatch = f"{source.size} {source.dtype.name} cannot go into {array.size} {array.dtype.name}"
            raise ArgumentError(f"input and output must be alike: {mismatch}")
    if not array.flags.writeable:
        raise ArgumentError("the array to write into is read-only")
    return _flat(array)


def size_mismatch(table: Array, ranks: Sequence[int]) -> str | None:
    """An error text if two ranks do not agree on the number of elements that they exchange, else None.

    `table` has a row for each rank: the number that it sends to each rank, then the number that it expects from each.
    """
    size = len(ranks)
    sent, received = table[:, :size], table[:, size:].T
    for source, target in np.argwhere(sent != received):
        return (
            f"all_to_all: rank {ranks[source]} sends {sent[source, target]} elements to rank {ranks[target]}, "
            f"which expects {received[source, target]}"
        )
    return None
