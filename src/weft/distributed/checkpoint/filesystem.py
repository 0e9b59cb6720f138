"""Checkpoints in folders: files of each rank, and a file `.metadata`, whose appearance completes them.

The format is PyTorch's. The files of a save have names of their own, and `.metadata` is replaced by renaming once all
of them are on disk. So the folder holds either the earlier checkpoint or the new one, wherever a process is killed.
"""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from pathlib import Path

import numpy as np

from weft._base.device import CPU, device
from weft._base.dtype import DType
from weft._base.files import make_output_folder
from weft._base.temporary import remove_stale
from weft._base.types import Arg, Result
from weft._checkpoint.archive import mapped_file
from weft._checkpoint.buffers import Bytes, array_on, computed, tensor_of
from weft._lazy.aligned import room
from weft._tensor.tensor import Tensor
from weft.distributed.checkpoint._checked import check_metadata
from weft.distributed.checkpoint._former_metadata import read_former_metadata
from weft.distributed.checkpoint._item_files import split_items, write_archives, write_safetensors
from weft.distributed.checkpoint._metadata_file import (
    ELEMENTS,
    NAME,
    PICKLE,
    StorageInfo,
    files_of,
    read_metadata,
    write_metadata,
)
from weft.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from weft.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from weft.distributed.checkpoint.storage import CheckpointId, StorageReader, StorageWriter, WriteResult
from weft.errors import CheckpointError, NoCheckpointError, ValueRangeError
from weft.futures import Future
from weft.serialization import load_bytes

CURRENT_DCP_VERSION = "1.0.0"

_StorageInfo = StorageInfo  # by this name pickles refer to it

_DATA = r"__\d+_(?P<number>\d+)\.(?:distcp|safetensors)|rank\d+-[0-9a-f]{8}\.safetensors"  # or of earlier versions
_OWN = re.compile(_DATA)
_PART = rf"\.(?:{_DATA})\.[0-9a-f]{{8}}\.part"
_NUMBERED = re.compile(rf"{_DATA}|{_PART.replace('number', 'unfinished')}")


class SerializationFormat(Enum):
    """How a rank's file holds items: each as a file of its own, which PyTorch reads, or all as safetensors."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


_WRITERS = {
    SerializationFormat.TORCH_SAVE: (".distcp", write_archives),
    SerializationFormat.SAFETENSORS: (ELEMENTS, write_safetensors),
}


@dataclass(frozen=True)
class _StoragePrefix:
    """How the names of one rank's files begin, and the number of the first."""

    prefix: str
    first: int


def is_path(checkpoint_id: CheckpointId) -> bool:
    """Whether this names a folder, and not something at a URL."""
    return "://" not in str(checkpoint_id)


def completed(result: Result) -> Future[Result]:
    """A future that is done."""
    future: Future[Result] = Future()
    future.set_result(result)
    return future


# --- writing ----------------------------------------------------------------------------------------------------


