"""Folders of safetensors files without further metadata, such as published models."""

from __future__ import annotations

import json
from pathlib import Path

from weft._base.size import Size
from weft._base.types import Arg, Json
from weft._checkpoint.tensorfile import TensorFile
from weft.distributed.checkpoint._item_files import OFFSETS
from weft.distributed.checkpoint._metadata_file import ELEMENTS, StorageInfo, checked_chunk
from weft.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, SerializationFormat
from weft.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from weft.distributed.checkpoint.storage import CheckpointId
from weft.errors import CheckpointError, UnsupportedCallError


class HuggingFaceStorageReader(FileSystemReader):
    """Reads all safetensors files of a folder, as one checkpoint.

    Tensors are whole, or parts whose offsets the files' headers give, as PyTorch's `HuggingFaceStorageWriter` does.
    `thread_count` is accepted for compatibility.
    """

    _follows_links = True  # the hub's cache has the files elsewhere

    def __init__(self, path: CheckpointId, thread_count: int = 1) -> None:
        del thread_count
        super().__init__(path)

    def _read_metadata(self) -> Metadata:
        names = sorted(self.path.glob(f"*{ELEMENTS}"))
        if not names:
            raise CheckpointError(f"cannot load {self.path}: there are no files *{ELEMENTS} in it")
        metadata = Metadata({}, storage_data={})
        for path in names:
            try:
                _add_file(metadata, path)
            except (ValueError, KeyError, TypeError) as error:
                raise CheckpointError(f"cannot load {path}: {error}") from error
        return metadata


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes a checkpoint as safetensors files, one for each rank, which `HuggingFaceStorageReader` reads.

    Only with `save_distributed=True` and without consolidation, else `NotImplementedError`; the number of files is
    that of the ranks, whatever `fqn_to_index_mapping` says.
    """

    def __init__(
        self,
        path: CheckpointId,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        **options: Arg,
    ) -> None:
        del fqn_to_index_mapping, thread_count, options
        if not save_distributed or enable_consolidation:
            raise UnsupportedCallError(
                "HuggingFaceStorageWriter: each rank writes the parts that it has, so pass save_distributed=True and "
                f"enable_consolidation=False, not {save_distributed=} and {enable_consolidation=}; to write whole "
                "tensors, gather them by get_model_state_dict(options=StateDictOptions(full_state_dict=True))"
            )
        super().__init__(path, serialization_format=SerializationFormat.SAFETENSORS)


def _add_file(metadata: Metadata, path: Path) -> None:
    with path.open("rb") as file:
        content = TensorFile(file)
    offsets: dict[str, Json] = json.loads((content.metadata or {}).get(OFFSETS, "{}"))
    for key in content.keys():  # noqa: SIM118  no dict
        shape, dtype = content.type_of(key)
        offset = offsets[key]["saved_offsets"] if key in offsets else [0] * len(shape)
        if len(offset) != len(shape):
            raise ValueError(f"its tensor {key!r} of {len(shape)} dims begins at {offset}")
        tensor = _extended(metadata.state_dict_metadata, key, TensorProperties(dtype), shape, offset)
        tensor.chunks.append(checked_chunk(offset, shape, tensor))
        metadata.storage_data[MetadataIndex(key, offset)] = StorageInfo(path.name, *content.place_of(key))


def _extended(
    entries: dict[str, STORAGE_TYPES], key: str, properties: TensorProperties, shape: tuple[int, ...], offset: list[int]
) -> TensorStorageMetadata:
    """The tensor of a key, grown so that it reaches to the end of a part."""
    size = Size([start + length for start, length in zip(offset, shape, strict=True)])
    tensor = entries.setdefault(key, TensorStorageMetadata(properties, size, []))
    assert isinstance(tensor, TensorStorageMetadata), "there are only tensors"
    if len(tensor.size) != len(size) or tensor.properties != properties:
        raise ValueError(f"its tensor {key!r} is another one than in the files before")
    tensor.size = Size(map(max, tensor.size, size))
    return tensor
