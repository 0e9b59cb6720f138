"""Collectives over tensors, with PyTorch's names and arguments.

All of them write into the given tensors, outside the tape; `weft.distributed.nn.functional` has differentiable ones.
With `async_op=True` they return a `Work`. A rank that is not a member of the group gets None, and a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta

from weft._base.guards import is_list_or_tuple
from weft._tensor.kind_names import kind_of
from weft._tensor.sparse.tensor import SparseTensor
from weft._tensor.tensor import Tensor
from weft.distributed._arguments import (
    are_uneven,
    of_all_ranks,
    one_tensor,
    or_first,
    rank_of,
    reduction_of,
    require_list_at_root,
    require_one_each,
    require_rank,
    require_type,
    root_of,
    tensors_of,
)
from weft.distributed._group import ProcessGroup, give_names
from weft.distributed._messages import Array
from weft.distributed._reduce_op import ReduceOp, Reduction
from weft.distributed._sparse_sum import all_reduce_sparse
from weft.distributed._work import Work
from weft.distributed._world import AnyGroup, member_of, require_timedelta
from weft.errors import ArgumentError, DimError, DTypeError, OutOfRangeError, ShapeError, ValueRangeError
from weft.futures import Future

# --- all ranks get the same result ------------------------------------------------------------------------------


def all_reduce(
    tensor: Tensor, op: Reduction = ReduceOp.SUM, group: AnyGroup = None, async_op: bool = False
) -> Work | None:
    """Reduce the tensors of all ranks, which have one shape and type; all of them get the result."""
    if isinstance(tensor, SparseTensor):
        return all_reduce_sparse(tensor, op, member_of(group, "all_reduce"), async_op=async_op)
    target = one_tensor(tensor, "tensor", "all_reduce")
    reduction = reduction_of(op, [target], "all_reduce", ValueRangeError)
    process_group = member_of(group, "all_reduce")
    if process_group is None:
        return None
    backend = process_group.own_backend
    return process_group.run(
        "all_reduce", lambda xs: [backend.all_reduce(xs[0], reduction)], [target], [target], async_op=async_op
    )


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Reduction = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Future[list[Tensor]] | None:
    """`all_reduce` of several tensors as one operation; with `async_op`, returns a future of them."""
    work = start_all_reduce_coalesced(tensors, op, group, async_op)
    return None if work is None else work.get_future()


def start_all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Reduction = ReduceOp.SUM, group: AnyGroup = None, async_op: bool = True
) -> Work | None:
    """`all_reduce_coalesced`, but returns a work."""
    targets = tensors_of(tensors, "tensors", "all_reduce_coalesced")
    reduction = reduction_of(op, targets, "all_reduce", ValueRangeError)
    process_group = member_of(group, "all_reduce_coalesced")
    if process_group is None:
        return None
    backend = process_group.own_backend
    return process_group.run(
        "all_reduce_coalesced", lambda xs: backend.all_reduce_many(xs, reduction), targets, targets, async_op=async_op
    )


def broadcast(
    tensor: Tensor, src: int | None = None, group: AnyGroup = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Copy the tensor of rank `src` to the tensors of all ranks, which have its shape and type."""
    target = one_tensor(tensor, "tensor", "broadcast")
    process_group = member_of(group, "broadcast", src)
    if process_group is None:
        return None
    backend, root = process_group.own_backend, root_of(process_group, src, group_src, "src")
    return process_group.run(
        "broadcast", lambda xs: [backend.broadcast(xs[0], root)], [target], [target], async_op=async_op
    )


def barrier(
    group: AnyGroup = None, async_op: bool = False, device_ids: object = None, timeout: timedelta | None = None
) -> Work | None:
    """Wait until all ranks have called this, at most `timeout`, by default the group's."""
    del device_ids
    if timeout is not None:
        require_timedelta(timeout)
    process_group = member_of(group, "barrier")
    if process_group is None:
        return None
    backend = process_group.own_backend

    def call(_: Sequence[Array]) -> list[Array]:
        backend.barrier(timeout)
        return []

    return process_group.run("barrier", call, [], [], async_op=async_op)