class FileSystemWriter(StorageWriter):
    """Writes a checkpoint into a folder that all ranks share, as PyTorch's writer of this name does.

    An earlier checkpoint there stays until the new one is complete. Without `overwrite`, it is an error. A rank writes
    `thread_count` files at the same time; unless `single_file_per_rank`, each item is in a file of its own. The files
    are named `__RANK_NUMBER`. `sync_files`, `per_thread_copy_ahead` and `cache_staged_state_dict` are accepted for
    compatibility: all files are synced.
    """

    def __init__(
        self,
        path: CheckpointId,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        del sync_files, per_thread_copy_ahead, cache_staged_state_dict
        if thread_count < 1:
            raise ValueRangeError(f"thread_count is {thread_count}, and a rank writes at least one file")
        self.path = Path(path)
        self.single_file_per_rank = single_file_per_rank
        self.thread_count = thread_count
        self.overwrite = overwrite
        self._suffix, self._write = _WRITERS[serialization_format]
        self.reset()

    def reset(self, checkpoint_id: CheckpointId | None = None) -> None:
        if checkpoint_id:
            self.path = Path(checkpoint_id)
        self.save_id = secrets.token_hex(4)
        self._files: list[str] = []
        self._missing: list[Path] = []

    def set_up_storage_writer(self, is_coordinator: bool, *args: Arg, **kwargs: Arg) -> None:
        """Note which folders there are not: no rank creates them before all have come here."""
        self._missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(self.path, self.save_id)

    @property
    def checkpoint_id(self) -> CheckpointId:
        """The folder."""
        return self.path

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if not self.overwrite and (self.path / NAME).exists():
            raise CheckpointError(f"Checkpoint already exists and self.overwrite=False: {self.path}")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        first = _next_number(self.path)
        with suppress(CheckpointError):  # what cannot be read may be overwritten, but is not removed before that
            self._remove_all_but(_current_files(self.path))
        return [replace(plan, storage_data=_StoragePrefix(f"__{rank}_", first)) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        make_output_folder(self.path)
        if not plan.items:
            return completed([])
        names: _StoragePrefix = plan.storage_data
        parts = [[item] for item in plan.items]
        if self.single_file_per_rank:
            parts = split_items(plan.items, self.thread_count)
        self._files = [f"{names.prefix}{names.first + number}{self._suffix}" for number in range(len(parts))]
        paths = [self.path / name for name in self._files]
        if self.thread_count == 1:
            written = [self._write(path, part, planner) for path, part in zip(paths, parts, strict=True)]
        else:
            computed()  # by this thread, whose settings the others do not have
            with ThreadPoolExecutor(self.thread_count) as pool:
                written = list(pool.map(self._write, paths, parts, [planner] * len(parts)))
        return completed([result for results in written for result in results])

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {result.index: result.storage_data for own in results for result in own}
        metadata.storage_meta = self.storage_meta()
        write_metadata(self.path, metadata)
        self._remove_all_but(files_of(metadata))

    def discard(self) -> None:
        with suppress(CheckpointError, OSError):
            for name in set(self._files) - _current_files(self.path):
                (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # one of them is not empty: another rank, which has not come here yet, will remove it
            for folder in self._missing:
                folder.rmdir()

    def _remove_all_but(self, names: set[str]) -> None:
        """Remove the files of other saves: of earlier ones, and of those that were not completed."""
        remove_stale(self.path, _PART)
        with suppress(OSError):  # what cannot be removed is in nobody's way
            for file in self.path.iterdir():
                if _OWN.fullmatch(file.name) and file.name not in names:
                    file.unlink(missing_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: CheckpointId) -> bool:
        return is_path(checkpoint_id)


def _next_number(folder: Path) -> int:
    """A number that no file of a checkpoint in a folder has, be it incomplete."""
    if not folder.is_dir():
        return 0
    matches = filter(None, (_NUMBERED.fullmatch(file.name) for file in folder.iterdir()))
    return 1 + max((int(match["number"] or match["unfinished"] or -1) for match in matches), default=-1)


def _current_files(folder: Path) -> set[str]:
    """The files of the checkpoint that is in a folder; none without one."""
    return files_of(_read(folder)) if (folder / NAME).exists() else set()


# --- reading ----------------------------------------------------------------------------------------------------


def _read(folder: Path) -> Metadata:
    """The metadata of the checkpoint in a folder; `FileNotFoundError` if there is none."""
    path = folder / NAME
    if not path.is_file():
        raise NoCheckpointError(f"cannot load {folder}: {_absence(folder)}")
    with path.open("rb") as file:
        is_pickle = file.read(1) == PICKLE
    return read_metadata(path) if is_pickle else read_former_metadata(path)


def _absence(folder: Path) -> str:
    if not folder.is_dir():
        return "there is no such folder"
    names = [file.name for file in folder.iterdir()]
    if any(_OWN.fullmatch(name) for name in names):
        return f"its checkpoint is incomplete; files of ranks are there, but not {NAME!r}, which is written last"
    if any(name.endswith(".safetensors") for name in names):
        return f"it has no {NAME!r}; to read its safetensors, give storage_reader=HuggingFaceStorageReader(path)"
    return f"it has no {NAME!r}, so there is no checkpoint in it"


class FileSystemReader(StorageReader):
    """Reads a checkpoint from a folder: Weft's, or one that PyTorch's `FileSystemWriter` has written.

    Each rank reads the bytes that it needs alone, and verifies the checksums of the chunks that it needs whole. No code
    from the files is executed.
    """

    _follows_links = False  # out of the folder: who has made it would choose which of the reader's files are loaded

    def __init__(self, path: CheckpointId) -> None:
        self.path = Path(path)
        self.load_id = secrets.token_hex(4)

    def reset(self, checkpoint_id: CheckpointId | None = None) -> None:
        if checkpoint_id:
            self.path = Path(checkpoint_id)
        self.load_id = secrets.token_hex(4)

    @property
    def checkpoint_id(self) -> CheckpointId:
        """The folder."""
        return self.path

    def read_metadata(self, *args: Arg, **kwargs: Arg) -> Metadata:
        metadata = self._read_metadata()
        check_metadata(self.path, metadata)
        metadata.storage_meta = StorageMeta(self.path, load_id=self.load_id)
        return metadata

    def _read_metadata(self) -> Metadata:
        return _read(self.path)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Arg, **kwargs: Arg) -> None:
        self._entries = metadata.state_dict_metadata
        self._places: dict[MetadataIndex, StorageInfo] = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self._places[item.storage_index].relative_path, []).append(item)
        for name, items in by_file.items():
            mapped = self._mapped(self.path / name, items[0])
            for item in items:
                self._read_item(item, mapped, planner)
        return completed(None)

    def _mapped(self, path: Path, item: ReadItem) -> Bytes:
        """The bytes of a file, which are read when they are used."""
        try:
            if not self._follows_links and path.is_symlink() and path.resolve().parent != path.parent.resolve():
                raise ValueError("it is a link out of the folder")
            return mapped_file(path)
        except (OSError, ValueError) as error:
            kind = NoCheckpointError if isinstance(error, FileNotFoundError) else CheckpointError
            raise kind(f"cannot load {path}, which has {item.storage_index.fqn!r}: {error}") from error

    def _read_item(self, item: ReadItem, mapped: Bytes, planner: LoadPlanner) -> None:
        place = self._places[item.storage_index]
        content = mapped[place.offset : place.offset + place.length]
        # A slice beyond the end is only shorter; the elements behind it would be left as they were.
        if len(content) < place.length:
            raise CheckpointError(
                f"cannot load {self.path / place.relative_path}: it is truncated, {item.storage_index.fqn!r} is at the "
                f"bytes {place.offset} to {place.offset + place.length} of {len(mapped)}"
            )
        if item.type is LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(content.tobytes()))
            return
        target = planner.resolve_tensor(item).detach()
        if tuple(target.shape) != tuple(item.lengths):
            raise CheckpointError(
                f"{item.storage_index.fqn!r}: the planner gives a tensor of size {list(target.shape)} for a part of "
                f"size {list(item.lengths)}"
            )
        target.copy_(self._part(item, content, target.device))
        planner.commit_tensor(item, target)

    def _part(self, item: ReadItem, content: Bytes, target: device) -> Tensor:
        """An item's part of the chunk whose bytes are given."""
        entry, place = self._entries[item.storage_index.fqn], self._places[item.storage_index]
        assert isinstance(entry, TensorStorageMetadata), "the item is part of a tensor"
        chunk, dtype = self._chunk_of(entry, item.storage_index), entry.properties.dtype
        if place.archived:
            is_whole = tuple(item.lengths) == tuple(chunk.sizes)
            name = f"{self.path / place.relative_path}, {item.storage_index.fqn!r} in it"
            stored = load_bytes(content, name, target if is_whole else CPU, verified=is_whole)
            if not isinstance(stored, Tensor) or tuple(stored.shape) != tuple(chunk.sizes):
                what = f"a tensor of size {list(stored.shape)}" if isinstance(stored, Tensor) else type(stored).__name__
                raise CheckpointError(f"cannot load {name}: it is a {what} instead of a tensor of {list(chunk.sizes)}")
            if is_whole:
                return stored
            content, dtype = stored._host(), stored.dtype
        sizes = tuple(item.lengths)
        return tensor_of(array_on(target, dtype, sizes, _box(content, dtype, chunk.sizes, item)), sizes, dtype, target)

    def _chunk_of(self, entry: TensorStorageMetadata, index: MetadataIndex) -> ChunkStorageMetadata:
        if index.index is not None:
            return entry.chunks[index.index]
        return next(chunk for chunk in entry.chunks if chunk.offsets == index.offset)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: CheckpointId) -> bool:
        return is_path(checkpoint_id)


def _box(content: np.ndarray, dtype: DType, sizes: Sequence[int], item: ReadItem) -> Bytes:
    """The elements of an item's box of a chunk, in new memory, from an array of its elements or of their bytes."""
    element = np.dtype((np.void, dtype.itemsize))
    ranges = [slice(start, start + length) for start, length in zip(item.storage_offsets, item.lengths, strict=True)]
    box = room(prod(item.lengths) * dtype.itemsize)
    box.view(element).reshape(item.lengths)[...] = content.reshape(-1).view(element).reshape(sizes)[tuple(ranges)]
    return box
