"""Options of the collectives that are methods of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from weft._base.device import DeviceLike
from weft.distributed._reduce_op import ReduceOp, Reduction

_UNSET = timedelta(milliseconds=-1)


@dataclass
class CollectiveOptions:
    """Options of all of them. A negative `timeout` means the group's. Methods return at once, whatever `asyncOp` is."""

    timeout: timedelta = _UNSET
    asyncOp: bool = True


@dataclass
class AllreduceOptions(CollectiveOptions):
    """Options of `ProcessGroup.allreduce`."""

    reduceOp: Reduction = ReduceOp.SUM


@dataclass
class AllreduceCoalescedOptions(AllreduceOptions):
    """Options of `ProcessGroup.allreduce_coalesced`."""


@dataclass
class ReduceScatterOptions(AllreduceOptions):
    """Options of `ProcessGroup.reduce_scatter`."""


@dataclass
class GatherOptions(CollectiveOptions):
    """Options of `ProcessGroup.gather`; `rootRank` is a rank in the group."""

    rootRank: int = 0


@dataclass
class ScatterOptions(GatherOptions):
    """Options of `ProcessGroup.scatter`."""


@dataclass
class BroadcastOptions(GatherOptions):
    """Options of `ProcessGroup.broadcast`; each rank has one tensor, so `rootTensor` is 0."""

    rootTensor: int = 0


@dataclass
class ReduceOptions(BroadcastOptions):
    """Options of `ProcessGroup.reduce`."""

    reduceOp: Reduction = ReduceOp.SUM


@dataclass
class AllgatherOptions(CollectiveOptions):
    """Options of `ProcessGroup.allgather`."""


@dataclass
class AllToAllOptions(CollectiveOptions):
    """Options of `ProcessGroup.alltoall`."""


@dataclass
class BarrierOptions(CollectiveOptions):
    """Options of `ProcessGroup.barrier`."""

    device_ids: list[int] = field(default_factory=list[int])
    device: DeviceLike | None = None