def monitored_barrier(group: AnyGroup = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """`barrier` whose error names the ranks that have not come within `timeout`.

    The timeout is that of the group's first rank. Its error names the first missing rank or, with `wait_all_ranks`, all
    of them. The other ranks wait for the first one's outcome and raise the same error, or one of their own if the first
    rank does not come.
    """
    # PyTorch takes floats here, with this warning, though the annotation says timedelta.
    if isinstance(timeout, float):
        warnings.warn(
            f"Please specify timeout arg as a timedelta. Converting current value of {timeout} assuming it represents "
            "seconds",
            stacklevel=2,
        )
        timeout = timedelta(seconds=timeout)
    if timeout is not None:
        require_timedelta(timeout)
    process_group = member_of(group, "monitored_barrier")
    if process_group is not None:
        process_group.await_ranks_monitored(timeout, wait_all_ranks=wait_all_ranks)


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: AnyGroup = None, async_op: bool = False
) -> Work | None:
    """Put the tensor of rank i into `tensor_list[i]`, on all ranks; shapes may differ."""
    source = one_tensor(tensor, "tensor", "all_gather")
    process_group = member_of(group, "all_gather")
    if process_group is None:
        return None
    results = of_all_ranks(tensor_list, source, process_group, "tensor_list", "all_gather", uneven=True)
    backend = process_group.own_backend
    if are_uneven(results):
        shapes = [tuple(x.shape) for x in results]
        return process_group.run(
            "all_gather",
            lambda xs: backend.all_to_all([xs[0]] * len(shapes), shapes),
            [source],
            results,
            async_op=async_op,
        )
    return process_group.run("all_gather", lambda xs: backend.all_gather(xs[0]), [source], results, async_op=async_op)


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Future[list[Tensor]] | None:
    """Put `input_tensor_list[k]` of rank i into `output_tensor_lists[i][k]`; with `async_op`, returns a future."""
    work = start_all_gather_coalesced(output_tensor_lists, input_tensor_list, group, async_op)
    return None if work is None else work.get_future()


def start_all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: AnyGroup = None,
    async_op: bool = True,
) -> Work | None:
    """`all_gather_coalesced`, but returns a work."""
    name = "all_gather_coalesced"
    sources = tensors_of(input_tensor_list, "input_tensor_list", name)
    process_group = member_of(group, name)
    if process_group is None:
        return None
    if not is_list_or_tuple(output_tensor_lists):
        raise ArgumentError(f"{name}: `output_tensor_lists` must be a list, but got {kind_of(output_tensor_lists)}")
    require_one_each(output_tensor_lists, process_group, "output_tensor_lists", name)
    by_rank = [tensors_of(outputs, f"output_tensor_lists[{i}]", name) for i, outputs in enumerate(output_tensor_lists)]
    for rank, outputs in enumerate(by_rank):
        if len(outputs) != len(sources):
            raise OutOfRangeError(
                f"{name}: `output_tensor_lists[{rank}]` has {len(outputs)} tensors, but `input_tensor_list` "
                f"{len(sources)}"
            )
    with process_group.coalescing() as calls:
        for x, *results in zip(sources, *by_rank, strict=True):
            all_gather(results, x, process_group)
    return process_group.run_all(calls, async_op=async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: AnyGroup = None, async_op: bool = False
) -> Work | None:
    """Concatenate or stack the tensors of all ranks: (ranks * n, …) or (ranks, n, …) from (n, …)."""
    name = "all_gather_into_tensor"
    target, source = one_tensor(output_tensor, "output_tensor", name), one_tensor(input_tensor, "input_tensor", name)
    process_group = member_of(group, name)
    if process_group is None:
        return None
    give_names([source], [target])
    backend = process_group.own_backend
    # Joined, the backend writes straight into the result; otherwise each rank's part would be copied once more.
    if _is_joined(target, source, process_group, "output_tensor", name):
        return process_group.run(
            name, lambda xs: [backend.all_gather_joined(xs[0])], [source], [target], async_op=async_op
        )
    return process_group.run(
        name, lambda xs: backend.all_gather(xs[0]), [source], list(target.unbind(0)), async_op=async_op
    )


