"""Temporary files and folders that killed processes do not leave behind.

They are locked (`flock`) while a process uses them; one without a lock belonged to a killed process, and is removed by
the next that looks. Others may write in the folders that are looked through, so names there prove nothing: whatever is
opened or removed is named relative to an open folder, links are not followed, only what belongs to this user is
touched, and what cannot be removed stays, with a line in the log.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path

_log = logging.getLogger(__name__)

_USER_FOLDER = "weft-"
_MOST_STALE = 1000  # names that are looked at in one go: another user can make any number of them
_folders: dict[str, int] = {}  # of this process: descriptors that hold the locks
_user_folders: set[str] = set()


def temporary_folder(prefix: str, within: str | None = None) -> str:
    """Create a folder of this process, by default in the user's own one (`user_folder`); `remove_folder` removes it.

    If the process is killed first, the next process that uses this prefix there removes it.
    """
    if within is not None:
        os.stat(within)  # raises here if there is no such folder
    while True:
        with suppress(FileNotFoundError):  # it was taken for stale, or another process has removed the user's folder
            parent = within or user_folder()
            remove_stale(Path(parent), rf"{re.escape(prefix)}[a-z0-9_]{{8}}")
            path = tempfile.mkdtemp(prefix=prefix, dir=parent)
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if is_locked(folder):
                _folders[path] = folder
                return path
            os.close(folder)


def remove_folder(path: str) -> None:
    """Remove a folder made by `temporary_folder`, with its contents. Further calls do nothing.

    The last one to be removed takes the user's folder with it.
    """
    shutil.rmtree(path, ignore_errors=True)
    if (folder := _folders.pop(path, None)) is not None:
        os.close(folder)
    parent = os.path.dirname(path)
    if parent in _user_folders:
        with suppress(OSError):  # others are in it
            os.rmdir(parent)


def user_folder() -> str:
    """The folder `weft-<user id>` in the system's temporary folder, which only this user can enter.

    In `$XDG_RUNTIME_DIR` folders would vanish with the user's last login, under jobs that go on. If another user has
    taken the name, a new folder serves this process alone: nothing that a killed process has left is found then.
    """
    path = os.path.join(tempfile.gettempdir(), f"{_USER_FOLDER}{os.geteuid()}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        _user_folders.add(path)
        return path
    own = tempfile.mkdtemp(prefix=_USER_FOLDER)
    _log.warning(
        "%s is not a folder that only user %s can enter, so temporary files are in %s; remove the former",
        path,
        os.geteuid(),
        own,
    )
    _user_folders.add(own)
    return own


def remove_stale(folder: Path | int, name: str) -> None:
    """Remove this user's files and folders in a folder, or in that of a descriptor, that are not locked.

    name  an expression that matches their names
    """
    try:
        opened = os.dup(folder) if isinstance(folder, int) else os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return  # what cannot be listed stays
    try:
        with os.scandir(opened) as entries:
            names = (entry.name for entry in entries if re.fullmatch(name, entry.name))
            for one in list(islice(names, _MOST_STALE)):
                _remove_if_stale(opened, one)
    except OSError as error:
        _log.info("what killed processes may have left in %s stays: %s", folder, error)
    finally:
        os.close(opened)


def _remove_if_stale(folder: int, name: str) -> None:
    # A folder that is nested too deeply is a RecursionError, or uses up the file descriptors.
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid():
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(descriptor)
    except BlockingIOError:
        pass  # a living process uses it
    except (OSError, RecursionError) as error:
        _log.info("%s, left by a killed process, stays: %s", name, error)


def is_locked(file: int) -> bool:
    """Lock a new file or folder; False if another process has removed it as stale before."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where nobody takes anything for stale
        return True
    return os.fstat(file).st_nlink > 0
