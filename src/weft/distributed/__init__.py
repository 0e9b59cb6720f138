"""Many processes: stores, process groups, collectives, replicas, the elastic launcher.

Everything is loaded on first use, so that the launcher and its workers' stores come without the tensor library.
"""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(__name__, {
    "weft._comm.stores.store": ("Store", "HashStore", "PrefixStore"),
    "weft._comm.stores.file_store": ("FileStore",),
    "weft._comm.stores.tcp_store": ("TCPStore",),
    "weft.errors": ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "QueueEmptyError"),
    "weft.distributed._reduce_op": ("ReduceOp", "reduce_op", "supports_complex", "_make_nccl_premul_sum"),
    "weft.distributed._work": ("Work",),
    "weft.distributed.remote_device": ("_remote_device",),
    "weft.distributed._group": ("ProcessGroup",),
    "weft.distributed._group_gloo": ("ProcessGroupGloo",),
    "weft.distributed._group_options": (
        "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "BarrierOptions",
        "BroadcastOptions", "GatherOptions", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions",
    ),
    "weft.distributed._backend": (
        "Backend", "BackendConfig", "get_backend_config", "get_default_backend_for_device", "_Backend",
    ),
    "weft.distributed._backends": (
        "is_backend_available", "is_gloo_available", "is_mpi_available", "is_nccl_available", "is_ucc_available",
        "is_xccl_available",
    ),
    "weft.distributed.constants": ("default_pg_timeout",),
    "weft.distributed._rendezvous": ("register_rendezvous_handler", "rendezvous"),
    "weft.distributed._world": (
        "GroupMember", "destroy_process_group", "get_backend", "get_global_rank", "get_group_rank",
        "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group",
        "init_process_group", "is_available", "is_initialized", "is_torchelastic_launched", "new_group",
    ),
    "weft.distributed._subgroups": ("new_subgroups", "new_subgroups_by_enumeration", "shrink_group", "split_group"),
    "weft.distributed.distributed_c10d": ("_get_process_group_name", "_rank_not_in_group"),
    "weft.distributed._debug": ("breakpoint",),
    "weft.distributed._debug_level": (
        "DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env",
    ),
    "weft.distributed._collectives": (
        "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
        "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather",
        "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
        "_all_gather_base", "_all_gather_coalesced", "_all_reduce_coalesced", "_reduce_scatter_base",
    ),
    "weft.distributed._coalescing": ("_coalescing_manager",),
    "weft.distributed._objects": (
        "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
        "send_object_list",
    ),
    "weft.distributed._p2p": ("P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"),
    "weft.distributed._threads": ("run_threads",),
    "weft.distributed._grad_bucket": ("GradBucket",),
    "weft.distributed.algorithms.ddp_comm_hooks._builtin": ("BuiltinCommHookType",),
}, (
    "_functional_collectives", "algorithms", "autograd", "constants", "distributed_c10d", "elastic", "nn", "optim",
    "remote_device", "rpc", "run",
))  # fmt: skip
