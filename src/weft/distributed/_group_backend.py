"""The interface of a group's backend, which moves arrays and knows only ranks of its group."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import jax.numpy as jnp
from jax.sharding import Mesh

from weft._base.types import Result
from weft._comm.deadline import Deadline
from weft.distributed._messages import Array, Message
from weft.distributed._reduce_op import Reduction


class _TimeoutOverride(threading.local):
    """The timeout of one thread's operations; None means that of the group."""

    timeout: timedelta | None = None


class GroupBackend(ABC):
    """Collectives over arrays. Each call blocks until this rank's part is done, at most for `timeout`.

    All ranks of the group must make the same calls in the same order. `DistBackendError` names the operation, and the
    ranks that are missing, have ended, or have called something else; the group cannot be used after it.

    crowded    whether all ranks are on a host with less than two cores for each rank
    hosts      the hosts of the job's ranks, if they are known
    on_host    whether it takes arrays in host memory, and returns NumPy arrays; other backends use jax arrays
    one_order  whether the operations of all its groups must run in one order
    mesh       the devices of the ranks, for backends whose ranks can run one program together
    in_order   calls a function after the operations that have been started; a group sets it
    """

    name: str
    crowded = False
    hosts: Sequence[str] = ()
    on_host = False
    one_order = False
    mesh: Mesh | None = None

    def __init__(self, rank: int, size: int, timeout: timedelta) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._override = _TimeoutOverride()
        self.in_order: Callable[[Callable[[], Result]], Result] = lambda function: function()

    def deadline(self, timeout: timedelta | None = None) -> Deadline:
        """The deadline of an operation that begins now, by its own timeout or that of the group."""
        if timeout is None:
            timeout = self.timeout if self._override.timeout is None else self._override.timeout
        return Deadline(timeout.total_seconds())

    @contextmanager
    def within(self, timeout: timedelta | None) -> Generator[None]:
        """Set the timeout of this thread's operations within the block; None means that of the group."""
        before, self._override.timeout = self._override.timeout, timeout
        try:
            yield
        finally:
            self._override.timeout = before

    @abstractmethod
    def all_reduce(self, x: Array, op: Reduction) -> Array:
        """The reduction of the values of all ranks."""

    def all_reduce_many(self, xs: Sequence[Array], op: Reduction) -> Sequence[Array]:
        """`all_reduce` of several arrays as one operation."""
        return [self.all_reduce(x, op) for x in xs]

    @abstractmethod
    def reduce(self, x: Array, root: int, op: Reduction) -> Array:
        """The reduction of the values of all ranks, on the rank `root`; `x` on the others."""

    @abstractmethod
    def broadcast(self, x: Array, root: int) -> Array:
        """The value of the rank `root`; on the others, `x` gives shape and type."""

    @abstractmethod
    def all_gather(self, x: Array) -> Sequence[Array]:
        """The values of all ranks, by rank, in one shape."""

    def all_gather_joined(self, x: Array) -> Array:
        """The values of all ranks, concatenated along the first dim."""
        return jnp.concatenate(list(map(jnp.asarray, self.all_gather(x))))

    @abstractmethod
    def gather(self, x: Array, root: int) -> Sequence[Array] | None:
        """The values of all ranks, by rank, on the rank `root`; None on the others."""

    @abstractmethod
    def scatter(self, xs: Sequence[Array] | None, like: Array, root: int) -> Array:
        """This rank's entry of `xs` on the rank `root`, which has one for each rank; `like` gives shape and type."""

    @abstractmethod
    def reduce_scatter(self, xs: Sequence[Array], op: Reduction) -> Array:
        """The reduction of all ranks' entries for this rank; `xs` are by rank, in one shape."""

    def reduce_scatter_joined(self, x: Array, op: Reduction) -> Array:
        """The reduction of all ranks' parts for this rank; parts divide the first dim."""
        return self.reduce_scatter(jnp.split(jnp.asarray(x), self.size), op)

    @abstractmethod
    def all_to_all(self, xs: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> Sequence[Array]:
        """All ranks' entries for this one, by rank. `xs` are by rank; `shapes` are those of the results."""

    @abstractmethod
    def send(self, x: Array, peer: int, tag: int) -> Message:
        """Start to send a value to a rank."""

    @abstractmethod
    def receive(self, like: Array, peer: int | None, tag: int) -> Message:
        """Start to receive a value with a tag from a rank, or from any (None); `like` gives shape and type."""

    @abstractmethod
    def barrier(self, timeout: timedelta | None = None, operation: str = "barrier") -> None:
        """Wait until all ranks have called this; an error if they have called it for different operations."""

    @abstractmethod
    def abort(self, text: str) -> None:
        """Make operations that wait for peers fail with this text, on all ranks. Any thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group and free its resources. There must be no operation in progress."""
