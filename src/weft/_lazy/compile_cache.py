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
    if reason := _doubt(folder):
        _log.warning("%s, so no compiled programs are kept or found there; %s", reason, _REMEDY)
        return False
    with suppress(OSError):  # the folder cannot be written, or could not be created
        stamp = folder / _STAMP
        last = stamp.stat().st_mtime if stamp.exists() else 0.0
        until = time.time() - _WRITING
        for entry in os.scandir(folder):
            if entry.name.endswith(_SUFFIX) and last <= entry.stat().st_mtime < until:
                _check(Path(entry.path))
        stamp.touch()
        os.utime(stamp, (until, until))
    return True


def _doubt(folder: Path) -> str | None:
    """Why what is in a folder cannot be trusted. The folders above its parent are the user's responsibility."""
    with suppress(FileNotFoundError):  # the folder could not be created
        above, own = folder.parent.stat(), folder.stat()
        sticky = above.st_mode & stat.S_ISVTX  # so only its owner can rename our folder
        reason = doubt(folder.parent, above, root_too=True, writers=0 if sticky else 0o022) or doubt(folder, own)
        if reason is not None:
            return reason
        writers = 0o022 if own.st_mode & 0o077 else 0  # modes of files matter only where others can reach them
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError):  # another process has replaced it
                if reason := doubt(Path(entry.path), entry.stat(follow_symlinks=False), writers=writers):
                    return reason
    return None


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
