"""Defaults of remote calls."""

from __future__ import annotations

from datetime import timedelta

DEFAULT_RPC_TIMEOUT_SEC: float = 60.0
"""The default timeout of calls, in seconds."""

DEFAULT_INIT_METHOD: str = "env://"
DEFAULT_NUM_WORKER_THREADS: int = 16
"""The default number of functions that a worker runs for others at the same time."""

DEFAULT_SHUTDOWN_TIMEOUT: float = 0
UNSET_RPC_TIMEOUT: float = -1.0
"""The timeout that stands for the default."""

DEFAULT_PROCESS_GROUP_TIMEOUT: timedelta = timedelta(milliseconds=2**31 - 1)
