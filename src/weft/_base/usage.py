"""Which parts of the API a process uses, each told once."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from weft.errors import ArgumentError

_log = logging.getLogger(__name__)

Handler = Callable[[str], object]


def _print(key: str) -> None:
    sys.stderr.write(f"PYTORCH_API_USAGE {key}\n")


# no cell: only texts and reports depend on it
class _Settings:
    handler: Handler | None = _print if os.environ.get("PYTORCH_API_USAGE_STDERR") else None


# no cell: only texts and reports depend on it
_used: dict[str, None] = {}


def log_api_usage_once(key: str) -> None:
    """Tell the handler that an API is used, unless this process has told it before."""
    if key not in _used:
        _used[key] = None
        _tell(key)


def set_api_usage_handler(handler: Handler | None) -> None:
    """Call `handler(key)` once in this process for each API that is used, such as `python.optimizer`.

    Keys are PyTorch's, and begin with `torch.python.import`. The handler is first called for those that have been used
    already. It runs in the thread that uses the API; an exception is logged. None means no handler. Without one, the
    keys are printed on stderr if the environment variable PYTORCH_API_USAGE_STDERR was set at import.
    """
    if not (handler is None or callable(handler)):
        raise ArgumentError(f"set_api_usage_handler: expected a function of a key, or None, got {handler!r}")
    _Settings.handler = handler
    for key in list(_used):
        _tell(key)


def _tell(key: str) -> None:
    if _Settings.handler is not None:
        try:
            _Settings.handler(key)
        except Exception:
            _log.warning("the handler of API usage has failed for %s", key, exc_info=True)


log_api_usage_once("torch.python.import")
