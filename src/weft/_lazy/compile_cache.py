"""The folder of compiled programs. Whoever can write there chooses what runs, so nobody but this user may.

jax writes entries in place, so a process that is killed leaves incomplete ones. jax warns about such an entry in every
process that reads it, and never replaces it.
"""

from __future__ import annotations

import logging
import os
import stat
import time
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

from weft._base.files import doubt

_log = logging.getLogger(__name__)

_REMEDY = "set WEFT_COMPILE_CACHE to a folder of your own, or close this one to others (chmod go-w) once it is empty"
_SUFFIX = "-cache"
_STAMP = ".checked"  # its modification time is that of the last check
_WRITING = 2.0  # seconds for which an entry may still be written
_ZLIB = b"\x78"  # the first byte of entries, unless jax has another compression library; those are not checked


def prepare(folder: Path) -> bool:
    """Create the folder, or remove damaged entries that are newer than the last check, and silence jax's warnings.

    False, with a line in the log, if another user has, or could have, put programs there.
    """
    warnings.filterwarnings("ignore", message="Error reading persistent compilation cache entry")
    with suppress(OSError):
        os.makedirs(folder, 0o700, exist_ok=True)
    try:
        reason, until = _doubt(folder), time.time() - _WRITING
        if not reason:
            reason = _look_through(folder, until)
    except FileNotFoundError:
        return True  # it could not be created, so nothing is there
    if reason:
        _log.warning("%s, so no compiled programs are kept or found there; %s", reason, _REMEDY)
        return False
    with suppress(OSError):  # the folder cannot be written
        (folder / _STAMP).touch()
        os.utime(folder / _STAMP, (until, until))
    return True


def _look_through(folder: Path, until: float) -> str | None:
    """Why one of the entries cannot be trusted. Those that are newer than the last check, and older than `until`, are
    removed if they are damaged. One pass does both: a cache may have ten thousand entries.
    """
    stamp = folder / _STAMP
    last = stamp.stat().st_mtime if stamp.exists() else 0.0
    writers = 0o022 if folder.stat().st_mode & 0o077 else 0  # modes of files matter only where others can reach them
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process has replaced it
            status = entry.stat(follow_symlinks=False)
            if why := doubt(status, writers=writers):
                return f"{entry.path} {why}"
            if entry.name.endswith(_SUFFIX) and last <= status.st_mtime < until:
                _check(Path(entry.path))
    return None


def _doubt(folder: Path) -> str | None:
    """Why the folder itself cannot be trusted. The folders above its parent are the user's responsibility."""
    above = folder.parent.stat()
    sticky = above.st_mode & stat.S_ISVTX  # so only its owner can rename our folder
    if why := doubt(above, root_too=True, writers=0 if sticky else 0o022):
        return f"{folder.parent} {why}"
    why = doubt(folder.stat())
    return why and f"{folder} {why}"


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
