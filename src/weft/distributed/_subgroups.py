"""Groups of some of the ranks of another group."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from weft import cuda
from weft._base.types import Result
from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore
from weft.distributed import _backends
from weft.distributed._group import ProcessGroup
from weft.distributed._world import (
    AnyGroup,
    abridged,
    destroy_process_group,
    get_backend,
    get_rank,
    is_default,
    new_group,
    register_group,
    require_default,
    require_group,
)
from weft.errors import ArgumentError, OptionError, ValueRangeError

SHRINK_DEFAULT, SHRINK_ABORT = 0, 1
_log = logging.getLogger(__name__)


def new_subgroups(
    group_size: int | None = None,
    group: AnyGroup = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[Result, list[Result]]:
    """Groups of `group_size` consecutive ranks of `group`: this rank's group, and all of them. All ranks must call it.

    The size defaults to the number of this host's GPUs.
    """
    parent = require_group(group)
    size = parent.size()
    if group_size is None:
        if not cuda.is_available():
            raise ValueRangeError("Default group size only takes effect when CUDA is available; pass in 'group_size'")
        group_size = cuda.device_count()
    if group_size <= 0:
        raise ValueRangeError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueRangeError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueRangeError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    subgroups = [parent.ranks[start : start + group_size] for start in range(0, size, group_size)]
    return _enumerated(subgroups, timeout, backend, pg_options, group_desc, only_members=not is_default(parent))


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[Result, list[Result]]:
    """Disjoint groups of these ranks of the job: this rank's group (or None), and all of them."""
    if not ranks_per_subgroup_list:
        raise ValueRangeError("The arg 'ranks_per_subgroup_list' cannot be empty")
    groups_of: dict[int, Sequence[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if groups_of.setdefault(rank, ranks) is not ranks:
                raise ValueRangeError(f"Rank {rank} has appeared in both subgroup {groups_of[rank]} and {ranks}")
    return _enumerated(ranks_per_subgroup_list, timeout, backend, pg_options, group_desc, only_members=False)


def _enumerated(
    subgroups: Sequence[Sequence[int]],
    timeout: timedelta | None,
    backend: str | None,
    pg_options: object,
    desc: str | None,
    *,
    only_members: bool,
) -> tuple[Result, list[Result]]:
    groups = [new_group(ranks, timeout, backend, pg_options, only_members, desc) for ranks in subgroups]
    mine = [one for one, ranks in zip(groups, subgroups, strict=True) if get_rank() in ranks]
    return (mine[0] if mine else None), groups


def split_group(
    parent_pg: AnyGroup = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """The group of these that contains this rank, or None. All members of `parent_pg` must call it.

    `split_ranks` lists ranks of `parent_pg`, by default the default group; `backend` defaults to that of the parent.
    The ranks of each group are in ascending order.
    """
    if not split_ranks:
        raise ValueRangeError("split_ranks cannot be None or empty")
    parent = require_group(parent_pg)
    for ranks in split_ranks:
        if not ranks:
            raise ValueRangeError("the split group cannot be empty")
        if len(ranks) > parent.size():
            raise ValueRangeError(
                "the split group's size should be less or equal to the world_size set by init_process_group"
            )
        if len(set(ranks)) < len(ranks):
            raise ValueRangeError("the split group cannot have duplicate ranks")
        _require_ranks(ranks, parent)
    rank, times = Counter(rank for ranks in split_ranks for rank in ranks).most_common(1)[0]
    if times > 1:
        raise ValueRangeError(
            f"the ranks in split_ranks cannot overlap, but rank {rank} is in {times} of {split_ranks}"
        )
    # Ranks that were given different splits would wait for each other without end; this compares the splits, and all
    # ranks raise.
    parent.await_ranks(f"split_group({abridged([sorted(ranks) for ranks in split_ranks])})")
    mine = next((sorted(ranks) for ranks in split_ranks if parent.rank() in ranks), None)
    if mine is None:
        return None
    members = [parent.ranks[rank] for rank in mine]
    chosen = get_backend(parent) if backend is None else backend
    return new_group(members, timeout or parent.timeout, chosen, pg_options, True, group_desc, sort_ranks=False)


def _require_ranks(ranks: Sequence[object], group: ProcessGroup) -> None:
    for at, rank in enumerate(ranks):
        if not isinstance(rank, int):
            raise ArgumentError(
                f"ranks must be integers, but element {at} of {list(ranks)} is {type(rank).__name__}: {rank}"
            )
        if not 0 <= rank < group.size():
            raise ValueRangeError(
                f"Rank {rank} at index {at} is out of bounds for group size {group.size()}. Valid ranks are in range "
                f"[0, {group.size() - 1}]."
            )


def shrink_group(
    ranks_to_exclude: list[int], group: AnyGroup = None, shrink_flags: int = SHRINK_DEFAULT, pg_options: object = None
) -> ProcessGroup:
    """A group of the ranks of `group` without some, for instance without ended ones. Only the remaining ranks call it.

    `group`, which may have failed, is destroyed; with `SHRINK_ABORT`, its running operations are made to fail first. If
    it is the default group, all other groups are destroyed, too, and the new group becomes the default one, with new
    ranks. `TypeError` for `xla` and `mpi`, whose processes cannot continue without each other. The store must still be
    served.
    """
    del pg_options
    old = require_group(group)
    kept = _kept(ranks_to_exclude, old, shrink_flags)
    if not _backends.may_shrink(old.own_backend.name):
        raise ArgumentError(f"Process group backend for {old.group_name!r} does not support shrinking operations.")
    default = is_default(old)
    if shrink_flags == SHRINK_ABORT:
        # Operations that wait for a dead rank would keep `destroy_process_group` waiting for them.
        old.abort()
    _log.warning("%r goes on without its ranks %s", old, ranks_to_exclude)
    destroy_process_group(old)
    # A prefix of its own: keys of the old group name ranks that have another number now.
    assert old.store is not None, "only groups that users make themselves have no store"
    shrunk_store = PrefixStore(keys.shrunk(ranks_to_exclude), old.store)
    ranks = range(len(kept)) if default else [old.ranks[rank] for rank in kept]
    backend = _backends.join_group(old.own_backend.name, shrunk_store, kept.index(old.rank()), ranks, old.timeout)
    shrunk = ProcessGroup.over(
        "default" if default else f"{old.group_name}:shrunk",
        backend,
        ranks,
        shrunk_store,
        None if default else require_default(),
    )
    shrunk.requested_name = old.requested_name
    return register_group(shrunk, default=default)


def _require_list(excluded: object) -> None:
    if not isinstance(excluded, list):
        raise ArgumentError(
            f"ranks_to_exclude must be a list, but got {type(excluded).__name__}. Example: [1, 3, 5] "
            "to exclude ranks 1, 3, and 5."
        )


def _kept(excluded: list[int], group: ProcessGroup, flags: int) -> list[int]:
    """The ranks that remain, after the arguments of `shrink_group` have been checked."""
    _require_list(excluded)
    if not excluded:
        raise ValueRangeError(
            "ranks_to_exclude cannot be empty. To shrink a group, you must specify at least one rank "
            "to exclude. Example: [failed_rank_id]"
        )
    if flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise ValueRangeError(
            f"Invalid shrink_flags value: {flags}. Must be one of: SHRINK_DEFAULT ({SHRINK_DEFAULT}) or SHRINK_ABORT "
            f"({SHRINK_ABORT})."
        )
    _require_ranks(excluded, group)
    if len(set(excluded)) < len(excluded):
        raise ValueRangeError(f"Duplicate rank in ranks_to_exclude {excluded}. Each rank can only be excluded once.")
    kept = [rank for rank in range(group.size()) if rank not in excluded]
    if not kept:
        raise ValueRangeError(f"Cannot exclude all {group.size()} ranks from process group.")
    if group.rank() in excluded:
        raise OptionError(
            f"Current rank {group.rank()} is in the exclusion list and should not call shrink_group(). Only "
            "non-excluded ranks should participate in the shrinking operation."
        )
    return kept
