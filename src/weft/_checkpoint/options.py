"""What can be set for all loading of checkpoints."""

from __future__ import annotations

import mmap
import threading
from enum import Enum
from typing import Any

from weft.errors import ArgumentError, ValueRangeError


class LoadEndianness(Enum):
    """The byte order of files that do not say it."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


# no cell: no program depends on it
SETTINGS: dict[str, Any] = {
    "load.mmap": False,
    "load.endianness": None,
    "load.mmap_flags": mmap.MAP_PRIVATE,
    "load.calculate_storage_offsets": False,
    "save.compute_crc32": True,
    "save.use_pinned_memory_for_d2h": False,
    "save.storage_alignment": 64,
}
"""What `weft.utils.serialization.config` shows, by name. `load.calculate_storage_offsets` changes nothing, since the
directory of an archive has all offsets, nor does `save.use_pinned_memory_for_d2h`."""


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order that is taken for files of PyTorch's which do not say theirs; None is little-endian."""
    return SETTINGS["load.endianness"]


def set_default_load_endianness(endianness: object) -> None:
    """Set it, to a `LoadEndianness` or None."""
    if not (endianness is None or isinstance(endianness, LoadEndianness)):
        raise ArgumentError("Invalid argument type in function set_default_load_endianness")
    SETTINGS["load.endianness"] = endianness


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` maps files: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`."""
    return SETTINGS["load.mmap_flags"]


def get_crc32_options() -> bool:
    """Whether `save` gives the members of archives checksums: by default it does."""
    return SETTINGS["save.compute_crc32"]


def set_crc32_options(compute_crc32: bool) -> None:
    """Set it. Archives without checksums are not verified when they are loaded, and other programs refuse them."""
    SETTINGS["save.compute_crc32"] = compute_crc32


def get_storage_alignment() -> int:
    """The number of bytes of which the places of members in archives are multiples."""
    return SETTINGS["save.storage_alignment"]


_get_storage_alignment = get_storage_alignment  # PyTorch's name


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
        self._before, SETTINGS["load.mmap_flags"] = get_default_mmap_options(), flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        SETTINGS["load.mmap_flags"] = self._before


# --- archives without the elements ------------------------------------------------------------------------------------


class _SerializationLocal(threading.local):
    """What `skip_data` sets, in each thread."""

    skip_data = False
    materialize_fake_tensors = False


# no cell: files are not read or written in a captured function
skipping = _SerializationLocal()
_serialization_tls = skipping  # PyTorch's name


class skip_data:
    """A block in which `save` leaves the bytes of storages zero, and `load` leaves them in the file.

    Saved elements can be written later, at the places that `PyTorchFileReader.get_record_offset` gives: those members
    have no checksums. Loaded tensors are zeros. With `materialize_fake_tensors`, fake tensors are saved as zeros, too.

        with skip_data():
            save(state, "later.pt")
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = skipping.skip_data, skipping.materialize_fake_tensors
        skipping.skip_data, skipping.materialize_fake_tensors = True, self.materialize_fake_tensors

    def __exit__(self, *_: object) -> None:
        skipping.skip_data, skipping.materialize_fake_tensors = self._before