def _is_joined(whole: Tensor, part: Tensor, group: ProcessGroup, name: str, operation: str) -> bool:
    """Whether the parts of all ranks are concatenated in a tensor, or stacked; an error if they are neither."""
    require_type(whole, part, name, operation, DTypeError)
    size, shape = group.size(), tuple(part.shape)
    if tuple(whole.shape) == (size, *shape):
        return False
    if shape and tuple(whole.shape) == (size * shape[0], *shape[1:]):
        return True
    raise ShapeError(
        f"{operation}: {name} has shape {list(whole.shape)}; with {size} ranks and parts of shape {list(shape)} it "
        f"must be {[size, *shape]}" + (f" or {[size * shape[0], *shape[1:]]}" if shape else "")
    )


# --- one rank sends or gets the result --------------------------------------------------------------------------


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Reduction = ReduceOp.SUM,
    group: AnyGroup = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduce the tensors of all ranks; that of rank `dst` gets the result."""
    target = one_tensor(tensor, "tensor", "reduce")
    reduction = reduction_of(op, [target], "reduce")
    process_group = member_of(group, "reduce", dst)
    if process_group is None:
        return None
    backend, root = process_group.own_backend, root_of(process_group, dst, group_dst, "dst")
    results = [target] if backend.rank == root else []

    # Ranks other than the root have no result to write, but take part all the same.
    def call(xs: Sequence[Array]) -> list[Array]:
        result = backend.reduce(xs[0], root, reduction)
        return [result] if results else []

    return process_group.run("reduce", call, [target], results, async_op=async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: AnyGroup = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Put the tensor of rank i into `gather_list[i]` of rank `dst` (by default 0); other ranks give no list."""
    source = one_tensor(tensor, "tensor", "gather")
    process_group = member_of(group, "gather", dst)
    if process_group is None:
        return None
    backend, root = process_group.own_backend, rank_of(process_group, *or_first(dst, group_dst, process_group), "dst")
    # Before the rank is checked, as in PyTorch: a wrong list is the error that a caller sees first.
    require_list_at_root(gather_list, "gather_list", "destination", is_root=backend.rank == root)
    require_rank(root, process_group, "dst")
    results: list[Tensor] = []
    if gather_list:
        results = of_all_ranks(gather_list, source, process_group, "gather_list", "gather")
    return process_group.run(
        "gather", lambda xs: backend.gather(xs[0], root) or [], [source], results, async_op=async_op
    )


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: AnyGroup = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Put `scatter_list[i]` of rank `src` (by default 0) into the tensor of rank i; other ranks give no list."""
    target = one_tensor(tensor, "tensor", "scatter")
    process_group = member_of(group, "scatter", src)
    if process_group is None:
        return None
    backend, root = process_group.own_backend, rank_of(process_group, *or_first(src, group_src, process_group), "src")
    require_list_at_root(scatter_list, "scatter_list", "source", is_root=backend.rank == root)
    require_rank(root, process_group, "src")
    # The target tells the backend of ranks without a list what they will get.
    sources = [target]
    if scatter_list:
        sources += of_all_ranks(scatter_list, target, process_group, "scatter_list", "scatter")

    def call(xs: Sequence[Array]) -> list[Array]:
        return [backend.scatter(xs[1:] or None, xs[0], root)]

    return process_group.run("scatter", call, sources, [target], async_op=async_op)


# --- all ranks send to all ranks --------------------------------------------------------------------------------


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: Reduction = ReduceOp.SUM,
    group: AnyGroup = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce the tensors `input_list[rank]` of all ranks for this rank into `output`; shapes may differ by rank."""
    target = one_tensor(output, "output", "reduce_scatter")
    reduction = reduction_of(op, [target], "reduce_scatter")
    process_group = member_of(group, "reduce_scatter")
    if process_group is None:
        return None
    backend = process_group.own_backend
    sources = of_all_ranks(input_list, target, process_group, "input_list", "reduce_scatter", uneven=True)
    uneven = are_uneven(sources)

    def call(xs: Sequence[Array]) -> list[Array]:
        if not uneven:
            return [backend.reduce_scatter(xs, reduction)]
        # The backend's own operation needs parts of one size; for uneven ones each rank's part is reduced by itself.
        return [[backend.reduce(x, root, reduction) for root, x in enumerate(xs)][backend.rank]]

    return process_group.run("reduce_scatter", call, sources, [target], async_op=async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Reduction = ReduceOp.SUM, group: AnyGroup = None, async_op: bool = False
) -> Work | None:
    """`reduce_scatter` of one tensor: (ranks * n, …) or (ranks, n, …) for an output (n, …)."""
    name = "reduce_scatter_tensor"
    target, source = one_tensor(output, "output", name), one_tensor(input, "input", name)
    reduction = reduction_of(op, [target], name)
    process_group = member_of(group, name)
    if process_group is None:
        return None
    backend = process_group.own_backend
    if _is_joined(source, target, process_group, "input", name):
        return process_group.run(
            name, lambda xs: [backend.reduce_scatter_joined(xs[0], reduction)], [source], [target], async_op=async_op
        )
    parts = list(source.unbind(0))
    return process_group.run(
        name, lambda xs: [backend.reduce_scatter(xs, reduction)], parts, [target], async_op=async_op
    )


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: AnyGroup = None,
    async_op: bool = False,
) -> Work | None:
    """Send `input_tensor_list[i]` to rank i, and put what it sends into `output_tensor_list[i]`; shapes may differ."""
    name = "all_to_all"
    results = tensors_of(output_tensor_list, "output_tensor_list", name)
    sources = tensors_of(input_tensor_list, "input_tensor_list", name)
    process_group = member_of(group, name)
    if process_group is None:
        return None
    for tensors, what in ((results, "output_tensor_list"), (sources, "input_tensor_list")):
        require_one_each(tensors, process_group, what, name)
        for rank, x in enumerate(tensors):
            require_type(x, sources[0], f"{what}[{rank}]", name)
    return _exchange(process_group, name, sources, results, async_op=async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: AnyGroup = None,
    async_op: bool = False,
) -> Work | None:
    """Send a part of `input`, along the first dim, to each rank, and concatenate the parts received.

    Parts have equal sizes, or those in `input_split_sizes` and `output_split_sizes`.
    """
    name = "all_to_all_single"
    target, source = one_tensor(output, "output", name), one_tensor(input, "input", name)
    process_group = member_of(group, name)
    if process_group is None:
        return None
    require_type(target, source, "output", name)
    give_names([source], [target])
    return _exchange(
        process_group,
        name,
        _split(source, input_split_sizes, process_group.size(), "input"),
        _split(target, output_split_sizes, process_group.size(), "output"),
        async_op=async_op,
    )


