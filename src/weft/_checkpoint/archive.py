"""Zip archives of uncompressed members at aligned places. Reading does not trust the content."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from typing import IO, cast

import numpy as np

from weft._base.files import followed, output_file
from weft._base.types import Arg, PathLike
from weft._checkpoint.buffers import Bytes
from weft._lazy.aligned import ALIGNMENT, room
from weft.errors import CheckpointError

_EPOCH = (1980, 1, 1, 0, 0, 0)  # archives of equal objects are equal
_HEADER = 30  # bytes of a local file header without name and extra fields
_ZIP64 = 20  # bytes of the extra field with 64-bit sizes
_LARGE = 1 << 30  # bytes from which a member has 64-bit sizes; before 2 GB, from where Python would add them itself
_PADDING_ID = 0x4246  # PyTorch's: "FB"
_ENCRYPTED = 1
_CHUNK = 1 << 20  # bytes read at a time: few enough to be in the cache still when their checksum is computed

Member = tuple[str, "memoryview | bytes"]


# --- writing ----------------------------------------------------------------------------------------------------


class _Sink:
    """A file that can only be written on. For such files, sizes follow a member's content, as PyTorch writes them."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write
        self.flush = getattr(file, "flush", lambda: None)


class _Unchecked(zipfile.ZipInfo):
    """A member without a checksum: it has 0 in its place, as PyTorch writes it."""

    CRC = property(lambda self: 0, lambda self, checksum: None)  # pyright: ignore[reportAssignmentType]


class Writer:
    """Writes an archive to an open file, which may be a pipe. It is laid out as PyTorch's, which computes offsets.

    The places of contents are multiples of `alignment`. Without `checked`, members have no checksums.
    """

    def __init__(self, file: IO[bytes], alignment: int = ALIGNMENT, *, checked: bool = True) -> None:
        self._archive = zipfile.ZipFile(cast("IO[bytes]", _Sink(file)), "w", zipfile.ZIP_STORED, allowZip64=True)
        self._alignment = alignment
        self._checked = checked

    def add(self, name: str, content: memoryview | bytes) -> None:
        """Write a member."""
        kind = zipfile.ZipInfo if self._checked else _Unchecked
        pieces = (content[at : at + _CHUNK] for at in range(0, len(content), _CHUNK))
        self._add(kind(name, _EPOCH), len(content), pieces)

    def add_room(self, name: str, size: int) -> None:
        """Write a member of `size` zeros, without a checksum: what is written there later needs none."""
        pieces = (bytes(min(_CHUNK, size - at)) for at in range(0, size, _CHUNK))
        self._add(_Unchecked(name, _EPOCH), size, pieces)

    def _add(self, info: zipfile.ZipInfo, size: int, pieces: Iterable[memoryview | bytes]) -> None:
        assert self._archive.fp is not None, "an open archive has a file"
        info.file_size = size
        is_large = size >= _LARGE
        extra = (_ZIP64 if is_large else 0) + 4
        start = self._archive.fp.tell() + _HEADER + len(info.filename.encode()) + extra
        padding = -start % self._alignment
        info.extra = struct.pack("<HH", _PADDING_ID, padding) + b"Z" * padding
        with self._archive.open(info, "w", force_zip64=is_large) as member:
            info.extra = b""  # the directory at the end has none
            for piece in pieces:
                member.write(piece)

    def close(self) -> None:
        """Write the directory, after which nothing can be added."""
        self._archive.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write(file: IO[bytes], members: Iterable[Member]) -> None:
    """Write an archive of some members to an open file."""
    with Writer(file) as writer:
        for name, content in members:
            writer.add(name, content)


def write_to_path(path: Path, put: Callable[[IO[bytes]], None]) -> None:
    """Let `put` write a file atomically: others see all of it or nothing, even after a power failure.

    If the path is a link, its target is replaced (`followed` has the rule). Devices and pipes are written in place.
    """
    if not (parent := followed(path).parent).is_dir():
        raise CheckpointError(f"cannot save {path}: Parent directory {parent} does not exist.")
    with output_file(path) as file:
        put(file)


# --- reading ----------------------------------------------------------------------------------------------------


