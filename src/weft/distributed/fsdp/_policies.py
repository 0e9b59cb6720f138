"""What users choose: precision, offloading, and how parts are exchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._base.types import Result
from weft._tensor.tensor import Tensor
from weft.distributed._group import ProcessGroup
from weft.distributed._reduce_op import Reduction


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Types that a module computes in, beside the type of its parameters, which optimizers update.

    param_dtype          of the gathered parameters, and so of the forward and backward pass; None for their own
    reduce_dtype         in which gradients are reduced; None for that of the gradients
    output_dtype         to which floating outputs are cast; None leaves them
    cast_forward_inputs  whether floating inputs are cast to `param_dtype`
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Nothing is offloaded."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Sharded parameters stay in host memory. On the CPU they are there anyway, so this changes nothing.

    `pin_memory` is accepted: arrays of the host have no pinned memory here.
    """

    pin_memory: bool = True


class _Comm(ABC):
    @abstractmethod
    def allocate(self, size: Sequence[int], *, dtype: DType, device: DeviceLike) -> Tensor:
        """A tensor without particular elements, for the results."""


class AllGather(_Comm):
    """How the parts of a group's parameters are gathered (`FSDPModule.set_custom_all_gather`)."""

    @abstractmethod
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup, async_op: bool = False
    ) -> Result:
        """Fill `output_tensor` with the inputs of all ranks; returns something to `wait()` for, or None."""


class ReduceScatter(_Comm):
    """How the gradients of a group's parameters are reduced (`FSDPModule.set_custom_reduce_scatter`)."""

    @abstractmethod
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup, op: Reduction, async_op: bool = False
    ) -> Result:
        """Fill `output_tensor` with this rank's part of the reduction of all inputs."""
