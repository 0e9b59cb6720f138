"""The wrapper, and its options."""

from weft.distributed.fsdp._options import BackwardPrefetch as BackwardPrefetch
from weft.distributed.fsdp._options import CPUOffload as CPUOffload
from weft.distributed.fsdp._options import FullOptimStateDictConfig as FullOptimStateDictConfig
from weft.distributed.fsdp._options import FullStateDictConfig as FullStateDictConfig
from weft.distributed.fsdp._options import LocalOptimStateDictConfig as LocalOptimStateDictConfig
from weft.distributed.fsdp._options import LocalStateDictConfig as LocalStateDictConfig
from weft.distributed.fsdp._options import MixedPrecision as MixedPrecision
from weft.distributed.fsdp._options import OptimStateDictConfig as OptimStateDictConfig
from weft.distributed.fsdp._options import ShardedOptimStateDictConfig as ShardedOptimStateDictConfig
from weft.distributed.fsdp._options import ShardedStateDictConfig as ShardedStateDictConfig
from weft.distributed.fsdp._options import ShardingStrategy as ShardingStrategy
from weft.distributed.fsdp._options import StateDictConfig as StateDictConfig
from weft.distributed.fsdp._options import StateDictSettings as StateDictSettings
from weft.distributed.fsdp._options import StateDictType as StateDictType
from weft.distributed.fsdp._wrapper import FullyShardedDataParallel as FullyShardedDataParallel
