"""Files as PyTorch writes them: zip archives of a pickle and storages, and the stream format from before 1.6."""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections.abc import Iterator, Mapping
from typing import IO

from weft._checkpoint.archive import Member, Writer
from weft._checkpoint.options import get_crc32_options, get_storage_alignment, skipping
from weft._checkpoint.storage_table import StorageTable
from weft._checkpoint.torch_files import LEGACY_PROTOCOL, LEGACY_START

_VERSION = b"3\n"
_FORMAT_VERSION = b"1"


def write_archive(
    file: IO[bytes], content: bytes, storages: StorageTable, folder: str, extra: Mapping[str, bytes]
) -> None:
    """Write an archive whose members are in PyTorch's order. Elements are fetched as they are written.

    `folder` is that of all members; PyTorch takes the name of the file. `extra` are further members.
    """
    alignment = get_storage_alignment()
    with Writer(file, alignment, checked=get_crc32_options()) as writer:
        for name, member in _before_storages(content, alignment):
            writer.add(f"{folder}/{name}", member)
        for record in storages:
            name = f"{folder}/data/{record.key}"
            if skipping.skip_data:
                writer.add_room(name, record.nbytes)
            else:
                writer.add(name, record.content())
        for name, member in _after_storages(content, extra):
            writer.add(f"{folder}/{name}", member)


def _before_storages(content: bytes, alignment: int) -> Iterator[Member]:
    yield "data.pkl", content
    yield ".format_version", _FORMAT_VERSION
    yield ".storage_alignment", str(alignment).encode()
    yield "byteorder", b"little"


def _after_storages(content: bytes, extra: Mapping[str, bytes]) -> Iterator[Member]:
    yield "version", _VERSION
    yield ".data/serialization_id", identity_of(content)
    yield from extra.items()


def identity_of(content: bytes) -> bytes:
    """40 digits, by which PyTorch counts how often a file is loaded: equal objects give equal files."""
    return str(int(hashlib.sha256(content).hexdigest(), 16))[:40].zfill(40).encode()


def write_stream(file: IO[bytes], content: bytes, storages: StorageTable) -> None:
    """Write the older format: four pickles, the names of the storages, and their elements one after another."""
    system = {
        "protocol_version": LEGACY_PROTOCOL,
        "little_endian": True,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    records = sorted(storages, key=lambda record: record.key)
    file.write(LEGACY_START)
    for head in (LEGACY_PROTOCOL, system):
        pickle.dump(head, file, protocol=2)
    file.write(content)
    pickle.dump([record.key for record in records], file, protocol=2)
    for record in records:
        elements = record.content()
        file.write(struct.pack("<q", len(elements) // record.name.itemsize))
        file.write(elements)
