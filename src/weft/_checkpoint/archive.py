"""The file: a zip archive of stored members, each aligned to 64 bytes. Reading it trusts nothing."""

from __future__ import annotations

import os
import re
import secrets
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from weft.errors import CheckpointError

_ALIGNMENT = 64
_EPOCH = (1980, 1, 1, 0, 0, 0)  # archives of equal objects are equal
_HEADER = 30  # bytes of a local file header without name and extra fields
_ZIP64 = 20  # bytes of the extra field with 64-bit sizes, which every member has
_PADDING_ID = 0x5744
_ENCRYPTED = 1
_NAME = re.compile(r"weft\.json|data/(0|[1-9][0-9]{0,9})")

Member = tuple[str, "memoryview | bytes"]


def write(file: IO[bytes], members: Iterable[Member]) -> None:
    """Write an archive to an open file."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.file_size = len(content)
            start = file.tell() + _HEADER + len(name) + _ZIP64 + 4
            padding = -start % _ALIGNMENT
            info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=True) as member:
                member.write(content)


def write_atomically(path: Path, members: Callable[[], Iterable[Member]]) -> None:
    """Write an archive next to its place, then put it there: nobody sees half of it, not even after a power cut."""
    if not path.parent.is_dir():
        raise CheckpointError(f"cannot save {path}: Parent directory {path.parent} does not exist.")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            write(file, members())
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


class Reader:
    """Reads members of an archive. `ValueError` says what is wrong with it."""

    def __init__(self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> None:
        self._archive = archive
        self._members = members

    def size(self, name: str) -> int:
        """Bytes of a member."""
        if name not in self._members:
            raise ValueError(f"the member {name!r} is missing")
        return self._members[name].file_size

    def read(self, name: str) -> bytes:
        """A member's content, whose checksum is right."""
        self.size(name)
        try:
            return self._archive.read(self._members[name])
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, struct.error) as error:
            raise ValueError(f"the member {name!r} is damaged ({error})") from error


@contextmanager
def opened(file: IO[bytes]) -> Iterator[Reader]:
    """A reader of the archive in an open file."""
    start = file.tell()
    head = file.read(4)
    length = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        reason = "it is truncated" if head == b"PK\x03\x04" else "it is no checkpoint"
        raise ValueError(f"{reason} ({error})") from error
    with archive:
        yield Reader(archive, _checked(archive.infolist(), length))


def _checked(infos: list[zipfile.ZipInfo], length: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name. Names, sizes and places must be such as `write` makes them."""
    members: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for info in sorted(infos, key=lambda member: member.header_offset):
        if info.filename.endswith("/data.pkl"):
            raise ValueError(
                "it is a checkpoint of PyTorch's, which holds pickled code; load it there, and save its state dict as "
                "NumPy arrays"
            )
        if not _NAME.fullmatch(info.filename):
            raise ValueError(f"it has a member of unexpected name {info.filename!r}")
        if info.filename in members:
            raise ValueError(f"it has two members {info.filename!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"the member {info.filename!r} is compressed")
        if info.flag_bits & _ENCRYPTED:
            raise ValueError(f"the member {info.filename!r} is encrypted")
        if info.header_offset < end:
            raise ValueError(f"the member {info.filename!r} overlaps another one")
        end = info.header_offset + _HEADER + info.file_size
        if end > length:
            raise ValueError(f"the member {info.filename!r} is larger than the file")
        members[info.filename] = info
    return members


def any_bytes(array: Any) -> memoryview:
    """The bytes of a dense array, without a copy."""
    return memoryview(array.reshape(-1).view("u1"))
