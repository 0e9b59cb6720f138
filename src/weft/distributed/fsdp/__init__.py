"""Fully sharded data parallelism: each rank keeps a part of the parameters, gradients and optimizer state."""

from weft.distributed.fsdp._fully_shard import FSDPModule as FSDPModule
from weft.distributed.fsdp._fully_shard import UnshardHandle as UnshardHandle
from weft.distributed.fsdp._fully_shard import fully_shard as fully_shard
from weft.distributed.fsdp._fully_shard import register_fsdp_forward_method as register_fsdp_forward_method
from weft.distributed.fsdp._fully_shard import share_comm_ctx as share_comm_ctx
from weft.distributed.fsdp._policies import CPUOffloadPolicy as CPUOffloadPolicy
from weft.distributed.fsdp._policies import MixedPrecisionPolicy as MixedPrecisionPolicy
from weft.distributed.fsdp._policies import OffloadPolicy as OffloadPolicy
