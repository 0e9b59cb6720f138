"""Checkpoints in folders: one safetensors file of each rank, and a file `.metadata`, whose appearance completes them.

The files of a save have names of their own, and `.metadata` is replaced by renaming once all of them are on disk. So
the folder holds either the earlier checkpoint or the new one, wherever a process is killed.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from weft._base.dtype import DType, complex128
from weft._base.files import make_output_folder
from weft._base.temporary import remove_stale
from weft._base.types import Arg, Result
from weft._checkpoint.archive import mapped_file, write_to_path
from weft._checkpoint.buffers import Bytes, array_on, tensor_of
from weft._checkpoint.tensorfile import TensorFile, writer_of
from weft._lazy.external import room
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft.distributed.checkpoint._checked import check_metadata
from weft.distributed.checkpoint._chunks import narrowed
from weft.distributed.checkpoint._metadata_file import NAME, StorageInfo, files_of, read_metadata, write_metadata
from weft.distributed.checkpoint._torch_metadata import PICKLE, read_torch_metadata
from weft.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from weft.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from weft.distributed.checkpoint.storage import CheckpointId, StorageReader, StorageWriter, WriteResult
from weft.errors import CheckpointError, NoCheckpointError
from weft.futures import Future
from weft.serialization import load

CURRENT_DCP_VERSION = "1.0.0"

OFFSETS = "DCP_SHARDING_INFO"
"""An entry of a file's header: where each tensor begins within the whole one. PyTorch's own files have it, too."""

_DATA = r"rank\d+-[0-9a-f]{8}\.safetensors"
_OWN = re.compile(rf"{_DATA}|__\d+_\d+\.distcp")  # of PyTorch's writer, whose checkpoints may be overwritten
_PART = rf"\.{_DATA}\.[0-9a-f]{{8}}\.part"


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
    """Writes a checkpoint into a folder that all ranks share.

    An earlier checkpoint there stays until the new one is complete. Without `overwrite`, it is an error. The other
    options are accepted for compatibility: each rank writes one file, and all files are synced.
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
        serialization_format: object = None,
    ) -> None:
        del single_file_per_rank, sync_files, thread_count, per_thread_copy_ahead, cache_staged_state_dict
        del serialization_format
        self.path = Path(path)
        self.overwrite = overwrite
        self.reset()

    def reset(self, checkpoint_id: CheckpointId | None = None) -> None:
        if checkpoint_id:
            self.path = Path(checkpoint_id)
        self.save_id = secrets.token_hex(4)
        self._file: str | None = None
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
        with suppress(CheckpointError):  # what cannot be read may be overwritten, but is not removed before that
            self._remove_all_but(_current_files(self.path))
        names = [f"rank{rank}-{self.save_id}.safetensors" for rank in range(len(plans))]
        return [replace(plan, storage_data=name) for plan, name in zip(plans, names, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        make_output_folder(self.path)
        if not plan.items:
            return completed([])
        self._file = plan.storage_data
        names = _names_of(plan.items)
        offsets = {name: {"saved_offsets": _offset_of(item)} for name, item in names.items()}
        header = {OFFSETS: json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}
        tensors = {name: _storable(planner.resolve_data(item)) for name, item in names.items()}
        path = self.path / plan.storage_data
        # Written under another name and renamed: a save that is killed leaves no file that looks whole.
        write_to_path(path, writer_of(tensors, header))
        with path.open("rb") as file:
            content = TensorFile(file)
        return completed([_result(item, name, content, plan.storage_data) for name, item in names.items()])

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {result.index: result.storage_data for own in results for result in own}
        metadata.storage_meta = self.storage_meta()
        write_metadata(self.path, metadata)
        self._remove_all_but(files_of(metadata))

    def discard(self) -> None:
        with suppress(CheckpointError, OSError):
            if self._file is not None and self._file not in _current_files(self.path):
                (self.path / self._file).unlink(missing_ok=True)
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


def _current_files(folder: Path) -> set[str]:
    """The files of the checkpoint that is in a folder; none without one."""
    return files_of(_read(folder)) if (folder / NAME).exists() else set()


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
    """Data as a tensor of a type that safetensors has."""
    if not isinstance(data, Tensor):
        return from_host(np.frombuffer(data.getbuffer(), np.uint8))
    if data.dtype is not complex128:
        return data
    elements = data._host()
    return from_host(elements.reshape(*elements.shape, 1).view(np.float64))


def _result(item: WriteItem, name: str, content: TensorFile, file: str) -> WriteResult:
    start, nbytes = content.place_of(name)
    return WriteResult(item.index, nbytes, StorageInfo(file, start, nbytes))


# --- reading ----------------------------------------------------------------------------------------------------


def _read(folder: Path) -> Metadata:
    """The metadata of the checkpoint in a folder, by Weft or by PyTorch; `FileNotFoundError` if there is none."""
    path = folder / NAME
    if not path.is_file():
        raise NoCheckpointError(f"cannot load {folder}: {_absence(folder)}")
    with path.open("rb") as file:
        is_pickle = file.read(1) == PICKLE
    return read_torch_metadata(path) if is_pickle else read_metadata(path)


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

    Each rank reads the bytes that it needs alone; from a checkpoint of PyTorch's, the chunks that it needs. No code
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
        target.copy_(self._archived(item, content) if place.archived else self._elements(item, content, target))
        planner.commit_tensor(item, target)

    def _archived(self, item: ReadItem, content: Bytes) -> Tensor:
        whole = load(io.BytesIO(content.tobytes()), map_location="cpu")
        if not isinstance(whole, Tensor):
            raise CheckpointError(f"{item.storage_index.fqn!r} is a {type(whole).__name__} instead of a tensor")
        return narrowed(whole, item.storage_offsets, item.lengths)

    def _elements(self, item: ReadItem, content: Bytes, target: Tensor) -> Tensor:
        entry = self._entries[item.storage_index.fqn]
        assert isinstance(entry, TensorStorageMetadata), "the item is part of a tensor"
        chunk = self._chunk_of(entry, item.storage_index)
        dtype = entry.properties.dtype
        box = _box(content, dtype, chunk.sizes, item)
        sizes = tuple(item.lengths)
        return tensor_of(array_on(target.device, dtype, sizes, box), sizes, dtype, target.device)

    def _chunk_of(self, entry: TensorStorageMetadata, index: MetadataIndex) -> ChunkStorageMetadata:
        if index.index is not None:
            return entry.chunks[index.index]
        return next(chunk for chunk in entry.chunks if chunk.offsets == index.offset)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: CheckpointId) -> bool:
        return is_path(checkpoint_id)


def _box(content: Bytes, dtype: DType, sizes: Sequence[int], item: ReadItem) -> Bytes:
    """The elements of an item's box of a chunk, in new memory."""
    element = np.dtype((np.void, dtype.itemsize))
    ranges = [slice(start, start + length) for start, length in zip(item.storage_offsets, item.lengths, strict=True)]
    box = room(prod(item.lengths) * dtype.itemsize)
    box.view(element).reshape(item.lengths)[...] = content.view(element).reshape(sizes)[tuple(ranges)]
    return box
