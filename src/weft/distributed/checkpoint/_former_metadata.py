"""The file `.metadata` as earlier versions wrote it: an object of plain containers, as `weft.load` reads it.

A tensor is its type, its size and its chunks; a chunk its offsets, its sizes, and where its elements are: the number of
a file, the first byte there, and the number of bytes. An object is the last three alone.
"""

from __future__ import annotations

from pathlib import Path

from weft._base.guards import is_dict
from weft._base.size import Size
from weft._base.types import SavedState
from weft._checkpoint.describe import dtype_of
from weft.distributed.checkpoint._metadata_file import StorageInfo, checked_chunk, checked_name
from weft.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from weft.errors import CheckpointError
from weft.serialization import load

_FORMAT = "weft distributed checkpoint"
_VERSION = 1


def read_former_metadata(path: Path) -> Metadata:
    """The metadata in a file. `CheckpointError` if it is none."""
    contents = load(path)
    try:
        if not is_dict(contents) or contents.get("format") != _FORMAT:
            raise ValueError("it is no metadata of a distributed checkpoint")
        if contents["version"] > _VERSION:
            raise ValueError(f"its format is version {contents['version']}, and {_VERSION} can be read; update Weft")
        return _metadata(contents)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"cannot load {path}: {error}") from error


def _metadata(contents: SavedState) -> Metadata:
    files = [checked_name(name) for name in contents["files"]]
    entries: dict[str, STORAGE_TYPES] = {}
    places: dict[MetadataIndex, StorageInfo] = {}
    for key, (dtype, size, chunks) in contents["tensors"].items():
        tensor = entries[key] = TensorStorageMetadata(TensorProperties(dtype_of(dtype.name)), Size(size), [])
        for offsets, sizes, number, start, length in chunks:
            tensor.chunks.append(checked_chunk(offsets, sizes, tensor))
            places[MetadataIndex(key, offsets)] = StorageInfo(_file(files, number), start, length)
    for key, (number, start, length) in contents["objects"].items():
        entries[key] = BytesStorageMetadata()
        places[MetadataIndex(key)] = StorageInfo(_file(files, number), start, length)
    return Metadata(entries, contents["planner_data"], places)


def _file(files: list[str], number: object) -> str:
    if type(number) is not int or not 0 <= number < len(files):
        raise ValueError(f"it refers to file {number!r}, and has {len(files)}")
    return files[number]
