"""Output that goes on when the disk of its file is full: a worker must not fail for want of room for its logs."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import Any

_FULL = (errno.ENOSPC, errno.EDQUOT)


class _LossyFile(io.FileIO):
    """A file that takes whatever it is given; what the disk has no room for is lost."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _FULL:
                raise
            return memoryview(data).nbytes


def survive_full_disks() -> None:
    """Have Python's standard streams lose what full disks cannot take, where they go to files."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            setattr(sys, name, _lossy(stream))


def _lossy(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream like this one, to the same file."""
    stream.flush()
    file = _LossyFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        file if isinstance(stream.buffer, io.FileIO) else io.BufferedWriter(file),  # python -u has no buffer
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
