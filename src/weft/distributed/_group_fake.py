"""The backend `fake`: one process is a rank of a job of any size, to try sizes and shapes without the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np

from weft._comm.stores.store import HashStore, Store
from weft._lazy.aligned import room_like
from weft.distributed._group_backend import GroupBackend
from weft.distributed._messages import Array, CompleteMessage
from weft.distributed._reduce_op import Reduction


class FakeBackend(GroupBackend):
    """Collectives that return at once, as if the other ranks had what this one has. Reductions leave it as it is."""

    name = "fake"
    on_host = True

    def all_reduce(self, x: Array, op: Reduction) -> Array:
        return x

    def reduce(self, x: Array, root: int, op: Reduction) -> Array:
        return x

    def broadcast(self, x: Array, root: int) -> Array:
        return x

    def all_gather(self, x: Array) -> Sequence[Array]:
        return [x] * self.size

    def gather(self, x: Array, root: int) -> Sequence[Array] | None:
        return [x] * self.size if self.rank == root else None

    def scatter(self, xs: Sequence[Array] | None, like: Array, root: int) -> Array:
        return like if xs is None else xs[self.rank]

    def reduce_scatter(self, xs: Sequence[Array], op: Reduction) -> Array:
        return xs[self.rank]

    def all_to_all(self, xs: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> Sequence[Array]:
        return [_resized(np.asarray(x), shape) for x, shape in zip(xs, shapes, strict=True)]

    def send(self, x: Array, peer: int, tag: int) -> CompleteMessage:
        return CompleteMessage([], peer)

    def receive(self, like: Array, peer: int | None, tag: int) -> CompleteMessage:
        return CompleteMessage([like], (self.rank + 1) % self.size if peer is None else peer)

    def barrier(self, timeout: timedelta | None = None, operation: str = "barrier") -> None:
        pass

    def abort(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def _resized(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What fits of an array into another shape; zeros for the rest."""
    if x.shape == shape:
        return x
    result = room_like(shape, x.dtype)
    result[...] = 0
    count = min(result.size, x.size)
    result.reshape(-1)[:count] = x.reshape(-1)[:count]
    return result


def join(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> FakeBackend:
    """A rank of a group whose other ranks do not exist."""
    return FakeBackend(rank, len(ranks), timeout)


def rendezvous(rank: int, world_size: int, timeout: timedelta) -> tuple[Store, int, int]:
    """A store of its own."""
    return HashStore(), rank, world_size
