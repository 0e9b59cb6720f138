"""Collective operations by requests that move bytes between pairs of ranks: through messages (here), or by MPI.

The ranks compare their calls before each operation (`message_group.py`). Values are reduced here, in the order of
ranks: every rank always gets the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from itertools import pairwise
from typing import Any

import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.groups.message_group import MessageGroup
from weft._comm.groups.messages import MessageRequest
from weft._comm.groups.operations import CollectiveCall, Operations, size_mismatch
from weft._comm.groups.reductions import combine
from weft.errors import CollectiveArgumentsError

Array = np.ndarray
Requests = Iterator[Any]

_SMALL = 128 << 10  # bytes of all ranks together up to which each rank reduces all data
_DATA = -(1 << 62) + 2  # a tag that users' messages cannot have, nor those of the group itself


class RequestCollectives(Operations):
    """The operations of one rank. A step yields a request to wait for, or None."""

    def __init__(self, group: MessageGroup) -> None:
        super().__init__(group)
        self._group = group
        self._quiet = copy_context()  # overflow gives inf without a warning
        self._quiet.run(np.seterr, all="ignore")
        self._counts = np.empty(0, np.int64)

    def close(self) -> None:
        """Leave the group."""
        self._group.close()

    # --- how bytes are moved ---

    @abstractmethod
    def _await(self, request: Any, steps: object, call: CollectiveCall, deadline: Deadline) -> None:
        """Return once a request is done; `steps` refer to the memory that it reads or writes."""

    @abstractmethod
    def _sending(self, part: Array, peer: int) -> Any:
        """A request that sends an array."""

    @abstractmethod
    def _receiving(self, target: Array, peer: int) -> Any:
        """A request that receives into an array."""

    def _send_and_receive(self, parts: Mapping[int, Array], targets: Mapping[int, Array]) -> Requests:
        """Send `parts` to their ranks, and receive `targets` from theirs, without copies."""
        me = self.group.rank
        requests = [self._receiving(target, peer) for peer, target in targets.items() if target.size and peer != me]
        requests += [self._sending(part, peer) for peer, part in parts.items() if part.size and peer != me]
        if me in parts and me in targets:
            targets[me][...] = parts[me]
        yield from requests

    def _gather_all(self, source: Array, parts: Array) -> Requests:
        """Copy the array of each rank r into `parts[r]` on every rank."""
        yield from self._send_and_receive(self._for_each(source), dict(enumerate(parts)))

    def _gather_pieces(self, piece: Array, whole: Array, ends: Sequence[int]) -> Requests:
        """Copy the array of each rank r into `whole[ends[r] : ends[r + 1]]` on every rank."""
        targets = [whole[start:end] for start, end in pairwise(ends)]
        yield from self._send_and_receive(self._for_each(piece), dict(enumerate(targets)))

    def _broadcast(self, data: Array, root: int) -> Requests:
        """Copy the array of rank `root` into those of the others."""
        is_root = root == self.group.rank
        yield from self._send_and_receive(self._for_each(data) if is_root else {}, {} if is_root else {root: data})

    def _for_each(self, data: Array) -> dict[int, Array]:
        return dict.fromkeys(range(self.group.size), data)

    # --- operations ---

    def _run(
        self, call: CollectiveCall, steps: Requests, deadline: Deadline, counts: Sequence[int] | None = None
    ) -> None:
        def go_through() -> None:
            if counts is not None:
                self._counts = np.empty((self.group.size, len(counts)), np.int64)
                mine = np.array(counts, np.int64)
                for request in self._gather_all(mine, self._counts):
                    self._await(request, (mine, self._counts), call, deadline)
            for request in steps:
                if request is not None:  # None for a barrier, for which comparing the calls is enough
                    self._await(request, steps, call, deadline)

        self._group.run(call, go_through, deadline)

    def _longest(self, itemsize: int) -> int:
        table = self._counts // itemsize
        if (mismatch := size_mismatch(table, self.group.ranks)) is not None:
            raise CollectiveArgumentsError(mismatch)
        return int(table.max()) * itemsize

    def _reduce(self, source: Array, out: Array | None, reduction: str) -> Requests:
        size, ranks, me = source.size, self.group.size, self.group.rank
        if source.nbytes * ranks <= _SMALL:
            parts = np.empty((ranks, size), source.dtype)
            yield from self._gather_all(source, parts)
            if out is not None:
                self._quiet.run(combine, reduction, list(parts), out)
            return
        # Each rank reduces one piece and shows the result to all, so that no rank receives more than twice the data.
        ends = [size * rank // ranks for rank in range(ranks + 1)]
        pieces = [source[start:end] for start, end in pairwise(ends)]
        result = np.empty_like(pieces[me]) if out is None else out[ends[me] : ends[me + 1]].copy()
        yield from self._reduce_parts(pieces, result, reduction)
        whole = np.empty_like(source) if out is None else out
        yield from self._gather_pieces(result, whole, ends)

    def _reduce_parts(self, sources: Sequence[Array], out: Array, reduction: str) -> Requests:
        parts = [np.empty_like(out) for _ in sources]
        yield from self._exchange(sources, dict(enumerate(parts)), lambda: 0)
        self._quiet.run(combine, reduction, parts, out)

    def _share(
        self, size: int, source: Array | None, targets: Mapping[int, Array], only: int | None = None
    ) -> Requests:
        me = self.group.rank
        if only is not None:  # from all ranks to one
            assert source is not None, "everybody has something to show"
            yield from self._send_and_receive({only: source}, targets)
        elif source is None or not targets:  # from one rank to all
            root, data = (me, source) if source is not None else next(iter(targets.items()))
            yield from self._broadcast(data, root)
        else:  # from all ranks to all
            parts = np.empty((self.group.size, source.size), source.dtype)
            yield from self._gather_all(source, parts)
            for rank, target in targets.items():
                target[...] = parts[rank]

    def _exchange(self, parts: Sequence[Array], targets: Mapping[int, Array], longest: Callable[[], int]) -> Requests:
        longest()  # only for its check
        yield from self._send_and_receive(dict(enumerate(parts)), targets)


class MessageCollectives(RequestCollectives):
    """The operations of a rank whose group is connected by streams alone: data goes where its messages go."""

    def _await(self, request: MessageRequest, steps: object, call: CollectiveCall, deadline: Deadline) -> None:
        peer = request.peer
        assert peer is not None, "each step knows its peer"
        self._group.wait(lambda: () if request.done else (peer,), call, deadline)
        if request.error is not None:
            self.group.fail(request.error)

    def _sending(self, part: Array, peer: int) -> MessageRequest:
        return self._group.messages.send(part, peer, _DATA)

    def _receiving(self, target: Array, peer: int) -> MessageRequest:
        return self._group.messages.receive(target, peer, _DATA)
