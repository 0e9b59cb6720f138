"""Fully sharded data parallelism: each rank keeps a part of the parameters, gradients and optimizer state."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributed.fsdp import wrap as wrap
from weft.distributed.fsdp._fully_shard import FSDPModule as FSDPModule
from weft.distributed.fsdp._fully_shard import UnshardHandle as UnshardHandle
from weft.distributed.fsdp._fully_shard import fully_shard as fully_shard
from weft.distributed.fsdp._fully_shard import register_fsdp_forward_method as register_fsdp_forward_method
from weft.distributed.fsdp._fully_shard import share_comm_ctx as share_comm_ctx
from weft.distributed.fsdp._options import BackwardPrefetch as BackwardPrefetch
from weft.distributed.fsdp._options import CPUOffload as CPUOffload
from weft.distributed.fsdp._options import FullOptimStateDictConfig as FullOptimStateDictConfig
from weft.distributed.fsdp._options import FullStateDictConfig as FullStateDictConfig
from weft.distributed.fsdp._options import LocalOptimStateDictConfig as LocalOptimStateDictConfig
from weft.distributed.fsdp._options import LocalStateDictConfig as LocalStateDictConfig
from weft.distributed.fsdp._options import MixedPrecision as MixedPrecision
from weft.distributed.fsdp._options import OptimStateDictConfig as OptimStateDictConfig
from weft.distributed.fsdp._options import OptimStateKeyType as OptimStateKeyType
from weft.distributed.fsdp._options import ShardedOptimStateDictConfig as ShardedOptimStateDictConfig
from weft.distributed.fsdp._options import ShardedStateDictConfig as ShardedStateDictConfig
from weft.distributed.fsdp._options import ShardingStrategy as ShardingStrategy
from weft.distributed.fsdp._options import StateDictConfig as StateDictConfig
from weft.distributed.fsdp._options import StateDictSettings as StateDictSettings
from weft.distributed.fsdp._options import StateDictType as StateDictType
from weft.distributed.fsdp._policies import CPUOffloadPolicy as CPUOffloadPolicy
from weft.distributed.fsdp._policies import MixedPrecisionPolicy as MixedPrecisionPolicy
from weft.distributed.fsdp._policies import OffloadPolicy as OffloadPolicy
from weft.distributed.fsdp._wrapper import FullyShardedDataParallel as FullyShardedDataParallel

_serve_below(__name__)