class Reader:
    """Reads members of an archive in an open file. `CheckpointError` if it is invalid.

    With `mapped`, the file's bytes in memory, members are parts of it, and their checksums are not verified. `length`
    is the size of the whole file in bytes.
    """

    def __init__(self, file: IO[bytes], infos: list[zipfile.ZipInfo], length: int, mapped: Bytes | None) -> None:
        self.length = length
        self._file = file
        self._mapped = mapped
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._ends: dict[str, int] = {}  # the start of the next member, or the end of the file
        ordered = sorted(infos, key=lambda info: info.header_offset)
        for info, after in zip(ordered, [*(i.header_offset for i in ordered[1:]), length], strict=True):
            self._add(info, after, length)

    def _add(self, info: zipfile.ZipInfo, after: int, length: int) -> None:
        name = info.filename
        if name in self._members:
            raise CheckpointError(f"it has two members {name!r}")
        if info.header_offset < 0:
            raise CheckpointError(f"the member {name!r} lies before the file")
        if info.header_offset + _HEADER + info.compress_size > after:
            raise CheckpointError(
                f"the member {name!r} is larger than the file"
                if after == length
                else f"the member {name!r} overlaps another one"
            )
        self._members[name] = info
        self._ends[name] = after

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def names(self) -> list[str]:
        """The names of the members, in the order in which they are stored."""
        return list(self._members)

    def size(self, name: str) -> int:
        """The size of a member in bytes; `CheckpointError` if it is missing, compressed or encrypted."""
        info = self._members.get(name)
        if info is None:
            raise CheckpointError(f"the member {name!r} is missing")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise CheckpointError(f"the member {name!r} is compressed")
        if info.flag_bits & _ENCRYPTED:
            raise CheckpointError(f"the member {name!r} is encrypted")
        return info.file_size

    def read(self, name: str) -> bytes:
        """A copy of a member's content."""
        return self.array(name).tobytes()

    def array(self, name: str) -> Bytes:
        """A member's content in new memory, with its checksum verified; or, if mapped, its part of the file."""
        size = self.size(name)
        start = self.start(name)
        if self._mapped is not None:
            return self._mapped[start : start + size]
        content = room(size)
        checksum = _checksum(parts(self._file, start, content, name))
        if self._members[name].CRC not in (checksum, 0):  # 0 is none
            raise CheckpointError(f"the member {name!r} is damaged (Bad CRC-32 for file {name!r})")
        return content

    def header_start(self, name: str) -> int:
        """Where the header of a member begins, in bytes from the beginning of the file."""
        return self._members[name].header_offset

    def start(self, name: str) -> int:
        """Where the content of a member begins, in bytes from the beginning of the file."""
        info = self._members[name]
        self._file.seek(info.header_offset)
        header = self._file.read(_HEADER)
        if len(header) < _HEADER or header[:4] != b"PK\x03\x04":
            raise CheckpointError(f"the member {name!r} is damaged (Bad magic number for file header)")
        named, extra = struct.unpack_from("<HH", header, 26)
        if self._file.read(named) != info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437"):
            raise CheckpointError(f"the member {name!r} is damaged (File name in directory and header differ)")
        start = info.header_offset + _HEADER + named + extra
        if start + info.file_size > self._ends[name]:
            raise CheckpointError(f"the member {name!r} overlaps another one")
        return start


def _checksum(parts: Iterator[memoryview]) -> int:
    """The CRC-32 of all parts. Another thread computes it for each part while the next one is read."""
    checksum = zlib.crc32(next(parts, b""))
    second = next(parts, None)
    if second is None:
        return checksum
    with ThreadPoolExecutor(1) as executor:
        later = executor.submit(zlib.crc32, second, checksum)
        for part in parts:
            later = executor.submit(_after, part, later)
    return later.result()


def _after(part: memoryview, before: Future[int]) -> int:
    return zlib.crc32(part, before.result())


def parts(file: IO[bytes], start: int, content: Bytes, name: str) -> Iterator[memoryview]:
    """Fill `content` from a position in a file, and yield its parts as they are read.

    `CheckpointError`, with `name`, if the file ends before that.
    """
    file.seek(start)
    into = content.data
    at = 0
    while at < len(into):
        part = into[at : at + _CHUNK]
        count = _read_into(file, part)
        if not count:
            raise CheckpointError(f"it is truncated: {name!r} lacks {len(into) - at} of {len(into)} bytes")
        yield part[:count]
        at += count


def filled(file: IO[bytes], start: int, size: int, name: str) -> Bytes:
    """`size` bytes from a position in a file, in new memory. `CheckpointError`, with `name`, if it ends before."""
    content = room(size)
    for _ in parts(file, start, content, name):
        pass
    return content


def _read_into(file: IO[bytes], part: memoryview) -> int:
    read_into = getattr(file, "readinto", None)
    if read_into is not None:
        return read_into(part) or 0
    data = file.read(len(part))
    part[: len(data)] = data
    return len(data)


@contextmanager
def opened(file: IO[bytes], mapped: Bytes | None = None) -> Generator[Reader]:
    """A reader of the archive in an open file; `CheckpointError` if there is none."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, IndexError, struct.error) as error:
        raise CheckpointError(f"it is truncated or damaged ({error})") from error
    with archive:
        yield Reader(file, archive.infolist(), length, mapped)


def mapped_file(path: PathLike, *, shared: bool = False) -> Bytes:
    """A file's bytes as memory: pages are read when they are used; writes stay in this process, unless `shared`.

    `ValueError` for what is no file with bytes; opening a pipe would wait for whoever writes to it.
    """
    with open(path, "r+b" if shared else "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        return np.memmap(file, np.uint8, "r+" if shared else "c")


class MemoryFile(io.RawIOBase):
    """Bytes in memory as a file that is read, without a copy of them."""

    def __init__(self, content: Bytes) -> None:
        self._content = content.data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._content)}[whence]
        if origin + offset < 0:
            raise OSError(EINVAL, os.strerror(EINVAL))
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: Arg) -> int:
        into = memoryview(buffer)
        part = self._content[self._at : self._at + len(into)]
        into[: len(part)] = part
        self._at += len(part)
        return len(part)
