"""Remote procedure calls, and references to values on other workers."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.distributed.rpc.api": (
            "debug_info",
            "get_rpc_timeout",
            "get_worker_info",
            "init_rpc",
            "is_available",
            "rpc_async",
            "rpc_sync",
            "shutdown",
            "TensorPipeAgent",
            "_get_current_rpc_agent",
            "_get_debug_info",
            "_is_current_rpc_agent_set",
            "_rref_context_get_debug_info",
            "_set_rpc_timeout",
        ),
        "weft.distributed.rpc._rref": ("PyRRef", "RRef", "remote"),
        "weft._tools.rpc_trace": ("trace",),
        "weft.distributed.rpc._profiled_function": ("_ProfiledFunction",),
        "weft.distributed.rpc._workers": ("WorkerInfo",),
        "weft.distributed.rpc.options": ("RpcBackendOptions", "TensorPipeRpcBackendOptions"),
        "weft.distributed.rpc.backend_registry": ("BackendType",),
    },
    ("api", "backend_registry", "constants", "functions", "internal", "options"),
)
