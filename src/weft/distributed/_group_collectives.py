"""Collectives as methods of a group, with PyTorch's names and arguments of such methods.

They call the functions of `weft.distributed`, return a `Work`, and count ranks within the group. As in PyTorch, tensors
are given in lists, here with one tensor of each rank. Options are given as an object (`_group_options.py`), or one by
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from weft import distributed as dist  # its names are imported on first use
from weft._base.guards import is_list_or_tuple
from weft._base.types import Arg, Result
from weft._tensor.tensor import Tensor
from weft.distributed import _group_options as options
from weft.distributed._reduce_op import Reduction
from weft.errors import ArgumentError, OptionError, ValueRangeError

if TYPE_CHECKING:
    from weft.distributed._work import Work

Options = TypeVar("Options", bound=options.CollectiveOptions)


class GroupCollectives:
    """The methods. `within` is that of the group."""

    within: Callable[[timedelta | None], AbstractContextManager[None]]

    # --- all ranks get the same result ------------------------------------------------------------------------

    def allreduce(
        self,
        tensors: Sequence[Tensor],
        opts: object = None,
        timeout: timedelta | None = None,
        *,
        op: Reduction | None = None,
    ) -> Work:
        """`all_reduce`; `opts` may also be the reduction."""
        opts = _merged(options.AllreduceOptions, opts, timeout, reduceOp=op)
        with self._as(opts):
            return _started(dist.all_reduce(_only(tensors), opts.reduceOp, self, async_op=True))

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: object = None) -> Work:
        """`all_reduce_coalesced`."""
        opts = _merged(options.AllreduceCoalescedOptions, opts)
        with self._as(opts):
            return _started(dist._all_reduce_coalesced(tensors, opts.reduceOp, self))

    def broadcast(
        self,
        tensors: Sequence[Tensor],
        opts: object = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """`broadcast` from a rank in the group; `opts` may also be that rank."""
        opts = _merged(options.BroadcastOptions, opts, timeout, rootRank=root)
        with self._as(opts):
            return _started(dist.broadcast(_only(tensors), group=self, group_src=opts.rootRank, async_op=True))

    def allgather(self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Tensor], opts: object = None) -> Work:
        """`all_gather` of the tensor in `input_tensors` into the list in `output_tensors`; `opts` may be a timeout."""
        opts = _merged(options.AllgatherOptions, opts)
        with self._as(opts):
            return _started(dist.all_gather(_only_list(output_tensors), _only(input_tensors), self, async_op=True))

    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[Tensor]], input_list: Sequence[Tensor], opts: object = None
    ) -> Work:
        """`all_gather_coalesced`."""
        with self._as(_merged(options.AllgatherOptions, opts)):
            return _started(dist._all_gather_coalesced(output_lists, input_list, self))

    def all_gather_single(self, output: Tensor, input: Tensor, opts: object = None) -> Work:
        """`all_gather_single`."""
        with self._as(_merged(options.AllgatherOptions, opts)):
            return _started(dist.all_gather_single(output, input, self, async_op=True))

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: object = None
    ) -> Work:
        """`all_gather_single` of several tensors as one operation."""
        with self._as(_merged(options.AllgatherOptions, opts)):
            return self._coalesced(dist.all_gather_single, outputs, inputs)

    def barrier(self, opts: object = None, timeout: timedelta | None = None) -> Work:
        """`barrier`; `opts` may also be the timeout."""
        with self._as(_merged(options.BarrierOptions, opts, timeout)):
            return _started(dist.barrier(self, async_op=True))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """`monitored_barrier`."""
        dist.monitored_barrier(self, timeout, wait_all_ranks)

    # --- one rank sends or gets the result --------------------------------------------------------------------

    def reduce(
        self,
        tensors: Sequence[Tensor],
        opts: object = None,
        op: Reduction | None = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """`reduce` to a rank in the group; `opts` may also be that rank."""
        opts = _merged(options.ReduceOptions, opts, timeout, rootRank=root, reduceOp=op)
        with self._as(opts):
            return _started(
                dist.reduce(_only(tensors), op=opts.reduceOp, group=self, group_dst=opts.rootRank, async_op=True)
            )

    def gather(
        self,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        opts: object = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """`gather` to a rank in the group; other ranks give an empty list. `opts` may also be that rank."""
        opts = _merged(options.GatherOptions, opts, timeout, rootRank=root)
        results, x = _only_list(output_tensors) or None, _only(input_tensors)
        with self._as(opts):
            return _started(dist.gather(x, results, group=self, group_dst=opts.rootRank, async_op=True))

    def scatter(
        self,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        opts: object = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """`scatter` from a rank in the group; other ranks give an empty list. `opts` may also be that rank."""
        opts = _merged(options.ScatterOptions, opts, timeout, rootRank=root)
        result, xs = _only(output_tensors), _only_list(input_tensors) or None
        with self._as(opts):
            return _started(dist.scatter(result, xs, group=self, group_src=opts.rootRank, async_op=True))

    # --- all ranks send to all ranks --------------------------------------------------------------------------

    def reduce_scatter(
        self,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        opts: object = None,
        timeout: timedelta | None = None,
        *,
        op: Reduction | None = None,
    ) -> Work:
        """`reduce_scatter` of the list in `input_tensors`; `opts` may also be the reduction."""
        opts = _merged(options.ReduceScatterOptions, opts, timeout, reduceOp=op)
        result, xs = _only(output_tensors), _only_list(input_tensors)
        with self._as(opts):
            return _started(dist.reduce_scatter(result, xs, opts.reduceOp, self, async_op=True))

    def reduce_scatter_single(self, outputTensor: Tensor, inputTensor: Tensor, opts: object = None) -> Work:
        """`reduce_scatter_single`."""
        opts = _merged(options.ReduceScatterOptions, opts)
        with self._as(opts):
            return _started(dist.reduce_scatter_single(outputTensor, inputTensor, opts.reduceOp, self, async_op=True))

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: object = None
    ) -> Work:
        """`reduce_scatter_single` of several tensors as one operation."""
        opts = _merged(options.ReduceScatterOptions, opts)
        with self._as(opts):
            return self._coalesced(dist.reduce_scatter_single, outputs, inputs, opts.reduceOp)

    def alltoall(self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Tensor], opts: object = None) -> Work:
        """`all_to_all`."""
        with self._as(_merged(options.AllToAllOptions, opts)):
            return _started(dist.all_to_all(output_tensors, input_tensors, self, async_op=True))

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: object = None,
    ) -> Work:
        """`all_to_all_single`; empty lists mean parts of equal size."""
        with self._as(_merged(options.AllToAllOptions, opts)):
            return _started(
                dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes, self, async_op=True)
            )

    # --- messages ---------------------------------------------------------------------------------------------

    def send(self, tensors: Sequence[Tensor], dstRank: int, tag: int) -> Work:
        """`isend` to a rank in the group."""
        return _started(dist.isend(_only(tensors), group=self, tag=tag, group_dst=dstRank))

    def recv(self, tensors: Sequence[Tensor], srcRank: int, tag: int) -> Work:
        """`irecv` from a rank in the group."""
        return _started(dist.irecv(_only(tensors), group=self, tag=tag, group_src=srcRank))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int) -> Work:
        """`irecv` from any rank."""
        return _started(dist.irecv(_only(tensors), group=self, tag=tag))

    # --- other names ------------------------------------------------------------------------------------------

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _as(self, opts: options.CollectiveOptions) -> AbstractContextManager[None]:
        return self.within(opts.timeout if opts.timeout >= timedelta(0) else None)

    def _coalesced(
        self, function: Callable[..., Work | None], outputs: Sequence[Tensor], inputs: Sequence[Tensor], *args: Arg
    ) -> Work:
        if not inputs or len(outputs) != len(inputs):
            raise ValueRangeError(f"expected as many outputs as inputs, but got {len(outputs)} and {len(inputs)}")
        with dist._coalescing_manager(self, async_ops=True) as manager:
            for result, x in zip(outputs, inputs, strict=True):
                function(result, x, *args, group=self)
        return manager.works[0]


def _merged(kind: type[Options], opts: object, timeout: timedelta | None = None, **single: Arg) -> Options:
    """The options: an object, or made of `single` options, of which `opts` may be the first one, or the timeout."""
    if isinstance(opts, kind):
        return opts
    merged = kind()
    if isinstance(opts, timedelta):
        timeout = opts
    elif opts is not None:
        name = next(iter(single), None)
        if name is None or isinstance(opts, options.CollectiveOptions):
            raise ArgumentError(f"opts must be {kind.__name__}, but got {type(opts).__name__}")
        single[name] = opts
    if timeout is not None:
        merged.timeout = timeout
    for name, value in single.items():
        if value is not None:
            setattr(merged, name, value)
    return merged


def _only(tensors: Arg) -> Result:
    """The only tensor of a list, or a tensor given without a list."""
    if not is_list_or_tuple(tensors):
        return tensors
    if len(tensors) != 1:
        raise OptionError(f"Expecting one tensor only but got {len(tensors)}; a rank has one device")
    return tensors[0]


def _only_list(tensors: Arg) -> Result:
    """The tensors of all ranks, given as a list or as a list in a list."""
    nested = is_list_or_tuple(tensors) and tensors and is_list_or_tuple(tensors[0])
    return _only(tensors) if nested else tensors


def _started(work: Work | None) -> Work:
    if work is None:
        raise OptionError("collectives of a group in a block that coalesces them must be functions of weft.distributed")
    return work
