"""Groups whose collectives are a user's: methods of a subclass of `ProcessGroup`, with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np

from weft._base.state import using
from weft._base.types import Arg
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft.distributed import _group_options as options
from weft.distributed._group_backend import GroupBackend
from weft.distributed._group_collectives import GroupCollectives
from weft.distributed._messages import Array, CompleteMessage
from weft.distributed._reduce_op import Reduction
from weft.distributed.constants import default_pg_timeout
from weft.errors import UnsupportedBackendError


class UserBackend(GroupBackend):
    """Calls the methods of a user's group, with new tensors, and takes what these hold once the work is complete.

    group   the user's object, a `ProcessGroup`
    """

    name = "undefined"
    on_host = True

    def __init__(self, group: GroupCollectives, rank: int, size: int) -> None:
        super().__init__(rank, size, default_pg_timeout)
        self.group = group

    def _defines(self, method: str) -> bool:
        return getattr(type(self.group), method, None) is not getattr(GroupCollectives, method, None)

    def _call(self, method: str, *args: Arg) -> None:
        """Call a method and wait for its work; `RuntimeError` if the class does not define it."""
        if not self._defines(method):
            raise UnsupportedBackendError(
                f"Backend {self.name} does not support {method}: {type(self.group).__name__} does not define it"
            )
        with using(grad=False):
            work = getattr(self.group, method)(*args)
            if work is not None:
                work.wait()

    def all_reduce(self, x: Array, op: Reduction) -> Array:
        tensor = _tensor(x)
        self._call("allreduce", [tensor], options.AllreduceOptions(reduceOp=op))
        return _array(tensor)

    def reduce(self, x: Array, root: int, op: Reduction) -> Array:
        tensor = _tensor(x)
        self._call("reduce", [tensor], options.ReduceOptions(rootRank=root, reduceOp=op))
        return _array(tensor)

    def broadcast(self, x: Array, root: int) -> Array:
        tensor = _tensor(x)
        self._call("broadcast", [tensor], options.BroadcastOptions(rootRank=root))
        return _array(tensor)

    def all_gather(self, x: Array) -> Sequence[Array]:
        results = [_room(x.shape, x.dtype) for _ in range(self.size)]
        self._call("allgather", [results], [_tensor(x)], options.AllgatherOptions())
        return list(map(_array, results))

    def gather(self, x: Array, root: int) -> Sequence[Array] | None:
        results = [_room(x.shape, x.dtype) for _ in range(self.size)] if self.rank == root else []
        self._call("gather", [results] if results else [], [_tensor(x)], options.GatherOptions(rootRank=root))
        return list(map(_array, results)) or None

    def scatter(self, xs: Sequence[Array] | None, like: Array, root: int) -> Array:
        result = _tensor(like)
        sources = [] if xs is None else [list(map(_tensor, xs))]
        self._call("scatter", [result], sources, options.ScatterOptions(rootRank=root))
        return _array(result)

    def reduce_scatter(self, xs: Sequence[Array], op: Reduction) -> Array:
        result = _room(xs[self.rank].shape, xs[self.rank].dtype)
        self._call("reduce_scatter", [result], [list(map(_tensor, xs))], options.ReduceScatterOptions(reduceOp=op))
        return _array(result)

    def all_to_all(self, xs: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> Sequence[Array]:
        results = [_room(shape, xs[0].dtype) for shape in shapes]
        self._call("alltoall", results, list(map(_tensor, xs)), options.AllToAllOptions())
        return list(map(_array, results))

    def send(self, x: Array, peer: int, tag: int) -> CompleteMessage:
        self._call("send", [_tensor(x)], peer, tag)
        return CompleteMessage([], peer)

    def receive(self, like: Array, peer: int | None, tag: int) -> CompleteMessage:
        tensor = _tensor(like)
        if peer is None:
            self._call("recv_anysource", [tensor], tag)
        else:
            self._call("recv", [tensor], peer, tag)
        return CompleteMessage([_array(tensor)], self.rank if peer is None else peer)

    def barrier(self, timeout: timedelta | None = None, operation: str = "barrier") -> None:
        if operation == "barrier" or self._defines("barrier"):  # others only compare what ranks call
            self._call("barrier", options.BarrierOptions())

    def abort(self, text: str) -> None:
        """Nothing: the user's group knows no such thing."""

    def close(self) -> None:
        """Call the group's `shutdown`, if it has one."""
        shutdown = getattr(self.group, "shutdown", None)
        if callable(shutdown):
            shutdown()


def _tensor(x: Array) -> Tensor:
    return from_host(np.asarray(x))


def _room(shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    return from_host(np.zeros(shape, dtype))


def _array(tensor: Tensor) -> Array:
    return tensor._read().read()
