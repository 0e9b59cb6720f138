"""Which environment variables reports and manifests may show: those that are known to be settings, and no others.

Many people read these. What a variable with another name holds cannot be told from its name: secrets have been called
COOKIE, DSN and PIN.
"""

from __future__ import annotations

import re

REDACTED = "<redacted>"

_SETTINGS = frozenset(
    f"{family}_{name}"
    for family, names in {
        "WEFT": "ACTIVITY AS_TORCH COMPILE_CACHE CRASH_REPORT EAGER FULL_TRACEBACKS HOME LOGS NATIVE NODE_CAP PRELOAD "
        "RENDEZVOUS_ROUND RPC_HOST SLOW_COMPILE_SECONDS SOCKET_IFNAME TIER TUNE_ALLOCATOR",
        "TORCH": "FR_BUFFER_SIZE LOGS",
        "XLA": "FLAGS HLO_DEBUG PYTHON_CLIENT_ALLOCATOR PYTHON_CLIENT_MEM_FRACTION PYTHON_CLIENT_PREALLOCATE USE_SPMD",
        "JAX": "COMPILATION_CACHE_DIR COORDINATOR_ADDRESS CPU_COLLECTIVES_IMPLEMENTATION DEBUG_INFS DEBUG_NANS "
        "DEFAULT_DTYPE_BITS DEFAULT_MATMUL_PRECISION DEFAULT_PRNG_IMPL DISABLE_JIT ENABLE_COMPILATION_CACHE ENABLE_X64 "
        "LOGGING_LEVEL LOG_COMPILES NUMPY_DTYPE_PROMOTION NUMPY_RANK_PROMOTION NUM_CPU_DEVICES NUM_PROCESSES PLATFORMS "
        "PLATFORM_NAME PROCESS_ID THREEFRY_PARTITIONABLE TRACEBACK_FILTERING TRANSFER_GUARD",
        "NCCL": "ALGO ASYNC_ERROR_HANDLING BUFFSIZE COMM_BLOCKING CROSS_NIC CUMEM_ENABLE DEBUG DEBUG_FILE DEBUG_SUBSYS "
        "IB_CUDA_SUPPORT IB_DISABLE IB_GID_INDEX IB_HCA IB_RETRY_CNT IB_SL IB_TC IB_TIMEOUT LAUNCH_MODE MAX_CTAS "
        "MAX_NCHANNELS MIN_CTAS MIN_NCHANNELS NET NET_GDR_LEVEL NET_PLUGIN NSOCKS_PERTHREAD NTHREADS NVLS_ENABLE "
        "P2P_DISABLE P2P_LEVEL PROTO PXN_DISABLE SHM_DISABLE SOCKET_FAMILY SOCKET_IFNAME SOCKET_NTHREADS "
        "TOPO_DUMP_FILE TOPO_FILE",
        "OMP": "DISPLAY_ENV DYNAMIC NUM_THREADS PLACES PROC_BIND SCHEDULE STACKSIZE THREAD_LIMIT WAIT_POLICY",
        "GLOO": "SOCKET_IFNAME",
        "CUDA": "VISIBLE_DEVICES",
    }.items()
    for name in names.split()
)
_USERINFO = re.compile("(?<![^/,;\\s=])[^/,;@\\s=]+(?=@)")  # user and password in an address, also without a scheme
_QUERY = re.compile("(://[^\\s?#;]*[?#;])[^\\s,]+")  # what may be a token


def is_setting(name: str) -> bool:
    """Whether a variable is one that is known to hold no secret."""
    return name in _SETTINGS


def displayed_value(name: str, value: str) -> str:
    """The value of a setting, without users, passwords and queries of addresses; `REDACTED` for other variables."""
    if not is_setting(name):
        return REDACTED
    return _QUERY.sub(f"\\1{REDACTED}", _USERINFO.sub(REDACTED, value))
