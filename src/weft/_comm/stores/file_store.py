"""A store in a file that is shared by the processes of a job."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import logging
import os
import secrets
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from weft._base.files import doubt, followed
from weft._comm.deadline import Deadline
from weft._comm.stores.store import Store, as_amount, as_key, as_keys, as_value, wait_error
from weft._comm.stores.table import Table, key_text
from weft._comm.transport.key import job_key
from weft._comm.transport.wire import pack, unpack
from weft.errors import DistStoreError

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_HEAD = struct.Struct("<II")  # length and checksum of the rest of a record
_MAGIC = b"weft-file-store-2\n"
_NONCE = 16  # bytes after it, which are different in every log
_BEGIN = len(_MAGIC) + _NONCE
_USERS = b"\xffusers"  # not valid UTF-8, so no user's key is equal to it
_CLOSED = b"\xffclosed"
_OWN = frozenset({_USERS, _CLOSED})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.01
_PROOF = hashlib.sha256().digest_size
_SMALL = 1 << 20  # bytes; a shorter log is never replaced
_WASTE = 4  # a longer log is replaced when it is this many times as long as a new one


class FileStore(Store):
    """A store in a file on a file system that all processes share and that has locks (`flock`).

    With `world_size`, the file is removed when that many users have closed their stores and none is left. A file of an
    earlier job must not be there. The file is a log: every change is one record, so that a process which is killed
    while it writes leaves at most a torn record at the end, which the next writer cuts off. A log that has grown to
    several times what it holds is replaced by a short one, for which the folder must be writable.

    `DistStoreError` when the file cannot be used. That is so for one that belongs to another user or that others may
    write, and as soon as a record is read that was not written with this job's key.
    """

    _joins = True  # whether this store counts as a user

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self._path = os.fspath(file_name)
        self._mutex = threading.Lock()
        self._log = _Log(self._path, self._timeout)
        if not self._joins:
            self.close = weakref.finalize(self, self._log.close)
            return
        with self._mutex:
            self._log.change(_USERS, lambda table: table.add(_USERS, 1), self._timeout)
        self.close = weakref.finalize(self, _close, self._log, world_size)

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def set(self, key: str, value: str | bytes) -> None:
        entry_key, data = as_key(key), as_value(value)
        self._change(entry_key, lambda table: table.values.__setitem__(entry_key, data))

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def add(self, key: str, amount: int) -> int:
        entry_key, increment = as_key(key), as_amount(amount)
        return self._change(entry_key, lambda table: table.add(entry_key, increment))

    def append(self, key: str, value: str | bytes) -> None:
        entry_key, data = as_key(key), as_value(value)
        self._change(entry_key, lambda table: table.append(entry_key, data))

    def check(self, keys: Sequence[str]) -> bool:
        wanted = as_keys(keys)
        return self._read(lambda table: not table.missing(wanted))

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        self._await_values(as_keys(keys), self._timeout_or_default(timeout))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._await_values(as_keys(keys), self._timeout)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        entry_key, old, new = as_key(key), as_value(expected_value), as_value(desired_value)
        return self._change(entry_key, lambda table: table.compare_set(entry_key, old, new))

    def delete_key(self, key: str) -> bool:
        entry_key = as_key(key)
        return self._change(entry_key, lambda table: table.delete(entry_key))

    def num_keys(self) -> int:
        return self._read(lambda table: len(table.values))

    def list_keys(self) -> list[str]:
        return self._read(lambda table: [key_text(key) for key in table.values if key not in _OWN])

    def values_under(self, prefix: str) -> dict[str, bytes]:
        start = as_key(prefix)
        return self._read(lambda table: {key_text(key): value for key, value in table.under(start) if key not in _OWN})

    def clone(self) -> FileStore:
        """Another store on the same file."""
        return FileStore(self._path)

    def _change(self, key: bytes, change: Callable[[Table], _T]) -> _T:
        with self._mutex:
            return self._log.change(key, change, self._timeout)

    def _read(self, read: Callable[[Table], _T]) -> _T:
        with self._mutex:
            return read(self._log.table())

    def _await_values(self, keys: list[bytes], timeout: timedelta) -> list[bytes]:
        """Wait for the values of the keys. The file is polled: file systems do not report changes by other hosts."""
        deadline = Deadline(timeout.total_seconds())
        for pause in _pauses():
            with self._mutex:
                table = self._log.table()
                missing = table.missing(keys)
                if not missing:
                    return [table.values[key] for key in keys]
            if deadline.expired:
                self._log.require_undamaged(timeout)
                raise wait_error(missing, timeout)
            time.sleep(min(pause, deadline.left() or 0))
        raise AssertionError("pauses do not end")


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _close(log: _Log, world_size: int) -> None:
    try:
        log.leave(world_size)
    except (DistStoreError, OSError):
        pass  # a full disk or a lost file, which cannot be reported to anybody
    finally:
        log.close()


class _Log:
    """The file, and the table given by its records. Readers need no lock: a record counts once it is complete.

    A log that was replaced by a shorter one has no name any more; by this, processes that have it open notice it.
    """

    def __init__(self, path: str, timeout: timedelta) -> None:
        self._path = _followed(path)
        self._successor = f"{self._path}.new"
        self._table = Table()
        self._end = 0
        self._key = job_key()
        self._proof = b""  # the proof of the previous record; each proof covers all records up to its own
        self._compact_at = _SMALL  # the length at which the log is replaced
        self.file = self._opened(timeout)

    def _opened(self, timeout: timedelta) -> int:
        """The file, opened and locked, and still at its path; its last user may have removed it in between."""
        while True:
            self.file = self._open(os.O_CREAT)
            try:
                with self._locked(timeout):
                    # The lock is taken after the file was opened, which a leaving user may have removed in between:
                    # writes would go to a file that nobody else finds.
                    if os.fstat(self.file).st_nlink:
                        self._begin()
                        return self.file
            except BaseException:
                os.close(self.file)
                raise
            os.close(self.file)

    def _open(self, flags: int) -> int:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        except OSError as error:
            raise _opening_error(self._path, error) from error
        try:
            _check_owner(os.fstat(file), self._path)
        except BaseException:
            os.close(file)
            raise
        return file

    def _begin(self) -> None:
        start = os.pread(self.file, _BEGIN, 0)
        if not _MAGIC.startswith(start[: len(_MAGIC)]):
            raise DistStoreError(f"FileStore: {self._path!r} is there and no store; choose a path that is free")
        if len(start) < _BEGIN:  # it is new, or its creator was killed
            os.pwrite(self.file, _header(), 0)
        self._rewind()

    def _rewind(self) -> None:
        """Prepare to read from the beginning."""
        self._table, self._end, self._proof = Table(), _BEGIN, os.pread(self.file, _BEGIN, 0)

    def table(self) -> Table:
        """The table, with all complete records applied."""
        self._check_open()
        while self._replaced():
            self._reopen()
        news = self._news()
        at = 0
        while at + _HEAD.size <= len(news):
            size, check = _HEAD.unpack_from(news, at)
            record = news[at + _HEAD.size : at + _HEAD.size + size]
            if len(record) < size or zlib.crc32(record) != check:
                # The last record may just be written, or be torn; the next look, or the next writer, decides.
                break
            self._apply(*self._verified(record))
            at += _HEAD.size + size
            self._end += _HEAD.size + size
        return self._table

    def _news(self) -> bytes:
        """The bytes after the records that have been read."""
        size = os.fstat(self.file).st_size
        if size < self._end:
            raise DistStoreError(
                f"FileStore: {self._path!r} has been made shorter by somebody else, so what the job has said is lost; "
                "start it again with a path that is free"
            )
        return os.pread(self.file, size - self._end, self._end)

    def require_undamaged(self, timeout: timedelta) -> None:
        """Refuse a file with a damaged record that is followed by others: only the last record can be incomplete."""
        with self._locked(timeout):
            self.table()
            self._refuse_damage()

    def _refuse_damage(self) -> None:
        rest = self._news()
        if len(rest) > _HEAD.size and _HEAD.size + _HEAD.unpack_from(rest)[0] < len(rest):
            raise DistStoreError(
                f"FileStore: a record in {self._path!r} is damaged, so what follows it is lost; start the job again "
                "with a path that is free"
            )

    def _verified(self, record: bytes) -> list[bytes]:
        """The fields of a complete record; raises unless it was written with the job's key, as the next record."""
        proof, change = record[:_PROOF], record[_PROOF:]
        if not hmac.compare_digest(proof, self._proof_of(change)):
            raise DistStoreError(
                f"FileStore: a record in {self._path!r} was not written with this job's key; give all processes of a "
                "job the same WEFT_JOB_KEY (or WEFT_JOB_KEY_FILE), and a path that no other job has used"
            )
        # Each proof covers the one before it, so records can neither be left out nor come from another log.
        self._proof = proof
        return unpack(change)

    def _proof_of(self, change: bytes) -> bytes:
        return _proof(self._key, self._proof, change)

    def _replaced(self) -> bool:
        """Whether another log is now at the path. A log that was removed has no successor."""
        try:
            return not os.fstat(self.file).st_nlink and os.path.exists(self._path)
        except OSError as error:  # on another host of a network file system
            if error.errno != errno.ESTALE:
                raise
            return True

    def _reopen(self) -> None:
        """Continue with the log that has replaced this one."""
        file = self._open(0)
        os.close(self.file)
        self.file = file
        self._rewind()

    def _apply(self, key: bytes, *values: bytes) -> None:
        if values:
            self._table.values[key] = values[0]
        else:
            self._table.delete(key)

    def change(self, key: bytes, change: Callable[[Table], _T], timeout: timedelta) -> _T:
        """Change the value of a key, with the file locked."""
        with self._locked(timeout):
            table = self.table()
            self._refuse_damage()  # since writing would cut off the records after it
            before = table.values.get(key)
            result = change(table)
            after = table.values.get(key)
            if after is not before:
                self._write(pack(key) if after is None else pack(key, after))
                if self._end > self._compact_at:
                    self._compact()
            return result

    def _write(self, change: bytes) -> None:
        proof = self._proof_of(change)
        whole = _framed(proof, change)
        try:
            os.ftruncate(self.file, self._end)  # remove what a killed writer has left
            if os.pwrite(self.file, whole, self._end) < len(whole):
                raise OSError(0, "the file system took only a part of the record; is it full?")
        except OSError as error:
            self._rewind()  # the change was not made
            raise DistStoreError(f"FileStore: {self._path!r} cannot be written: {error.strerror}") from error
        self._proof = proof
        self._end += len(whole)

    def _compact(self) -> None:
        """Replace this log by one of the present values; if that is impossible, this one continues to grow."""
        parts = list(self._compacted())
        self._compact_at = max(_SMALL, _WASTE * sum(map(len, parts)))
        if self._end <= self._compact_at:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._successor)  # left by a process that was killed
            with open(os.open(self._successor, flags, 0o600), "wb") as file:
                file.writelines(parts)
            # Others still read the old log, which stays as it is without a name; by that they notice the new one.
            os.replace(self._successor, self._path)
        except OSError as error:
            self._compact_at = 2 * self._end
            _log.info("the log of the store %s is not made shorter: %s", self._path, error)
            with suppress(OSError):
                os.unlink(self._successor)

    def _compacted(self) -> Iterator[bytes]:
        """The parts of a new log of the present values."""
        proof = _header()
        yield proof
        for key, value in self._table.values.items():
            change = pack(key, value)
            proof = _proof(self._key, proof, change)
            yield _framed(proof, change)

    def leave(self, world_size: int) -> None:
        """Remove one user; the last one removes the file."""
        timeout = timedelta(seconds=10)
        closed = self.change(_CLOSED, lambda table: table.add(_CLOSED, 1), timeout)
        users = self.change(_USERS, lambda table: table.add(_USERS, -1), timeout)
        self.table()  # notices whether the log has just been replaced
        # `closed` counts those who have left in all: a user who is early, and leaves before the next one comes, must
        # not take the file along.
        if users == 0 and 0 <= world_size <= closed and os.fstat(self.file).st_nlink:
            os.unlink(self._path)
            with suppress(OSError):
                os.unlink(self._successor)  # left by a process that was killed

    def close(self) -> None:
        """Close the file."""
        file, self.file = self.file, -1
        os.close(file)

    def _check_open(self) -> None:
        if self.file < 0:
            raise DistStoreError(f"FileStore: the store on {self._path!r} has been closed in this process")

    @contextmanager
    def _locked(self, timeout: timedelta) -> Generator[None]:
        self._check_open()
        deadline = Deadline(timeout.total_seconds())
        self._lock(deadline)
        while self._end and self._replaced():  # by the previous holder of the lock
            self._reopen()
            self._lock(deadline)
        locked = self.file
        try:
            yield
        finally:
            fcntl.flock(locked, fcntl.LOCK_UN)

    def _lock(self, deadline: Deadline) -> None:
        for pause in _pauses():
            try:
                return fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if deadline.expired:
                    raise DistStoreError(
                        f"FileStore: another process has kept {self._path!r} locked for {deadline.seconds:g} s; is it "
                        "stopped?"
                    ) from None
                time.sleep(pause)
        raise AssertionError("pauses do not end")


def _followed(path: str) -> str:
    try:
        return os.fspath(followed(Path(path)))
    except OSError as error:
        raise _opening_error(path, error) from error


def _opening_error(path: str, error: OSError) -> DistStoreError:
    return DistStoreError(f"FileStore: {path!r} cannot be opened: {error.strerror}")


def _check_owner(status: os.stat_result, path: str) -> None:
    """Refuse a file that another user can change."""
    if why := doubt(status):
        raise DistStoreError(
            f"FileStore: {path!r} {why}, who could change what this job's processes tell each other; choose a path "
            "that is free, in a folder of your own"
        )


def _header() -> bytes:
    return _MAGIC + secrets.token_bytes(_NONCE)


def _proof(key: bytes, before: bytes, change: bytes) -> bytes:
    return hmac.digest(key, before + change, hashlib.sha256)


def _framed(proof: bytes, change: bytes) -> bytes:
    """A record with its length and checksum, as in the file."""
    record = proof + change
    return _HEAD.pack(len(record), zlib.crc32(record)) + record
