"""Files that are written whole, and links in folders where other users may write.

Another user can put a link, or a file of their own, at any name in a shared folder. So files are created under new
names, never through a link, relative to an open folder, and are then renamed; and a link that the caller named is
followed by the kernel's rule for such folders.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from errno import EACCES, ELOOP
from io import BufferedRandom
from pathlib import Path
from typing import IO

from weft._base.temporary import is_locked, remove_stale

_MOST_LINKS = 40  # as in Linux


@contextmanager
def atomic_write(path: Path, private: bool = False) -> Generator[BufferedRandom]:
    """A new file, open for writing and reading, that replaces `path` when the block ends.

    Other processes see either the old or the new content, even after a power failure. A link at `path` is replaced,
    not followed. With `private`, nobody else can read the file; otherwise it has the permissions of an existing file of
    this user, or those of any new file.
    After an error, `path` is unchanged and nothing else is left; files left by killed processes are removed by the next
    call for `path`.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        remove_stale(folder, rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
        part, file = _new_part(folder, path, 0o600 if private else 0o666)
        try:
            with file:
                if not private:
                    _keep_permissions(folder, path.name, file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)  # while it is locked
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            raise
        os.fsync(folder)
    finally:
        os.close(folder)


def _new_part(folder: int, path: Path, mode: int) -> tuple[str, BufferedRandom]:
    """A new locked file. If another process has removed it as stale before it was locked, another file is made."""
    while True:
        part = f".{path.name}.{secrets.token_hex(4)}.part"
        try:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
        except OSError as error:
            error.filename = str(path)  # which the caller knows
            raise
        if is_locked(descriptor):
            return part, open(descriptor, "r+b")
        os.close(descriptor)


def _keep_permissions(folder: int, name: str, new: int) -> None:
    """Give a new file the permissions of the one that it replaces, unless somebody else has put that one there."""
    with suppress(FileNotFoundError):
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(old.st_mode) and old.st_uid == os.geteuid():
            os.fchmod(new, stat.S_IMODE(old.st_mode))


@contextmanager
def output_file(path: str | os.PathLike[str]) -> Generator[IO[bytes]]:
    """A file at a path that the user named, open for writing: `atomic_write` of what the path leads to.

    Devices and pipes are written in place. `followed` says which links and pipes are refused.
    """
    path = followed(Path(path))
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with open(os.open(path, os.O_WRONLY), "wb") as file:
            yield file
    else:
        with atomic_write(path) as file:
            yield file


def write_output(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole at a path that the user named, as `output_file` does."""
    with output_file(path) as file:
        file.write(content)


def make_output_folder(path: Path) -> None:
    """Make a folder that the user named, if it is not there; `PermissionError` for a link that is not `followed`.

    The link is looked for afterwards: before, somebody could put it there in between.
    """
    path.mkdir(parents=True, exist_ok=True)
    followed(path)


def followed(path: Path) -> Path:
    """What a link at a path that the user named leads to, in the end; the path itself if there is no link.

    `PermissionError` for a link or a pipe of another user in a folder in which everybody may write, such as `/tmp`,
    unless it is the folder's owner who made it: the rules that Linux has as `protected_symlinks` and `protected_fifos`
    (https://docs.kernel.org/admin-guide/sysctl/fs.html), here also where these are switched off, and for folders in
    which everybody may remove any file, too.
    """
    for _ in range(_MOST_LINKS):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return path
        kind = _TRAPS.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            return path
        folder = os.stat(path.parent)
        if folder.st_mode & stat.S_IWOTH and status.st_uid not in (os.geteuid(), folder.st_uid):
            reason = f"{kind} that user {status.st_uid} has put there is not used; choose another name or folder"
            raise PermissionError(EACCES, reason, str(path))
        if not stat.S_ISLNK(status.st_mode):
            return path
        path = path.parent / os.readlink(path)
    raise OSError(ELOOP, os.strerror(ELOOP), str(path))


_TRAPS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe"}  # by which another user gets, or chooses, what is written


def doubt(status: os.stat_result, *, root_too: bool = False, writers: int = 0o022) -> str | None:
    """Why somebody else could have written a file or folder, in words that follow its path; None if nobody could.

    root_too  whether root may be its owner
    writers   the bits of the mode by which others could write
    """
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if status.st_uid != os.geteuid() and not (root_too and status.st_uid == 0):
        return f"belongs to user {status.st_uid}"
    if status.st_mode & writers:
        return f"may be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a file that only this user can read, created if it is not there; its content stays.

    `PermissionError` for a link, for what is not a file, and for a file that belongs to another user or has a second
    name: the folder may be one in which others write, who must neither read nor choose what is written to.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        os.close(descriptor)
        raise PermissionError(EACCES, "not a file of this user, with this name only; remove it", str(path))
    os.fchmod(descriptor, 0o600)
    return descriptor