def _exchange(
    group: ProcessGroup, name: str, sources: list[Tensor], results: list[Tensor], *, async_op: bool
) -> Work | None:
    backend, shapes = group.own_backend, [tuple(x.shape) for x in results]
    return group.run(name, lambda xs: backend.all_to_all(xs, shapes), sources, results, async_op=async_op)


def _split(x: Tensor, sizes: Sequence[int] | None, count: int, name: str) -> list[Tensor]:
    if sizes and not all(hasattr(size, "__index__") for size in sizes):
        raise ArgumentError(f"all_to_all_single: {name}_split_sizes must be integers, but got {sizes!r}")
    if not x.ndim:
        if sizes:
            raise DimError(f"all_to_all_single: `{name}` has no dims, so {name}_split_sizes cannot divide it")
        x = x.reshape(1)  # what it is when it leaves a group of one rank
    length = x.shape[0]
    if not sizes:
        if length % count:
            raise ShapeError(
                f"Tensor's dim 0 does not divide equally across group size: {name} has {length} rows, "
                f"and the group {count} ranks; pass {name}_split_sizes"
            )
        sizes = [length // count] * count
    if len(sizes) != count or sum(sizes) != length:
        raise ShapeError(
            f"Split sizes doesn't match total dim 0 size: {name}_split_sizes is {list(sizes)} for "
            f"{length} rows and {count} ranks"
        )
    return list(x.split(list(sizes)))


_all_reduce_coalesced, _all_gather_coalesced = start_all_reduce_coalesced, start_all_gather_coalesced
all_gather_single = _all_gather_base = all_gather_into_tensor  # a newer and a former name
reduce_scatter_single = _reduce_scatter_base = reduce_scatter_tensor
