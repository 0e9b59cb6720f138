"""Groups that exchange arrays in host memory: through shared memory, between threads, over TCP, or by MPI."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from datetime import timedelta

import numpy as np

from weft._comm.deadline import Deadline
from weft._comm.groups import tcp_streams
from weft._comm.groups.collectives import Collectives
from weft._comm.groups.memory_group import MemoryGroup, connect
from weft._comm.groups.message_group import MessageGroup
from weft._comm.groups.messages import MessageRequest, Messages
from weft._comm.groups.operations import Operations
from weft._comm.groups.request_collectives import MessageCollectives
from weft._comm.shared_memory.memory import Memory, PrivateMemory, SharedMemory
from weft._comm.stores.store import Store
from weft._lazy.aligned import room_like
from weft.distributed._group_backend import GroupBackend
from weft.distributed._messages import Array
from weft.distributed._reduce_op import PremulSum, Reduction, word_of

Host = np.ndarray

_SMALL = 1 << 16  # arrays up to this size, in bytes, are exchanged together


class HostBackend(GroupBackend):
    """Collectives over NumPy arrays, for ranks that share memory or are connected by messages."""

    on_host = True

    def __init__(
        self,
        name: str,
        group: MemoryGroup | MessageGroup,
        collectives: Operations,
        messages: Messages,
        timeout: timedelta,
    ) -> None:
        super().__init__(group.rank, group.size, timeout)
        self.name = name
        self._group = group
        self._collectives = collectives
        self.messages = messages

    def all_reduce(self, x: Array, op: Reduction) -> Array:
        source = np.asarray(x)
        out = _like(source)
        self._collectives.all_reduce(source, out, word_of(op), self.deadline(), factor=_factor(op))
        return out

    def all_reduce_many(self, xs: Sequence[Array], op: Reduction) -> list[Array]:
        results: list[Array] = list(xs)
        packs: dict[Hashable, list[int]] = {}
        for at, x in enumerate(xs):
            # For short arrays an exchange costs more than the copies into one array and out of it; long ones are
            # exchanged as they are.
            if x.nbytes < _SMALL:
                packs.setdefault(x.dtype, []).append(at)
            else:
                results[at] = self.all_reduce(x, op)
        for pack in packs.values():
            whole = self.all_reduce(np.concatenate([np.asarray(xs[at]).reshape(-1) for at in pack]), op)
            for at, part in zip(pack, np.split(whole, np.cumsum([xs[at].size for at in pack])[:-1]), strict=True):
                results[at] = part.reshape(xs[at].shape)
        return results

    def reduce(self, x: Array, root: int, op: Reduction) -> Array:
        source = np.asarray(x)
        out = _like(source) if root == self.rank else None
        self._collectives.reduce(source, out, root, word_of(op), self.deadline(), factor=_factor(op))
        return x if out is None else out

    def broadcast(self, x: Array, root: int) -> Array:
        source = np.asarray(x)
        if root == self.rank:
            self._collectives.broadcast(source, root, self.deadline())
            return x
        out = _like(source)
        self._collectives.broadcast(out, root, self.deadline())
        return out

    def all_gather(self, x: Array) -> Sequence[Array]:
        source = np.asarray(x)
        outs = [_like(source) for _ in range(self.size)]
        self._collectives.all_gather(source, outs, self.deadline())
        return outs

    def all_gather_joined(self, x: Array) -> Array:
        source = np.asarray(x)
        whole = room_like((self.size * source.shape[0], *source.shape[1:]), source.dtype)
        self._collectives.all_gather(source, np.split(whole, self.size), self.deadline())
        return whole

    def gather(self, x: Array, root: int) -> Sequence[Array] | None:
        source = np.asarray(x)
        outs = [_like(source) for _ in range(self.size)] if root == self.rank else None
        self._collectives.gather(source, outs, root, self.deadline())
        return outs

    def scatter(self, xs: Sequence[Array] | None, like: Array, root: int) -> Array:
        out = _like(np.asarray(like))
        self._collectives.scatter(None if xs is None else list(map(np.asarray, xs)), out, root, self.deadline())
        return out

    def reduce_scatter(self, xs: Sequence[Array], op: Reduction) -> Array:
        sources = list(map(np.asarray, xs))
        out = _like(sources[self.rank])
        self._collectives.reduce_scatter(sources, out, word_of(op), self.deadline(), factor=_factor(op))
        return out

    def reduce_scatter_joined(self, x: Array, op: Reduction) -> Array:
        return self.reduce_scatter(np.split(np.asarray(x), self.size), op)

    def all_to_all(self, xs: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> Sequence[Array]:
        sources = list(map(np.asarray, xs))
        outs = [room_like(shape, sources[0].dtype) for shape in shapes]
        self._collectives.all_to_all(sources, outs, self.deadline())
        return outs

    def barrier(self, timeout: timedelta | None = None, operation: str = "barrier") -> None:
        self._collectives.barrier(self.deadline(timeout), operation)

    def send(self, x: Array, peer: int, tag: int) -> _HostMessage:
        return _HostMessage(self, self.messages.send(np.asarray(x), peer, tag), [])

    def receive(self, like: Array, peer: int | None, tag: int) -> _HostMessage:
        out = _like(np.asarray(like))
        return _HostMessage(self, self.messages.receive(out, peer, tag), [out])

    def abort(self, text: str) -> None:
        self._group.abort(text)

    def close(self) -> None:
        self._collectives.close()
        self.messages.close()


class _HostMessage:
    """A send or receive in a host group."""

    def __init__(self, backend: HostBackend, request: MessageRequest, received: list[Host]) -> None:
        self._backend = backend
        self._request = request
        self._received = received

    @property
    def done(self) -> bool:
        if not self._request.done:
            self._backend.messages.progress()
        return self._request.done

    def wait(self) -> tuple[Sequence[Array], int]:
        self._backend.messages.wait(self._request, self._backend.deadline())
        assert self._request.peer is not None, "a message that has come has a source"
        return self._received, self._request.peer


def _like(source: Host) -> Host:
    """Memory for a result, which may become that of an array."""
    return room_like(source.shape, source.dtype)


def _factor(op: Reduction) -> float | None:
    return op.factor if isinstance(op, PremulSum) else None


def join_processes(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> HostBackend:
    """The backend `shm`: processes of one user on one host."""
    return _join("shm", SharedMemory, store, rank, ranks, timeout)


def join_messages(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> HostBackend:
    """The backend `tcp`: processes on any hosts."""
    streams = tcp_streams.connect(store, rank, len(ranks), Deadline(timeout.total_seconds()), ranks=ranks)
    return over_streams("tcp", streams, rank, ranks, timeout)


def over_streams(
    name: str, streams: tcp_streams.TcpStreams, rank: int, ranks: Sequence[int], timeout: timedelta
) -> HostBackend:
    """A backend of this name whose collectives and messages go through these streams."""
    group = MessageGroup(streams, rank, len(ranks), ranks)
    return HostBackend(name, group, MessageCollectives(group), group.messages, timeout)


def join_threads(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> HostBackend:
    """The backend `threads`: threads of one process."""
    return _join("threads", PrivateMemory, store, rank, ranks, timeout)


def _join(
    name: str, memory: type[Memory], store: Store, rank: int, ranks: Sequence[int], timeout: timedelta
) -> HostBackend:
    group = connect(memory, store, rank, len(ranks), Deadline(timeout.total_seconds()), ranks=ranks)
    backend = HostBackend(name, group, Collectives(group), Messages(group), timeout)
    backend.crowded = len(os.sched_getaffinity(0)) < 2 * len(ranks)
    return backend
