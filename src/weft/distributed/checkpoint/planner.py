"""Plans of saving and loading, and the interface of planners.

A planner decides what of a state dict is stored, and in which form; a storage (`storage.py`) decides where. Each rank
makes a local plan, the coordinator (rank 0) sees all of them and returns one for each rank.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto

from weft._base.size import Size
from weft._base.types import Arg
from weft._tensor.tensor import Tensor
from weft.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)


class WriteItemType(Enum):
    """What is written: a whole tensor, a chunk of one, or an object."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """What is read: a part of a tensor, or an object."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """An object that is written, of a known size in bytes."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A chunk that is written, of a tensor with these properties and this size."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """One thing that a rank writes."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """The bytes that the chunk takes; None for an object, whose size is not known before it is written."""
        if self.tensor_data is None:
            return None
        return self.tensor_data.chunk.numel * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """One thing that a rank reads: a box of a stored chunk, for a box of what the rank has of a tensor.

    `storage_offsets` are relative to the chunk, `dest_offsets` to the rank's part; `lengths` are the sizes of the box.
    """

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """What a rank writes."""

    items: list[WriteItem]
    storage_data: Arg = None
    planner_data: Arg = None


@dataclass
class LoadPlan:
    """What a rank reads."""

    items: list[ReadItem]
    storage_data: Arg = None
    planner_data: Arg = None


class SavePlanner(ABC):
    """Decides what is saved of a state dict. Subclass `DefaultSavePlanner` to change single decisions."""

    @abstractmethod
    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        """Called first, on all ranks."""

    @abstractmethod
    def create_local_plan(self) -> SavePlan:
        """What this rank has to write; called on all ranks."""

    @abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """The plan of each rank, and what the checkpoint will hold; called on the coordinator, with all local plans."""

    @abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """This rank's final plan, from the coordinator's; called on all ranks."""

    @abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """What is stored for an item. A storage may call it several times, from any thread."""


class LoadPlanner(ABC):
    """Decides what is loaded into a state dict. Subclass `DefaultLoadPlanner` to change single decisions."""

    @abstractmethod
    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Called first, on all ranks."""

    @abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """What this rank has to read; called on all ranks."""

    @abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """The plan of each rank; called on the coordinator, with all local plans."""

    @abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """This rank's final plan, from the coordinator's; called on all ranks."""

    @abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take the bytes that the save planner has stored for an object."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """A buffer for the bytes of an item, for storages that fill one. `NotImplementedError` unless overridden."""
        raise NotImplementedError("LoadPlanner.resolve_bytes is not implemented")

    @abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The tensor, of the item's lengths, into which the storage writes what it has read."""

    @abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Called after the storage has written to the tensor that `resolve_tensor` has returned."""

    def commit(self) -> None:  # noqa: B027  planners may do without it
        """Called on all ranks once every rank has read all that it needs; not called if one has failed."""
