"""What must hold of a checkpoint's metadata before anything is read by it, since anybody may have written it.

Elements that no chunk has would be zeros, and chunks that say the same twice would cost time and memory that do not
grow with the files.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from weft.distributed.checkpoint._chunks import are_told_apart, make_up
from weft.distributed.checkpoint._metadata_file import StorageInfo
from weft.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from weft.errors import CheckpointError


def check_metadata(folder: Path, metadata: Metadata) -> None:
    """`CheckpointError` unless the chunks of each tensor make it up, and each item has bytes of its own in a file."""
    try:
        for name, items in _by_file(metadata.storage_data).items():
            _check_places(name, items)
        for key, entry in metadata.state_dict_metadata.items():
            if not isinstance(entry, TensorStorageMetadata):
                continue
            if not are_told_apart(entry.chunks):
                raise ValueError(f"its tensor {key!r} has an empty chunk where another one begins")
            if not make_up(entry.chunks, entry.size):
                raise ValueError(
                    f"the {len(entry.chunks)} chunks of its tensor {key!r} of size {list(entry.size)} leave out some "
                    "elements, have some twice, or go beyond it"
                )
            for chunk in entry.chunks:
                _check_length(key, entry, chunk, metadata.storage_data[MetadataIndex(key, chunk.offsets)])
    except ValueError as error:
        raise CheckpointError(f"cannot load {folder}: {error}; save it again") from error


def _check_length(key: str, tensor: TensorStorageMetadata, chunk: ChunkStorageMetadata, place: StorageInfo) -> None:
    """Sizes decide how much is allocated, so they must not say more than the files hold."""
    # Archived elements may be of another type than the tensor's; no type has more of them than bytes.
    needed = chunk.numel * (1 if place.archived else tensor.properties.dtype.itemsize)
    if place.length < needed or not (place.archived or place.length == needed):
        raise ValueError(f"its tensor {key!r} has a chunk of {place.length} bytes of sizes {list(chunk.sizes)}")


def _by_file(places: dict[MetadataIndex, StorageInfo]) -> dict[str, list[tuple[int, int, str]]]:
    """Where items begin and end in their files, and their keys, by file; those without bytes are nowhere."""
    items: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for index, place in places.items():
        if not type(place.offset) is type(place.length) is int or min(place.offset, place.length) < 0:
            raise ValueError(f"{index.fqn!r} has {place.length!r} bytes at {place.offset!r} of {place.relative_path!r}")
        if place.length:
            items[place.relative_path].append((place.offset, place.offset + place.length, index.fqn))
    return items


def _check_places(name: str, items: list[tuple[int, int, str]]) -> None:
    items.sort()
    for (_, end, one), (start, _, other) in pairwise(items):
        if start < end:
            raise ValueError(f"{one!r} and {other!r} are in the same bytes of {name!r}")
