"""`fully_shard` under PyTorch's older path; `weft.distributed.fsdp` has the same."""

from weft.distributed.fsdp import CPUOffloadPolicy as CPUOffloadPolicy
from weft.distributed.fsdp import FSDPModule as FSDPModule
from weft.distributed.fsdp import MixedPrecisionPolicy as MixedPrecisionPolicy
from weft.distributed.fsdp import OffloadPolicy as OffloadPolicy
from weft.distributed.fsdp import fully_shard as fully_shard
from weft.distributed.fsdp import register_fsdp_forward_method as register_fsdp_forward_method
