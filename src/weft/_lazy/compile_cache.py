"""The folder of compiled programs. jax writes entries in place, so a process that is killed leaves incomplete ones.

jax warns about such an entry in every process that reads it, and never replaces it.
"""

from __future__ import annotations

import os
import time
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

_SUFFIX = "-cache"
_STAMP = ".checked"  # its modification time is that of the last check
_WRITING = 2.0  # seconds for which an entry may still be written
_ZLIB = b"\x78"  # the first byte of entries, unless jax has another compression library; those are not checked


def prepare(folder: Path) -> None:
    """Remove damaged entries that are newer than the last check, and silence jax's warnings about others."""
    warnings.filterwarnings("ignore", message="Error reading persistent compilation cache entry")
    with suppress(OSError):  # the folder does not exist, or cannot be written
        stamp = folder / _STAMP
        last = stamp.stat().st_mtime if stamp.exists() else 0.0
        until = time.time() - _WRITING
        for entry in os.scandir(folder):
            if entry.name.endswith(_SUFFIX) and last <= entry.stat().st_mtime < until:
                _check(Path(entry.path))
        stamp.touch()
        os.utime(stamp, (until, until))


def _check(entry: Path) -> None:
    with suppress(OSError):  # another process has done it
        content = entry.read_bytes()
        if not content or (content.startswith(_ZLIB) and _is_damaged(content)):
            entry.unlink()


def _is_damaged(content: bytes) -> bool:
    try:
        zlib.decompress(content)
    except zlib.error:
        return True
    return False
