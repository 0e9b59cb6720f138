"""The job's key: a secret shared by its processes."""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
import stat
from pathlib import Path

from weft._base.config import user_cache
from weft.errors import DistNetworkError

_LEAST_BYTES = 16  # of a key


def job_key() -> bytes:
    """The key of this job: WEFT_JOB_KEY, the file named by WEFT_JOB_KEY_FILE, or the user's own key.

    The user's own key is in `~/.cache/weft/job.key`, and is created on first use, so that processes of one user trust
    each other without configuration. `DistNetworkError` if a file cannot be read, belongs to another user or is
    readable by others, and if the key is shorter than 16 bytes.
    """
    if text := os.environ.get("WEFT_JOB_KEY"):
        return _checked(os.fsencode(text).strip(), "WEFT_JOB_KEY")
    if name := os.environ.get("WEFT_JOB_KEY_FILE"):
        return _read(Path(name))
    cache = user_cache()
    if cache is None:
        raise DistNetworkError("there is no job's key, and no home folder to keep one in: set WEFT_JOB_KEY")
    return _own(cache / "job.key")


def fingerprint() -> str:
    """A text that identifies the job's key without revealing it."""
    return hmac.digest(job_key(), b"weft fingerprint", "sha256")[:16].hex()


def _checked(key: bytes, source: str) -> bytes:
    """The key; raises if it is too short, since an attacker who has seen one proof can try keys offline."""
    if len(key) < _LEAST_BYTES:
        raise DistNetworkError(
            f"the job's key in {source} has {len(key)} bytes, and needs at least {_LEAST_BYTES}; make one with "
            "`openssl rand -hex 32`"
        )
    return key


def _read(path: Path) -> bytes:
    """The key in a file. As for ssh, the file must belong to the user and not be readable by others."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a pipe would block
            _check_owner(os.fstat(file.fileno()), str(path))
            key = file.read().strip()
    except OSError as error:
        raise DistNetworkError(f"the job's key cannot be read: {error}; set WEFT_JOB_KEY, or mend the file") from error
    return _checked(key, repr(str(path)))


def _check_owner(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise DistNetworkError(f"the job's key cannot be read: {path!r} is no regular file; write the key into one")
    if status.st_uid != (me := os.geteuid()):
        raise DistNetworkError(
            f"the job's key in {path!r} belongs to user {status.st_uid}, and this process is user {me}'s; make a file "
            "of your own, or set WEFT_JOB_KEY"
        )
    if status.st_mode & 0o077:
        raise DistNetworkError(
            f"the job's key in {path!r} is open to others (mode {status.st_mode & 0o777:04o}); write a new key there, "
            f"and close it: chmod 600 {shlex.quote(path)}"
        )


def _own(path: Path) -> bytes:
    """The user's key. The complete file is linked into place, so that concurrent processes all read the first one."""
    if not path.exists():
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_hex(32).encode())
            try:
                os.link(part, path)
            except FileExistsError:
                pass  # another process has done it
            finally:
                part.unlink()
        except OSError as error:
            raise DistNetworkError(f"the user's key cannot be written: {error}; set WEFT_JOB_KEY instead") from error
    return _read(path)
