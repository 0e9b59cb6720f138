"""Context parallelism: sequences of which each process has a part, and buffers that are divided with them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TypeVar

from weft._base.cell import LocalCell
from weft._base.state import using
from weft._base.types import Result
from weft._tensor.codegen import op as rows
from weft._tensor.dim_names import position
from weft._tensor.tensor import Tensor
from weft.distributed._functional_collectives import all_gather_single
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._ring_attention import AttentionRing
from weft.errors import ArgumentError, DimError, DistError, UnsupportedError, ValueRangeError

T = TypeVar("T")


def _of_cell(cell: LocalCell[T]) -> Result:
    """An attribute that stands in a cell."""
    return property(lambda _: cell.get(), lambda _, value: cell.set(value))


class _Options:
    """Those of this thread, under PyTorch's names.

    enable_load_balance   whether each rank has chunks from both ends of a sequence, where its length allows it
    rotate_method         "allgather" or "alltoall"
    """

    enable_load_balance = _of_cell(LocalCell("whether sequences are balanced among ranks", True))
    rotate_method = _of_cell(LocalCell("how parts of sequences are sent", "allgather"))


# no cell: its attributes stand in cells
options = _Options()


def set_rotate_method(rotate_method: str) -> None:
    """Set how keys and values get to the other ranks, from the next `context_parallel` of this thread on.

    "allgather", the default, gathers all at once. "alltoall" sends them from rank to rank, so that a rank has those of
    two ranks at a time. `NotImplementedError` for anything else.
    """
    if rotate_method not in ("allgather", "alltoall"):
        raise UnsupportedError(
            f"Context Parallel does not support using {rotate_method} for kv shards rotation; the methods are "
            "'allgather' and 'alltoall'"
        )
    options.rotate_method = rotate_method


@contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: Sequence[Tensor] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: AbstractSet[Tensor] | None = None,
) -> Generator[None]:
    """Within the block, each process of a mesh of one dim works on its part of sequences.

    Of each buffer, such as tokens, labels and tables of positions, the process keeps its part along the dim that
    `buffer_seq_dims` gives: in place, until the block ends, except for those in `no_restore_buffers`. All processes
    must have the whole buffers. `scaled_dot_product_attention` attends to the whole sequence, by ring attention.

    If twice the number of processes divides the length, a process has two chunks, as far from the start of the sequence
    as from its end, so that causal attention is equal work for all. Otherwise its part is one chunk.

    `ValueError` for a length that the number of processes does not divide; `RuntimeError` for buffers that need
    gradients, as parameters do. Nothing has been changed then.
    """
    _require_line(mesh, "context_parallel")
    buffers, dims = list(buffers or ()), list(buffer_seq_dims or ())
    kept = {id(buffer) for buffer in no_restore_buffers or ()}
    if not kept <= {id(buffer) for buffer in buffers}:
        raise ValueRangeError("`no_restore_buffers` must be a subset of `buffers`.")
    dims = _checked_dims(mesh, buffers, dims)
    # All parts before any buffer is changed: a length that does not divide must leave all of them as they were.
    with using(grad=False):
        parts = [_own_part(mesh, buffer, dim) for buffer, dim in zip(buffers, dims, strict=True)]
    wholes = [(buffer, buffer.data) for buffer in buffers if id(buffer) not in kept]
    for buffer, part in zip(buffers, parts, strict=True):
        buffer.data = part
    ring = AttentionRing(mesh, options.enable_load_balance, options.rotate_method == "allgather")
    try:
        with using(attention=ring):
            yield
    finally:
        for buffer, whole in wholes:
            buffer.data = whole


def context_parallel_unshard(mesh: DeviceMesh, buffers: Sequence[Tensor], seq_dims: Sequence[int]) -> list[Tensor]:
    """The whole tensors of which each process has the part that `context_parallel` gives it.

    `seq_dims` are the dims along which they are divided. All processes must call it. Gradients do not flow.
    """
    _require_line(mesh, "context_parallel_unshard")
    _require_equally_many(buffers, seq_dims)
    with using(grad=False):
        return [_joined(mesh, buffer, _dim(buffer, dim)) for buffer, dim in zip(buffers, seq_dims, strict=True)]


# --- parts ----------------------------------------------------------------------------------------------------


def _is_balanced(length: int, count: int) -> bool:
    return options.enable_load_balance and not length % (2 * count)


def _own_part(mesh: DeviceMesh, whole: Tensor, dim: int) -> Tensor:
    """A copy of this process's part."""
    count, rank = mesh.size(), mesh.get_local_rank()
    if not _is_balanced(whole.shape[dim], count):
        return whole.chunk(count, dim)[rank].clone()
    chunks = whole.chunk(2 * count, dim)
    return rows.cat([chunks[rank], chunks[-1 - rank]], dim)


def _joined(mesh: DeviceMesh, part: Tensor, dim: int) -> Tensor:
    whole = all_gather_single(part.detach(), dim, mesh.get_group())
    if not _is_balanced(whole.shape[dim], mesh.size()):
        return whole
    chunks = list(whole.chunk(2 * mesh.size(), dim))
    return rows.cat([*chunks[::2], *reversed(chunks[1::2])], dim)


# --- what is refused ------------------------------------------------------------------------------------------


def _require_line(mesh: object, call: str) -> None:
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentError(f"{call}: mesh must be a DeviceMesh, as init_device_mesh makes it, but got {mesh!r}")
    if mesh.ndim != 1:
        raise DistError(f"{call} takes a mesh of one dim, but got one with {mesh.ndim}; slice it, as mesh['cp']")


def _require_equally_many(buffers: Sequence[Tensor], dims: Sequence[int]) -> None:
    if len(buffers) != len(dims):
        raise ValueRangeError(
            "`seq_dims` must have the same number of elements as `buffers`."
            f" Found {len(dims)} dims for {len(buffers)} buffers."
        )


def _dim(buffer: object, dim: int | str) -> int:
    if not isinstance(buffer, Tensor):
        raise ValueRangeError(f"Unknown buffer type: {type(buffer)}; buffers are tensors")
    at = position(buffer, dim) if isinstance(dim, str) else dim
    if not -buffer.ndim <= at < buffer.ndim:
        raise DimError(f"the sequence dim {dim} is out of range for a buffer of size {list(buffer.shape)}")
    return at % buffer.ndim


def _checked_dims(mesh: DeviceMesh, buffers: Sequence[Tensor], dims: Sequence[int]) -> list[int]:
    """The sequence dim of each buffer, if all of them can be divided."""
    _require_equally_many(buffers, dims)
    wanted = [_dim(buffer, dim) for buffer, dim in zip(buffers, dims, strict=True)]
    for at, buffer in enumerate(buffers):
        if buffer.requires_grad:
            raise DistError(
                f"cannot resize variables that require grad: buffer {at} of context_parallel is a "
                f"{type(buffer).__name__} with gradients; divide what the program computes from it, or detach it"
            )
    lengths = [buffer.shape[dim] for buffer, dim in zip(buffers, wanted, strict=True)]
    if len(set(lengths)) > 1:
        raise ValueRangeError(
            f"context_parallel: the buffers must have one sequence length, but have {lengths} along {wanted}; slice "
            "longer ones, as table[:length]"
        )
    if lengths and lengths[0] % mesh.size():
        raise ValueRangeError(
            f"context_parallel: the sequence length {lengths[0]} must be divisible by the {mesh.size()} processes of "
            "the mesh; pad the sequences"
        )
    return wanted
