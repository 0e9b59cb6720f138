"""The file `.metadata` of a checkpoint's folder: an object of plain containers, as `weft.save` writes it.

A tensor is its type, its size and its chunks; a chunk its offsets, its sizes, and where its elements are: the number of
a file, the first byte there, and the number of bytes. An object is the last three alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from weft._base.guards import is_dict
from weft._base.size import Size
from weft._base.types import Json, SavedState
from weft._checkpoint.describe import dtype_of
from weft._checkpoint.storages import is_shape
from weft.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from weft.errors import CheckpointError
from weft.serialization import load, save

NAME = ".metadata"
_FORMAT = "weft distributed checkpoint"
_VERSION = 1


@dataclass(frozen=True)
class StorageInfo:
    """Where an item is: a range of bytes in a file of the folder.

    archived  whether these are a file of PyTorch's, as its own writer stores each item; else they are elements in
              row-major order, or the bytes of an object
    """

    relative_path: str
    offset: int
    length: int
    archived: bool = False


def write_metadata(folder: Path, metadata: Metadata) -> None:
    """Write the file, completely or not at all."""
    files = sorted(files_of(metadata))
    # Names are written once and chunks have numbers: a large model has many chunks in each file.
    numbers = {name: number for number, name in enumerate(files)}

    def where(index: MetadataIndex) -> tuple[int, int, int]:
        info = metadata.storage_data[index]
        return numbers[info.relative_path], info.offset, info.length

    tensors: SavedState = {}
    objects: SavedState = {}
    for key, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata):
            objects[key] = where(MetadataIndex(key))
            continue
        chunks = [
            (tuple(chunk.offsets), tuple(chunk.sizes), *where(MetadataIndex(key, chunk.offsets)))
            for chunk in entry.chunks
        ]
        tensors[key] = entry.properties.dtype, tuple(entry.size), chunks
    contents = {
        "format": _FORMAT,
        "version": _VERSION,
        "files": files,
        "tensors": tensors,
        "objects": objects,
        "planner_data": metadata.planner_data,
    }
    save(contents, folder / NAME)


def files_of(metadata: Metadata) -> set[str]:
    """The files of the folder in which a checkpoint's items are."""
    places: Mapping[MetadataIndex, StorageInfo] = metadata.storage_data or {}
    return {info.relative_path for info in places.values()}


def read_metadata(path: Path) -> Metadata:
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
        properties = TensorProperties(dtype_of(dtype.name))
        tensor = entries[key] = TensorStorageMetadata(properties, Size(size), [])
        for offsets, sizes, number, start, length in chunks:
            # Sizes come from a file that anybody may have written, and decide how much is read and allocated.
            if length != prod(sizes) * properties.dtype.itemsize:
                raise ValueError(f"its tensor {key!r} has a chunk of {length} bytes of sizes {list(sizes)}")
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


def checked_chunk(offsets: Json, sizes: Json, tensor: TensorStorageMetadata) -> ChunkStorageMetadata:
    """A chunk of a tensor; `ValueError` if it cannot be one."""
    dims = len(tensor.size)
    if not all(is_shape(x) and len(x) == dims for x in (tensor.size, offsets, sizes)):
        raise ValueError(f"it has a tensor of size {list(tensor.size)} with an impossible chunk")
    return ChunkStorageMetadata(Size(offsets), Size(sizes))


def checked_name(name: object) -> str:
    """The name of a file; `ValueError` if it leads out of the folder."""
    if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
        raise ValueError(f"its file {name!r} is none of its folder")
    return name
