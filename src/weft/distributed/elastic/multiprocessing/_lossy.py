"""Output that is dropped when the disk is full: a worker must not fail because its log cannot be written."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_FULL = (errno.ENOSPC, errno.EDQUOT)


class _LossyFile(io.FileIO):
    """A file whose writes never fail; what does not fit on the disk is lost."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _FULL:
                raise
            return memoryview(data).nbytes


def survive_full_disks() -> None:
    """Let Python's standard streams drop what a full disk cannot take, if they go to files."""
    for name in ("stdout", "stderr"):
        stream: object = getattr(sys, name)
        if _is_text(stream) and stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            setattr(sys, name, _lossy(stream))


def _is_text(stream: object) -> TypeGuard[io.TextIOWrapper]:
    return isinstance(stream, io.TextIOWrapper)


def _lossy(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """A lossy stream to the same file."""
    stream.flush()
    file = _LossyFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        file if isinstance(stream.buffer, io.FileIO) else io.BufferedWriter(file),  # python -u does not buffer
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
