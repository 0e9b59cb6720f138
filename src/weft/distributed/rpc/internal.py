"""Names of calls in profiles."""

from __future__ import annotations

from enum import Enum


class RPCExecMode(Enum):
    """How a function is called on another worker."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


def profiling_key(exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str) -> str:
    """The name of a call, such as "rpc_async#f(worker0 -> worker1)"."""
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"


# PyTorch has it under this name
_build_rpc_profiling_key = profiling_key
