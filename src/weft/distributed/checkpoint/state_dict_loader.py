"""Loading checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from weft._base.site import warn_user
from weft._base.types import Kwargs, SavedState
from weft._base.usage import log_api_usage_once
from weft.distributed._group import ProcessGroup
from weft.distributed._world import is_initialized, require_group
from weft.distributed.checkpoint._exchange import StepExchange
from weft.distributed.checkpoint.default_planner import DefaultLoadPlanner
from weft.distributed.checkpoint.filesystem import FileSystemReader
from weft.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from weft.distributed.checkpoint.stateful import Stateful
from weft.distributed.checkpoint.storage import CheckpointId, StorageReader
from weft.errors import CheckpointError, PreconditionError

P = ParamSpec("P")
R = TypeVar("R")


def takes_storage(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take its storage as the second argument, too, with a warning: such was its former signature."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def either(*args: P.args, **kwargs: P.kwargs) -> R:
            if len(args) != 2:
                return function(*args, **kwargs)
            if name in kwargs:
                raise PreconditionError(f"{function.__name__}() has got {name} twice: as second argument and by name")
            warn_user(
                f"The argument order of {function.__name__} has been changed: write {name}=... for the second. "
                "Please check the document to avoid future breakages."
            )
            by_name: Kwargs = {**kwargs, name: args[1]}
            return cast(Callable[..., R], function)(args[0], **by_name)

        return either

    return decorated


@takes_storage("storage_reader")
def load(
    state_dict: SavedState,
    *,
    checkpoint_id: CheckpointId | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Load a checkpoint into the tensors and objects of a state dict, in place.

    All ranks of `process_group`, by default of the job, must call it. Each reads what it needs for its own tensors: the
    mesh, the placements and the number of ranks may be others than when the checkpoint was saved, and plain tensors may
    be where there were distributed ones. Elements are cast to the type of the tensor that they are loaded into. For a
    `Stateful`, its `state_dict()` is loaded into, and given to its `load_state_dict`. Keys of the checkpoint that the
    state dict lacks are ignored.

    `checkpoint_id` is a folder; or a `storage_reader` reads from elsewhere. With `no_dist`, this process loads alone.

    `CheckpointException` on all ranks if one has failed: a key is missing in the checkpoint, has another size, or
    cannot be read. Nothing has been loaded then, on any rank.
    """
    reader = reader_of(storage_reader, checkpoint_id)
    exchange = StepExchange(group_of(process_group, no_dist=no_dist))
    load_planned(state_dict, reader, planner or DefaultLoadPlanner(), exchange)


def load_state_dict(
    state_dict: SavedState,
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """`load` under its deprecated name. The coordinator is the first rank."""
    log_api_usage_once("torch.distributed.checkpoint.load_state_dict")
    warn_user(
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
        FutureWarning,
    )
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict(
    state_dict: SavedState,
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """`load` with a reader that is given; libraries call it by this name."""
    del coordinator_rank
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)


def load_planned(state_dict: SavedState, reader: StorageReader, planner: LoadPlanner, exchange: StepExchange) -> None:
    """Load with a reader and a planner that are given."""
    states: SavedState = {}

    def plan() -> LoadPlan:
        states.update({key: x.state_dict() if isinstance(x, Stateful) else x for key, x in sorted(state_dict.items())})
        metadata = reader.read_metadata()
        planner.set_up_planner(states, metadata, exchange.is_coordinator)
        reader.set_up_storage_reader(metadata, exchange.is_coordinator)
        return reader.prepare_local_plan(planner.create_local_plan())

    def combine(plans: list[LoadPlan]) -> list[LoadPlan]:
        return reader.prepare_global_plan(planner.create_global_plan(plans))

    own_plan = exchange.agree("the checkpoint cannot be loaded", plan, combine)
    exchange.agree(
        "the checkpoint could not be read",
        lambda: reader.read_data(planner.finish_plan(own_plan), planner).wait(),
        lambda results: results,
    )
    planner.commit()
    for key, state in states.items():
        own = state_dict.get(key)
        if isinstance(own, Stateful):
            own.load_state_dict(state)
        else:
            state_dict[key] = state


def group_of(group: ProcessGroup | None, *, no_dist: bool) -> ProcessGroup | None:
    """The ranks that save or load together: those of the group, by default of the job, if there is one.

    A rank of a launched job that has not joined it yet is warned that it saves or loads alone.
    """
    if no_dist:
        return None
    if is_initialized():
        return require_group(group)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        warn_user(
            f"this process is one of WORLD_SIZE={os.environ['WORLD_SIZE']} of a job, but there is no process group: it "
            "saves or loads alone. Call init_process_group() first; or say no_dist=True if that is meant"
        )
    return None


def reader_of(storage: StorageReader | None, checkpoint_id: CheckpointId | None) -> StorageReader:
    """The reader that is given, for this checkpoint, or one of its folder."""
    if storage is None:
        return FileSystemReader(required_folder(checkpoint_id))
    if checkpoint_id is not None:
        storage.reset(checkpoint_id)
    return storage


def required_folder(checkpoint_id: CheckpointId | None) -> CheckpointId:
    """The folder of a checkpoint without a storage; `RuntimeError` if there is none, or it is no folder."""
    if not checkpoint_id:
        raise CheckpointError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    if not FileSystemReader.validate_checkpoint_id(checkpoint_id):
        raise CheckpointError(
            f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id!r}, which is no path. "
            "Please specify the storage_reader/storage_writer."
        )
    return checkpoint_id
