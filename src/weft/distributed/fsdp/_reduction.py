"""Reducing gradients: one reduce-scatter for the parameters of a group, and one all-reduce over the copies (HSDP)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.dtype import DType, float16
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed._observers import collective, requested
from weft.distributed._reduce_op import ReduceOp
from weft.distributed.fsdp._data_parallel import DataParallel
from weft.distributed.fsdp._flat import joined_wholes, parts_of
from weft.distributed.fsdp._parameter import ShardedParameter
from weft.distributed.fsdp._policies import ReduceScatter


class Reduction:
    """How gradients are reduced.

    divisor     of the sums over all ranks; None for their number
    comm        what replaces the reduce-scatter, or None
    hook        is called with the reduced buffer, which it may change
    all_reduces whether copies exchange what they have reduced
    """

    def __init__(self, ranks: DataParallel, dtype: DType | None) -> None:
        self.ranks = ranks
        self.dtype = dtype
        self.divisor: float | None = None
        self.comm: ReduceScatter | None = None
        self.hook: Callable[[Tensor], None] | None = None
        self.all_reduces = True

    def reduced(self, parameters: Sequence[ShardedParameter], gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """This rank's parts of the averaged gradients; None while they are not exchanged with the other copies."""
        slots = [parameter.slot for parameter in parameters]
        dtype = self.dtype or gradients[0].dtype
        before, after = self._divisors(dtype)
        flat = _divided(joined_wholes(gradients, slots).to(dtype), before)
        with requested():
            flat = self._reduce_scatter(flat)
            if self.ranks.replicate_group is not None:
                # As in PyTorch's HSDP: gradients of several passes are added up in parts, and exchanged with the other
                # copies once.
                if not self.all_reduces:
                    _add_reduced(parameters, parts_of(flat, slots))
                    return [None] * len(parameters)
                flat = self._all_reduce(_with_reduced(parameters, flat))
        if self.hook is not None:
            self.hook(flat)
        parts = parts_of(_divided(flat, after), slots)
        return [part.to(p.sharded.dtype) for p, part in zip(parameters, parts, strict=True)]

    def _divisors(self, dtype: DType) -> tuple[float, float]:
        """What is divided by before the sum, and after it. Sums of float16 would overflow without the first."""
        group = self.ranks.replicate_group
        count = self.ranks.parts * (1 if group is None else group.size())
        divisor = self.divisor or float(count)
        before = 1.0
        if dtype is float16:
            # As in PyTorch, about the square root before the sum and the rest after it: all of it before would lose
            # small gradients to underflow.
            while divisor % before == 0 and divisor / before > before:
                before *= 2
        return before, divisor / before

    def _reduce_scatter(self, flat: Tensor) -> Tensor:
        group = self.ranks.shard_group
        if group.size() == 1:
            return flat
        size = (flat.numel() // group.size(),)
        with collective("reduce_scatter_tensor", (flat._read(),)):
            if self.comm is not None:
                output = self.comm.allocate(size, dtype=flat.dtype, device=flat.device)
                work = self.comm(output, flat, group, ReduceOp.SUM)
                if work is not None:
                    work.wait()
                return output
            output = empty(size, dtype=flat.dtype, device=flat.device)
            _collectives.reduce_scatter_tensor(output, flat, ReduceOp.SUM, group)
            return output

    def _all_reduce(self, flat: Tensor) -> Tensor:
        group = self.ranks.replicate_group
        assert group is not None, "there are copies"
        if group.size() > 1:
            flat = flat.clone()
            with collective("all_reduce", (flat._read(),)):
                _collectives.all_reduce(flat, ReduceOp.SUM, group)
        return flat


def _divided(x: Tensor, divisor: float) -> Tensor:
    return x if divisor == 1 else x / divisor


def _add_reduced(parameters: Sequence[ShardedParameter], parts: Sequence[Tensor]) -> None:
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.reduced = part if parameter.reduced is None else parameter.reduced + part


def _with_reduced(parameters: Sequence[ShardedParameter], flat: Tensor) -> Tensor:
    """The buffer, with what earlier passes have reduced within this copy."""
    offset = 0
    for parameter in parameters:
        size = parameter.slot.numel
        if parameter.reduced is not None:
            view = flat.narrow(0, offset, size).reshape(parameter.slot.with_size(parameter.slot.step))
            # Only up to the part's own size: what fills it up belongs to no parameter.
            view.narrow(parameter.slot.dim, 0, parameter.slot.own[1]).add_(parameter.reduced)
            parameter.reduced = None
        offset += size
    return flat
