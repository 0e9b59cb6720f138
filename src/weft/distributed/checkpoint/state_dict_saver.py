"""Saving checkpoints, at once or in the background."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import NoReturn

from weft._base.site import warn_user
from weft._base.types import SavedState
from weft._base.usage import log_api_usage_once
from weft._checkpoint.buffers import computed
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import own
from weft.distributed._group import ProcessGroup
from weft.distributed.checkpoint._background import background_of
from weft.distributed.checkpoint._exchange import StepExchange
from weft.distributed.checkpoint._nested_dict import flatten_state_dict
from weft.distributed.checkpoint.default_planner import DefaultSavePlanner
from weft.distributed.checkpoint.filesystem import FileSystemWriter
from weft.distributed.checkpoint.metadata import Metadata
from weft.distributed.checkpoint.planner import SavePlan, SavePlanner
from weft.distributed.checkpoint.state_dict_loader import group_of, required_folder, takes_storage
from weft.distributed.checkpoint.stateful import Stateful
from weft.distributed.checkpoint.storage import CheckpointId, StorageWriter, WriteResult
from weft.errors import CheckpointException


@takes_storage("storage_writer")
def save(
    state_dict: SavedState,
    *,
    checkpoint_id: CheckpointId | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> Metadata:
    """Save a state dict: every tensor once, of distributed ones each rank its part, and the objects beside them.

    All ranks of `process_group`, by default of the job, must call it. What several ranks have is written by one of
    them. For a `Stateful`, its `state_dict()` is saved. Objects may be what `weft.save` takes.

    `checkpoint_id` is a folder that all ranks share; or a `storage_writer` writes elsewhere. With `no_dist`, this
    process saves alone. The checkpoint appears when it is complete, and an earlier one in the folder stays until then.

    `CheckpointException` on all ranks if one has failed; nothing has changed in the folder then.
    """
    log_api_usage_once("torch.distributed.checkpoint.save")
    group = group_of(process_group, no_dist=no_dist)
    background_of(group).wait()
    writer = _writer(storage_writer, checkpoint_id)
    return _save(lambda: _states(state_dict), writer, planner or DefaultSavePlanner(), StepExchange(group))


def save_state_dict(
    state_dict: SavedState,
    storage_writer: StorageWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """`save` under its deprecated name. The coordinator is the first rank."""
    log_api_usage_once("torch.distributed.checkpoint.save_state_dict")
    del coordinator_rank
    warn_user(
        "`save_state_dict` is deprecated and will be removed in future versions. Please use `save` instead.",
        FutureWarning,
    )
    return save(
        state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group, no_dist=no_dist
    )


class AsyncCheckpointerType(Enum):
    """Where `async_save` writes; here, always in a thread."""

    THREAD = "thread"
    PROCESS = "process"


def async_save(
    state_dict: SavedState,
    *,
    checkpoint_id: CheckpointId | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    no_dist: bool = False,
) -> Future[Metadata]:
    """`save` in a background thread; returns its future once the values to save are held, so that training may go on.

    Nothing is copied for that: values are immutable, and what is written to a tensor afterwards is another value. A
    further save of the same ranks waits for this one. The ranks' threads communicate by a group of their own, which the
    first call creates. Wait for the future before you destroy the process group. An error is raised by
    `future.result()`, and logged.
    """
    log_api_usage_once("torch.distributed.checkpoint.async_save")
    del async_checkpointer_type
    background = background_of(group_of(process_group, no_dist=no_dist))
    background.wait()
    writer = _writer(storage_writer, checkpoint_id)
    states = _staged(state_dict)
    return background.start(lambda exchange: _save(states, writer, planner or DefaultSavePlanner(), exchange))


def _writer(storage: StorageWriter | None, checkpoint_id: CheckpointId | None) -> StorageWriter:
    """The writer that is given, for this checkpoint, or one to its folder."""
    if storage is None:
        return FileSystemWriter(required_folder(checkpoint_id))
    storage.reset(checkpoint_id)
    return storage


def _states(state_dict: SavedState) -> SavedState:
    return {key: x.state_dict() if isinstance(x, Stateful) else x for key, x in state_dict.items()}


def _staged(state_dict: SavedState) -> Callable[[], SavedState]:
    """A function that returns what a state dict holds now, or raises the error that keeps it from being held."""
    try:
        states = _states(state_dict)
        leaves, _ = flatten_state_dict(states)
        tensors = [leaf for leaf in leaves.values() if isinstance(leaf, Tensor)]
        held = {id(tensor): wrap(own(tensor._read())) for tensor in tensors}
        computed()
        states = copy.deepcopy(states, {**held})
    except BaseException as error:
        return _raising(error)
    return lambda: states


def _raising(error: BaseException) -> Callable[[], NoReturn]:
    def fail() -> NoReturn:
        raise error

    return fail


def _save(
    states: Callable[[], SavedState], writer: StorageWriter, planner: SavePlanner, exchange: StepExchange
) -> Metadata:
    """Save what `states()` returns, with a writer and a planner that are given."""
    metadata = Metadata({})

    def plan() -> SavePlan:
        planner.set_up_planner(states(), writer.storage_meta(), exchange.is_coordinator)
        writer.set_up_storage_writer(exchange.is_coordinator)
        return writer.prepare_local_plan(planner.create_local_plan())

    def combine(plans: list[SavePlan]) -> list[SavePlan]:
        nonlocal metadata
        plans, metadata = planner.create_global_plan(plans)
        return writer.prepare_global_plan(plans)

    def finish(results: list[list[WriteResult]]) -> Sequence[Metadata]:
        writer.finish(metadata, results)
        return [metadata] * exchange.size

    own_plan = exchange.agree("the checkpoint cannot be saved", plan, combine)
    try:
        return exchange.agree(
            "the checkpoint could not be written",
            lambda: writer.write_data(planner.finish_plan(own_plan), planner).wait(),
            finish,
        )
    except CheckpointException:
        writer.discard()
        raise
