"""Communication hooks of `DistributedDataParallel`: ways to exchange gradients."""

from weft.distributed.algorithms.ddp_comm_hooks import debugging_hooks as debugging_hooks
from weft.distributed.algorithms.ddp_comm_hooks import default_hooks as default_hooks
from weft.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks as optimizer_overlap_hooks
from weft.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_localSGD_hook
from weft.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD_hook
from weft.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization_hooks
from weft.distributed.algorithms.ddp_comm_hooks._builtin import DDPCommHookType as DDPCommHookType
from weft.distributed.algorithms.ddp_comm_hooks._builtin import register_ddp_comm_hook as register_ddp_comm_hook
