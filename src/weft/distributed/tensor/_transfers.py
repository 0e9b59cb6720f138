"""Transfers: differentiable exchanges of parts along one dim of a mesh, as functions of plain values.

Inside of a backward pass, the gradient of a split value is split, and the gradient of all others is whole: of a
replicated value as of a partial one. So the derivative of each transfer is a transfer, or nothing. The gradient of a
partial value is whole, but each rank goes on with it for its own part: where it is differentiated again, the ranks'
gradients of it are added up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import jax

from weft._base.site import user_site
from weft._base.state import ambient, using
from weft._lazy.aval import aval_of
from weft._lazy.external import taken_in
from weft._lazy.record import record
from weft._lazy.role import Interior
from weft._lazy.runtime import filled_array
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import zeros
from weft._tensor.leaf import leaf
from weft._tensor.tensor import Tensor, wrap
from weft.distributed import _functional_collectives as collectives
from weft.distributed._group import ProcessGroup
from weft.distributed._observers import collective
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._placements import part

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transfer:
    """An exchange along a dim of a mesh, or the tensor itself where `run` is None.

    `derivative` takes the cotangent; None passes it on.
    """

    name: str
    run: Callable[[Tensor], Tensor] | None
    derivative: Callable[[], Transfer] | None
    collective: str = ""  # what it calls, under PyTorch's name; "" if nothing is sent


def transferred(value: Value, transfer: Transfer, past: Value | None = None) -> Value:
    """The result of a transfer on a plain value. Unless it was in the `past`, it is computed now: others take part."""
    value = taken_in(value)
    is_linked = value.role is not None and ambient().grad
    if transfer.run is None and not is_linked:
        return value
    if transfer.run is None or past is not None:
        with using(grad=False):
            result = wrap(past or value).detach()._read()
    else:
        # The exchange itself is not on the tape; its derivative is another transfer, linked below.
        with using(grad=False), _announced(transfer, value):
            result = transfer.run(wrap(value))._read()
    if not is_linked:
        return result
    signature = Signature(transfer.name, _first, (result.aval, value.aval), device=result.aval.device, rounds=False)
    (linked,) = record(signature, (result, value), ambient())
    _Derivative(transfer).link([linked])
    return linked


def _first(x: jax.Array, _: jax.Array) -> tuple[jax.Array]:
    return (x,)


class _Derivative:
    """The derivative of a transfer, as the tape of its result has it."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    def link(self, values: Sequence[Value]) -> None:
        """Make it the derivative of a result of this transfer."""
        for value in values:
            value.role = Interior(custom=self)

    def __call__(self, cotangents: dict[int, Value], members: list[Value]) -> list[Value | None]:
        """The gradients of the result's own elements and of what was transferred."""
        del members
        cotangent, derivative = cotangents[0], self._transfer.derivative
        return [None, cotangent if derivative is None else transferred(cotangent, derivative())]


def _announced(transfer: Transfer, value: Value) -> AbstractContextManager[None]:
    """A block in which a transfer runs."""
    if not transfer.collective:
        return nullcontext()
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s of %s, %d bytes, at %s", transfer.collective, value.aval, value.aval.nbytes, user_site())
    return collective(transfer.collective, (value,), requested=False)


# --- which there are ------------------------------------------------------------------------------------------


