"""`weft.distributed` under PyTorch's module name, with private names that scripts use."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from weft import distributed
from weft._base.types import AttributeValue
from weft._comm.stores.store import Store
from weft.distributed._group import ProcessGroup
from weft.distributed._subgroups import SHRINK_ABORT as SHRINK_ABORT
from weft.distributed._subgroups import SHRINK_DEFAULT as SHRINK_DEFAULT
from weft.distributed._world import AnyGroup, own_groups, require_group
from weft.distributed._world import require_default as _get_default_group
from weft.errors import UnsupportedCallError


def __getattr__(name: str) -> AttributeValue:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "_pg_map":
        return {group: (group.name(), group.store) for group in own_groups()}
    if name == "_get_global_rank":
        return distributed.get_global_rank
    if name == "_world":
        return _World()
    return getattr(distributed, name)


class _World:
    """The groups of this process, as libraries look them up."""

    @property
    def default_pg(self) -> ProcessGroup | None:
        """The default group."""
        return distributed.GroupMember.WORLD

    @property
    def pg_map(self) -> dict[ProcessGroup, tuple[str, Store | None]]:
        """The backend and the store of each group."""
        return __getattr__("_pg_map")

    @property
    def pg_names(self) -> dict[ProcessGroup, str]:
        """The name of each group."""
        return {group: group.group_name for group in own_groups()}

    @property
    def pg_group_ranks(self) -> dict[ProcessGroup, dict[int, int]]:
        """The ranks in each group by their ranks in the job."""
        ranks = {group: distributed.get_process_group_ranks(group) for group in own_groups()}
        return {group: {rank: at for at, rank in enumerate(members)} for group, members in ranks.items()}


def default_store() -> Store | None:
    """The store by which the default group was created."""
    return _get_default_group().store


def name_of(pg: ProcessGroup) -> str:
    """A group's name, which is the same on all ranks."""
    return pg.group_name


def is_no_member(group: ProcessGroup) -> bool:
    """Whether this rank is not a member of a group."""
    return group is distributed.GroupMember.NON_GROUP_MEMBER


def set_timeout(timeout: timedelta, group: AnyGroup = None) -> None:
    """Set how long a group's operations may wait."""
    require_group(group).set_timeout(timeout)


def abort_group(group: AnyGroup = None) -> None:
    """Make operations that wait in a group fail, and leave it."""
    require_group(group).abort()
    distributed.destroy_process_group(group)


# PyTorch has them under these names
_get_default_store = default_store
_get_process_group_name = name_of
_rank_not_in_group = is_no_member
_set_pg_timeout = set_timeout
_abort_process_group = abort_group


def new_process_group_helper(*args: object, **kwargs: object) -> NoReturn:
    """Raises `NotImplementedError`: groups are made by public functions."""
    raise UnsupportedCallError(
        "_new_process_group_helper: make the group of a job with init_process_group(), and others with new_group()"
    )


_new_process_group_helper = new_process_group_helper
