"""Statistics of replicas, for logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from weft._base.device import DeviceLike
from weft._base.dtype import bfloat16, float16, float32, float64
from weft.distributed._group import ProcessGroup
from weft.distributed._reducer import Reducer
from weft.nn import SyncBatchNorm
from weft.nn._module import Module

_NAMES = {float32: "float", float64: "double", float16: "c10::Half", bfloat16: "c10::BFloat16"}
_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "TORCH_DISTRIBUTED_DEBUG", "CUDA_VISIBLE_DEVICES")
_RELEVANT = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_PORT",
    "MASTER_ADDR",
    "CUDA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "GLOO_DEVICE_TRANSPORT",
    "NCCL_SOCKET_IFNAME",
    "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_RINGS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_CHECKS_DISABLE",
    "NCCL_CHECK_POINTERS",
    "NCCL_LAUNCH_MODE",
    "NCCL_IB_HCA",
    "NCCL_IB_TIMEOUT",
    "NCCL_IB_RETRY_CNT",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_SL",
    "NCCL_IB_TC",
    "NCCL_IB_AR_THRESHOLD",
    "NCCL_IB_CUDA_SUPPORT",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_SINGLE_RING_THRESHOLD",
    "NCCL_LL_THRESHOLD",
    "NCCL_TREE_THRESHOLD",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_DEBUG_FILE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_TOPO_FILE",
    "NCCL_TOPO_DUMP_FILE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)


class Replica(Protocol):
    """What is logged of a replica."""

    module: Module
    process_group: ProcessGroup
    reducer: Reducer
    device_ids: Sequence[DeviceLike] | None
    output_device: DeviceLike | None
    find_unused_parameters: bool
    gradient_as_bucket_view: bool
    static_graph: bool

    @property
    def broadcast_buffers(self) -> bool: ...


def print_environment() -> None:
    """Print the environment variables that affect a job; `N/A` for those that are not set."""
    print("".join(f"env:{name}={os.environ.get(name, 'N/A')}\n" for name in _RELEVANT))


def logging_data(replica: Replica) -> dict[str, object]:
    """Statistics of a replica and its passes so far, under PyTorch's names.

    They contain no times: a pass only records its operations, which are computed later, together with others.
    """
    group, reducer = replica.process_group, replica.reducer
    dtypes = {parameter.dtype for parameter in reducer.parameters}
    data: dict[str, object] = {
        "world_size": group.size(),
        "rank": group.rank(),
        "backend_name": group.name(),
        "module_name": type(replica.module).__name__,
        "device_ids": ", ".join(map(str, replica.device_ids or ())),
        "output_device": -1 if replica.output_device is None else replica.output_device,
        "is_multi_device_module": len({parameter.device for parameter in reducer.parameters}) > 1,
        "has_sync_bn": any(isinstance(module, SyncBatchNorm) for module in replica.module.modules()),
        "broadcast_buffers": replica.broadcast_buffers,
        "find_unused_parameters": replica.find_unused_parameters,
        "gradient_as_bucket_view": replica.gradient_as_bucket_view,
        "bucket_cap_bytes": reducer.limits[-1],
        "dtypes": ", ".join(sorted(_NAMES.get(dtype) or str(dtype.name) for dtype in dtypes)),
        "num_parameter_tensors": len(reducer.parameters),
        "total_parameter_size_bytes": sum(reducer.sizes),
        **reducer.counts(),
        **{name.lower(): os.environ.get(name, "N/A") for name in _VARIABLES},
    }
    if replica.static_graph:
        data["static_graph"] = True
    if reducer.hook is not None:
        data["comm_hook"] = getattr(reducer.hook, "__qualname__", type(reducer.hook).__name__)
    return {name: int(value) if isinstance(value, bool) else value for name, value in data.items()}


# PyTorch has it under this name
_dump_DDP_relevant_env_vars = print_environment
