"""What can be set for all loading of checkpoints."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from enum import Enum

from weft.errors import ArgumentError, ValueRangeError


class LoadEndianness(Enum):
    """The byte order of files that do not say it."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


@dataclass
class _Options:
    endianness: LoadEndianness | None = None
    mapping: int = mmap.MAP_PRIVATE


# no cell: no program depends on it
_options = _Options()


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order that is taken for files of PyTorch's which do not say theirs; None is little-endian."""
    return _options.endianness


def set_default_load_endianness(endianness: object) -> None:
    """Set it, to a `LoadEndianness` or None."""
    if not (endianness is None or isinstance(endianness, LoadEndianness)):
        raise ArgumentError("Invalid argument type in function set_default_load_endianness")
    _options.endianness = endianness


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` maps files: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`."""
    return _options.mapping


def get_crc32_options() -> bool:
    """Whether files get checksums: always, since they cost little here."""
    return True


def set_crc32_options(compute_crc32: bool) -> None:
    """Has no effect: files get checksums, so that whatever reads zip archives takes them."""
    del compute_crc32


class set_default_mmap_options:
    """Map files so from now on, or in a `with` block. By `mmap.MAP_SHARED`, writes to tensors go to their file.

    Its checksums do not fit any more then, so that it is to be loaded by `load(mmap=True)`, which does not read them.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueRangeError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                f"but got {flags}"
            )
        self._before, _options.mapping = _options.mapping, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _options.mapping = self._before
