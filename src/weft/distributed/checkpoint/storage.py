"""The interface of storages: where checkpoints are written to, and read from."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass

from weft._base.types import Arg
from weft.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from weft.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from weft.futures import Future

CheckpointId = str | os.PathLike[str]


@dataclass(frozen=True)
class WriteResult:
    """An item that was written, its size, and what the storage needs to find it again."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Arg


class StorageWriter(ABC):
    """Writes checkpoints. Its methods are called in the order in which they stand here."""

    @abstractmethod
    def reset(self, checkpoint_id: CheckpointId | None = None) -> None:
        """Begin a new checkpoint: on all ranks, if `save` is given a `checkpoint_id`."""

    @abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Arg, **kwargs: Arg) -> None:
        """Called on all ranks."""

    def storage_meta(self) -> StorageMeta | None:
        """What planners are told of this storage."""
        return None

    @abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan of this rank with what this storage adds to it; called on all ranks."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """All plans with what this storage adds to them; called on the coordinator."""

    @abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what `planner.resolve_data` gives for each item of this rank's plan; called on all ranks."""

    @abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Complete the checkpoint: called on the coordinator, once all ranks have written."""

    def discard(self) -> None:  # noqa: B027  storages may do without it
        """Remove what this rank has written: called on all ranks, if the checkpoint was not completed."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: CheckpointId) -> bool:
        """Whether this storage can write such a checkpoint."""


class StorageReader(ABC):
    """Reads checkpoints. Its methods are called in the order in which they stand here."""

    @abstractmethod
    def reset(self, checkpoint_id: CheckpointId | None = None) -> None:
        """Begin to read another checkpoint: on all ranks, if `load` is given a `checkpoint_id`."""

    @abstractmethod
    def read_metadata(self, *args: Arg, **kwargs: Arg) -> Metadata:
        """What the checkpoint holds; called on all ranks."""

    @abstractmethod
    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Arg, **kwargs: Arg) -> None:
        """Called on all ranks."""

    @abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan of this rank with what this storage adds to it; called on all ranks."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """All plans with what this storage adds to them; called on the coordinator."""

    @abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of this rank's plan, and give them to the planner; called on all ranks.

        For a part of a tensor, write to `planner.resolve_tensor(item)` and call `planner.commit_tensor`; for an object,
        call `planner.load_bytes`.
        """

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: CheckpointId) -> bool:
        """Whether this storage can read such a checkpoint."""
