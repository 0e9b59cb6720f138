"""Writing files so that nobody sees half of one."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[BufferedRandom]:
    """A new file, open for writing and reading, that takes the place of `path` when the block ends.

    Nobody sees half of it, not even after a power cut. A file that was there hands its permissions on. After an error,
    `path` is as it was and nothing else is left.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "x+b") as file:
            if path.exists():
                shutil.copymode(path, part)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
