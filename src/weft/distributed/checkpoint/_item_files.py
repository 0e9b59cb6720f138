"""Files in which a rank writes items: PyTorch's, or safetensors. Each is written whole or not at all."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from weft._checkpoint.archive import write_to_path
from weft._checkpoint.tensorfile import TensorFile, writer_of
from weft._lazy.aligned import ALIGNMENT
from weft._tensor.convert import from_host
from weft._tensor.copying import require_whole
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import own
from weft.distributed.checkpoint._metadata_file import StorageInfo
from weft.distributed.checkpoint.planner import SavePlanner, WriteItem
from weft.distributed.checkpoint.storage import WriteResult
from weft.errors import CheckpointError
from weft.serialization import save

OFFSETS = "DCP_SHARDING_INFO"
"""An entry of a safetensors header: where each tensor begins within the whole one. PyTorch's files have it, too."""


def split_items(items: Sequence[WriteItem], count: int) -> list[list[WriteItem]]:
    """Items in at most so many lists of about the same number of bytes."""
    parts: list[list[WriteItem]] = [[] for _ in range(count)]
    sizes = [0] * count
    # Largest first, as a greedy choice is then close to the best division.
    for item in sorted(items, key=lambda item: -(item.tensor_storage_size() or 0)):
        at = sizes.index(min(sizes))
        parts[at].append(item)
        sizes[at] += item.tensor_storage_size() or 0
    return [part for part in parts if part]


# --- PyTorch's: a file of files, one for each item ----------------------------------------------------------------


def write_archives(path: Path, items: Sequence[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    """Write each item as a file of its own in a file: tensors as `weft.save` writes them, objects as their bytes."""
    results: list[WriteResult] = []

    def put(file: IO[bytes]) -> None:
        for item in items:
            # So elements are aligned in the file, and in memory that shows it.
            file.write(bytes(-file.tell() % ALIGNMENT))
            start = file.tell()
            _put_item(file, planner.resolve_data(item))
            nbytes = file.tell() - start
            results.append(WriteResult(item.index, nbytes, StorageInfo(path.name, start, nbytes)))

    # Written under another name and renamed: a save that is killed leaves no file that looks whole.
    write_to_path(path, put)
    return results


def _put_item(file: IO[bytes], data: Tensor | io.BytesIO) -> None:
    if not isinstance(data, Tensor):
        file.write(data.getbuffer())
        return
    value = data._read()
    require_whole(value)
    save(wrap(own(value)).cpu(), file)  # its elements, without a class, attributes and the rest of its storage


# --- safetensors --------------------------------------------------------------------------------------------------


def write_safetensors(path: Path, items: Sequence[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    """Write a safetensors file with each item as a tensor; objects as their bytes."""
    names = _names_of(items)
    offsets = {name: {"saved_offsets": _offset_of(item)} for name, item in names.items()}
    header = {OFFSETS: json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}
    tensors = {name: _storable(planner.resolve_data(item)) for name, item in names.items()}
    write_to_path(path, writer_of(tensors, header))
    with path.open("rb") as file:
        content = TensorFile(file)
    return [_result(item, name, content, path.name) for name, item in names.items()]


def _names_of(items: Sequence[WriteItem]) -> dict[str, WriteItem]:
    """The items of one file by name: their keys, with the offset where a key has several chunks in it."""
    counts = Counter(item.index.fqn for item in items)
    names = {
        item.index.fqn if counts[item.index.fqn] == 1 else f"{item.index.fqn} at {_offset_of(item)}": item
        for item in items
    }
    if len(names) != len(items):
        raise CheckpointError(f"cannot save: two items of one rank are called {max(counts, key=lambda n: counts[n])!r}")
    return names


def _offset_of(item: WriteItem) -> list[int]:
    return [0] if item.index.offset is None else list(item.index.offset)


def _storable(data: Tensor | io.BytesIO) -> Tensor:
    return data if isinstance(data, Tensor) else from_host(np.frombuffer(data.getbuffer(), np.uint8))


def _result(item: WriteItem, name: str, content: TensorFile, file: str) -> WriteResult:
    start, nbytes = content.place_of(name)
    return WriteResult(item.index, nbytes, StorageInfo(file, start, nbytes))
