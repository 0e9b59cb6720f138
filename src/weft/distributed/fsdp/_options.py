"""Options of `FullyShardedDataParallel`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from weft._base.dtype import DType
from weft.distributed.fsdp._policies import MixedPrecisionPolicy
from weft.errors import UnsupportedCallError


class ShardingStrategy(Enum):
    """What is divided among the ranks, and when whole parameters are released.

    FULL_SHARD     parameters, gradients and optimizer state; released after the forward pass
    SHARD_GRAD_OP  the same; released after the backward pass
    NO_SHARD       nothing: gradients are averaged
    HYBRID_SHARD   FULL_SHARD within groups of ranks that have copies; `_HYBRID_SHARD_ZERO2`: SHARD_GRAD_OP within them
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()

    @property
    def is_hybrid(self) -> bool:
        """Whether groups of ranks have copies."""
        return self in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)

    @property
    def reshards(self) -> bool | None:
        """`reshard_after_forward` of `fully_shard`."""
        return None if self in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD) else False


class BackwardPrefetch(Enum):
    """Accepted: a backward pass gathers the next module when it gathers one."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """Types that a module computes and reduces in, and those of its buffers.

    Inputs of the outermost module are cast if `cast_root_forward_inputs`, those of all if `cast_forward_inputs`.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True

    def policy(self) -> MixedPrecisionPolicy:
        """The same for `fully_shard`."""
        if self.keep_low_precision_grads:
            raise UnsupportedCallError("keep_low_precision_grads: a gradient has the type of its parameter")
        casts = self.cast_forward_inputs or self.cast_root_forward_inputs
        return MixedPrecisionPolicy(self.param_dtype, self.reduce_dtype, cast_forward_inputs=casts)


@dataclass
class CPUOffload:
    """Accepted: on the CPU, parameters are in host memory anyway."""

    offload_params: bool = False


class StateDictType(Enum):
    """What state dicts have: whole tensors, this rank's parts as plain tensors, or distributed tensors."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class StateDictConfig:
    """Options of state dicts of modules. Values are in host memory anyway, so offloading changes nothing."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Whole tensors; with `rank0_only`, other ranks get an empty state dict."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Parts as plain tensors."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Distributed tensors."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """Options of state dicts of optimizers."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Whole tensors; with `rank0_only`, other ranks get an empty state dict."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Parts as plain tensors."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Distributed tensors."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """What kind of state dicts a module makes and takes."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = field(default_factory=FullStateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = field(default_factory=FullOptimStateDictConfig)


class OptimStateKeyType(Enum):
    """What parameters are called in the state of an optimizer: by their names in the model, or by their numbers."""

    PARAM_NAME = auto()
    PARAM_ID = auto()
