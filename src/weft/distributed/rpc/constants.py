"""Defaults of remote calls."""

from __future__ import annotations

from datetime import timedelta

DEFAULT_RPC_TIMEOUT_SEC: float = 60.0
"""Seconds that a call may take unless it says otherwise."""

DEFAULT_INIT_METHOD: str = "env://"
DEFAULT_NUM_WORKER_THREADS: int = 16
"""Functions that a worker runs at a time for others."""

DEFAULT_SHUTDOWN_TIMEOUT: float = 0
UNSET_RPC_TIMEOUT: float = -1.0
"""What stands for the default."""

DEFAULT_PROCESS_GROUP_TIMEOUT: timedelta = timedelta(milliseconds=2**31 - 1)
