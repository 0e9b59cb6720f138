"""Atomic writes, and temporary files and folders that killed processes do not leave behind.

Temporary files are locked (`flock`) while a process uses them; a file without a lock belonged to a killed process.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path

_folders: dict[str, int] = {}  # of this process: descriptors that hold the locks


@contextmanager
def atomic_write(path: Path) -> Generator[BufferedRandom]:
    """A new file, open for writing and reading, that replaces `path` when the block ends.

    Other processes see either the old or the new content, even after a power failure. The permissions of an existing
    file are kept. After an error, `path` is unchanged and nothing else is left; files left by killed processes are
    removed by the next call for `path`.
    """
    remove_stale(path.parent, rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    part, file = _new_part(path)
    try:
        with file:
            if path.exists():
                shutil.copymode(path, part)
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)  # while it is locked
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _new_part(path: Path) -> tuple[Path, BufferedRandom]:
    """A new locked file. If another process has removed it as stale before it was locked, another file is made."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = open(part, "x+b")  # noqa: SIM115  closed by the caller
        if _is_ours(file.fileno()):
            return part, file
        file.close()


def temporary_folder(prefix: str, within: str | None = None) -> str:
    """Create a folder of this process, by default in the system's temporary folder; `remove_folder` removes it.

    If the process is killed first, the next process that uses this prefix there removes it.
    """
    remove_stale(Path(within or tempfile.gettempdir()), rf"{re.escape(prefix)}[a-z0-9_]{{8}}")
    while True:
        path = tempfile.mkdtemp(prefix=prefix, dir=within)
        with suppress(FileNotFoundError):  # it was taken for stale
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if _is_ours(folder):
                _folders[path] = folder
                return path
            os.close(folder)


def remove_folder(path: str) -> None:
    """Remove a folder made by `temporary_folder`, with its contents. Further calls do nothing."""
    shutil.rmtree(path, ignore_errors=True)
    if (folder := _folders.pop(path, None)) is not None:
        os.close(folder)


def remove_stale(folder: Path, name: str) -> None:
    """Remove the files and folders whose names match the expression and that are not locked."""
    with suppress(OSError):  # what cannot be listed, opened or removed stays
        for entry in os.scandir(folder):
            if re.fullmatch(name, entry.name):
                _remove_if_stale(entry.path)


def _remove_if_stale(path: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        finally:
            os.close(descriptor)


def _is_ours(file: int) -> bool:
    """Lock a new file; False if another process has removed it as stale before."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where nobody takes anything for stale
        return True
    return os.fstat(file).st_nlink > 0