def gather(
    mesh: DeviceMesh, mesh_dim: int, dim: int, size: int, *, scatters: bool = False, divisor: int = 1
) -> Transfer:
    """Parts of a dim of this size, joined on all, and divided by `divisor`.

    With `scatters`, gradients of the result are added up over ranks; with the number of ranks as divisor, averaged.
    """
    group, count = mesh.get_group(mesh_dim), mesh.shape[mesh_dim]

    def run(x: Tensor) -> Tensor:
        # Ranks without elements, or with fewer, send filled-up parts, as collectives take equal sizes.
        whole = collectives.all_gather_single(_padded(x, dim, -(-size // count)), dim, group)
        joined = _cut(whole, dim, 0, size)
        return joined if divisor == 1 else joined / divisor

    def back() -> Transfer:
        if not scatters:
            return take(mesh, mesh_dim, dim, size)
        return reduce_scatter(mesh, mesh_dim, dim, size, "sum" if divisor == 1 else "avg")

    return Transfer("all_gather", run, back, "all_gather_into_tensor")


def take(mesh: DeviceMesh, mesh_dim: int, dim: int, size: int) -> Transfer:
    """This rank's part, along a dim of this size, of what all have."""
    own = part(size, mesh.shape[mesh_dim], mesh.get_local_rank(mesh_dim))
    return Transfer("shard", lambda x: _cut(x, dim, *own), lambda: gather(mesh, mesh_dim, dim, size))


def reduce_scatter(mesh: DeviceMesh, mesh_dim: int, dim: int, size: int, reduce_op: str = "sum") -> Transfer:
    """This rank's part, along a dim of this size, of the reduction of all ranks' tensors."""
    group, count = mesh.get_group(mesh_dim), mesh.shape[mesh_dim]
    length = part(size, count, mesh.get_local_rank(mesh_dim))[1]

    def run(x: Tensor) -> Tensor:
        if not size:
            return x
        padded = _padded(x, dim, -(-size // count) * count)
        return _cut(collectives.reduce_scatter_single(padded, reduce_op, dim, group), dim, 0, length)

    def back() -> Transfer:
        return gather(mesh, mesh_dim, dim, size, scatters=True, divisor=count if reduce_op == "avg" else 1)

    return Transfer("reduce_scatter", run, back, "reduce_scatter_tensor")


def all_reduce(group: ProcessGroup, reduce_op: str = "sum") -> Transfer:
    """The reduction of all ranks' tensors."""
    back = {"sum": lambda: spread(group), "avg": lambda: spread_share(group)}.get(reduce_op)
    return Transfer("all_reduce", lambda x: collectives.all_reduce(x.clone(), reduce_op, group), back, "all_reduce")


def all_to_all(mesh: DeviceMesh, mesh_dim: int, source: int, size: int, target: int, target_size: int) -> Transfer:
    """From parts of the dim `source`, which has this size, to parts of the dim `target`."""
    group, index, count = mesh.get_group(mesh_dim), mesh.get_local_rank(mesh_dim), mesh.shape[mesh_dim]
    step, length = -(-target_size // count), -(-size // count)

    def run(x: Tensor) -> Tensor:
        # A tensor without elements has nothing to send; every rank knows that, so none waits.
        if not size * target_size:
            shape = [*x.shape]
            shape[source], shape[target] = size, part(target_size, count, index)[1]
            return _zeros(x, shape)
        padded = _padded(_padded(x, target, step * count), source, length)
        parts = rows.stack(list(padded.split(step, target)), 0)
        received = collectives.all_to_all_single(parts, None, None, group)
        whole = _cut(rows.cat(list(received.unbind(0)), source), source, 0, size)
        return _cut(whole, target, 0, part(target_size, count, index)[1])

    return Transfer(
        "all_to_all",
        run,
        lambda: all_to_all(mesh, mesh_dim, target, target_size, source, size),
        "all_to_all_single",
    )


def rotate(mesh: DeviceMesh, mesh_dim: int, places: int = 1) -> Transfer:
    """What the rank so many places before this one has; the first rank comes after the last."""
    group, index, count = mesh.get_group(mesh_dim), mesh.get_local_rank(mesh_dim), mesh.shape[mesh_dim]

    def run(x: Tensor) -> Tensor:
        sent, received = [0] * count, [0] * count
        sent[(index + places) % count] = received[(index - places) % count] = x.shape[0]
        return collectives.all_to_all_single(x, received, sent, group)

    return Transfer("all_to_all", run, lambda: rotate(mesh, mesh_dim, -places), "all_to_all_single")


def unreduced(mesh: DeviceMesh, mesh_dim: int, reduce_op: str = "sum") -> Transfer:
    """What all have, as tensors whose reduction it is: for a sum or a product, all ranks but the first have 0 or 1."""
    count = mesh.shape[mesh_dim]
    if reduce_op in ("sum", "product") and mesh.get_local_rank(mesh_dim) > 0:
        neutral = float(reduce_op == "product")
        return Transfer("partial", lambda x: _zeros(x, x.shape).fill_(neutral), None)
    averaged = (lambda: times(count)) if reduce_op == "avg" else None
    return Transfer("partial", lambda x: x.clone(), averaged)


def spread(group: ProcessGroup) -> Transfer:
    """The tensor itself; the ranks' gradients of it are added up."""
    return Transfer("replicate", None, lambda: all_reduce(group))


def spread_share(group: ProcessGroup) -> Transfer:
    """An equal share of the tensor for each rank; the ranks' gradients of it are added up."""
    return Transfer("share", lambda x: x / group.size(), lambda: all_reduce(group, "avg"))


def times(count: int) -> Transfer:
    """The tensor `count` times."""
    return Transfer("times", lambda x: x * count, lambda: times(count))


def _cut(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x if length == x.shape[dim] else x.narrow(dim, start, length).clone()


def _zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    return zeros(shape, dtype=like.dtype, device=like.device)


def _padded(x: Tensor, dim: int, size: int) -> Tensor:
    """A tensor with zeros at the end of a dim, up to a size.

    The zeros are an array, since XLA takes a constant of one rank for that of all where ranks run programs together.
    """
    missing = size - x.shape[dim]
    if not missing:
        return x
    shape = [*x.shape]
    shape[dim] = missing
    aval = aval_of(tuple(shape), x.dtype, device=x.device)
    return rows.cat([x, wrap(leaf(aval, filled_array(aval, 0)))], dim)
