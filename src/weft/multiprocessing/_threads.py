"""The name by which the system knows a thread, as tools such as `top` show it."""

from __future__ import annotations

import threading
from pathlib import Path

_MOST = 15  # bytes, on Linux


def _file() -> Path:
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm")


def _set_thread_name(name: str) -> None:
    """Name this thread; the system keeps the first 15 bytes."""
    _file().write_bytes(name.encode()[:_MOST])


def _get_thread_name() -> str:
    """The name of this thread."""
    return _file().read_text().removesuffix("\n")
