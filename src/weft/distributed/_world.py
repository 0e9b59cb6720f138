"""The process groups that this process, or thread, is a member of."""

from __future__ import annotations

import json
import os
import threading
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from weft import accelerator
from weft._base.cell import DerivedCell
from weft._base.device import DeviceLike, device
from weft._base.failing import goes_on
from weft._base.leaving import forget, leave_at_exit
from weft._base.logs import set_rank
from weft._base.types import Result
from weft._base.usage import log_api_usage_once
from weft._comm.stores import keys
from weft._comm.stores.meeting import Meeting
from weft._comm.stores.store import PrefixStore, Store
from weft.distributed import _backends
from weft.distributed._group import ProcessGroup
from weft.distributed.constants import default_pg_timeout
from weft.distributed.rendezvous import rendezvous
from weft.errors import (
    ArgumentError,
    DistBackendError,
    OptionError,
    OutOfRangeError,
    PreconditionError,
    ValueRangeError,
)
from weft.utils.data.distributed import ask_for_group

_LONGEST_LIST = 60  # characters of a list of ranks in the texts that ranks compare


@dataclass
class _World:
    """The groups of one rank, which is this process or a thread."""

    default: ProcessGroup | None = None
    groups: list[ProcessGroup] = field(default_factory=list[ProcessGroup])
    groups_created: int = 0  # calls of `new_group` by all ranks together, also of groups without this rank


@dataclass(frozen=True)
class ThreadRank:
    """A thread that is a rank: its rank, the number of ranks, and their shared store."""

    rank: int
    size: int
    store: Store


# no cell: `_default` tells what stands here
_process = _World()
# no cell: `_default` tells what stands here
_here = threading.local()


def _world() -> _World:
    return getattr(_here, "world", _process)


_default = DerivedCell("the default process group", lambda: _world().default)


def set_thread_rank(rank: ThreadRank) -> None:
    """Make this thread a rank."""
    _set_rank(rank, _World())


def is_thread_rank() -> bool:
    """Whether this thread is a rank."""
    return thread_rank() is not None


def thread_rank() -> ThreadRank | None:
    """This thread's rank; None if the thread is not a rank."""
    return getattr(_here, "rank", None)


def rank_setter() -> Callable[[], None]:
    """A function by which another thread can take on the rank of this one."""
    rank, world = thread_rank(), _world()
    return (lambda: None) if rank is None else (lambda: _set_rank(rank, world))


def _set_rank(rank: ThreadRank, world: _World) -> None:
    _here.rank, _here.world = rank, world


def _rank() -> int | None:
    """This thread's rank in its job; None outside of jobs."""
    group, rank = _default.get(), thread_rank()
    return group.rank() if group is not None else None if rank is None else rank.rank


set_rank(_rank)  # lines of logs begin with it


class NonGroupMember:
    """The result of `new_group` on a rank that is not a member."""

    def __repr__(self) -> str:
        return "<no member of this group>"


class _WithWorld(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group; None before `init_process_group`."""
        return _default.get()


class GroupMember(metaclass=_WithWorld):
    """Special values of the argument `group`."""

    NON_GROUP_MEMBER = NonGroupMember()


group = GroupMember

AnyGroup: TypeAlias = ProcessGroup | NonGroupMember | None
"""What stands for a group in a call: a group, None for the default one, or what a rank that is no member has got."""


# --- joining --------------------------------------------------------------------------------------------------


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: object = None,
    device_id: DeviceLike | None = None,
) -> None:
    """Join the other processes of the job; returns when all have joined.

    `init_method` is `env://` (the default: variables that `weft run` sets), `tcp://HOST:PORT` of rank 0, or
    `file:///PATH`. Alternatively, give a `store` that all processes share. `backend` is `shm` (processes on one host;
    the default, which `gloo` stands for, too), `xla` (any hosts and devices; `nccl` requires accelerators), `mpi`
    (started by `mpiexec`, needs no `init_method`) or `threads`. `timeout` is how long operations wait for their peers,
    by default 30 minutes. `DistBackendError` names the ranks that have not joined, that joined twice, or that expected
    another number of ranks.
    """
    log_api_usage_once("c10d.process_group")
    del pg_options
    if device_id is not None:
        _require_accelerator(device_id)
    world = _world()
    if world.default is not None:
        raise ValueRangeError(
            "trying to initialize the default process group twice!; call destroy_process_group() before the second time"
        )
    if store is not None and init_method is not None:
        raise PreconditionError("Cannot specify both init_method and store.")
    timeout = _checked_timeout(timeout)
    requested_name, backend = _backends.requested_name(backend), _backends.canonical_name(backend)
    goes_on()
    place = _backends.job_rendezvous(backend) if store is None and init_method is None else None
    if place is not None:
        store, rank, world_size = place(rank, world_size, timeout)
    else:
        store, rank, world_size = _rendezvous(init_method, store, rank, world_size, timeout)
    if not 0 <= rank < world_size:
        raise OutOfRangeError(f"rank must be from 0 to world_size - 1, but rank is {rank} and world_size {world_size}")
    if _backends.meets(backend):
        groups = PrefixStore(keys.default_groups(group_name), store)
        with Meeting(groups, rank, world_size, "init_process_group", DistBackendError) as meeting:
            # Backends hang where ranks disagree; compared here, all of them say what differs.
            hosts = _compare_members(meeting, backend, timeout)
            store = meeting.store
            own_backend = _backends.join_job(backend, store, rank, hosts, timeout)
    else:
        own_backend = _backends.join_group(backend, store, rank, range(world_size), timeout)
    default = register_group(ProcessGroup.over("default", own_backend, range(world_size), store), default=True)
    default.requested_name = requested_name
    if world is _process:
        leave_at_exit(_leave)


def _require_accelerator(device_id: DeviceLike) -> None:
    """`ValueError` unless the argument `device_id` names an accelerator; which one does not matter here."""
    if isinstance(device_id, int):
        if not accelerator.is_available():
            raise ValueRangeError(
                f"device_id is {device_id}, but this process has no accelerator; leave it out on CPUs"
            )
    elif device(device_id).type == "cpu":
        raise ValueRangeError(
            f"init_process_group device_id parameter must be an accelerator with an index, but got {device_id}"
        )


def require_timedelta(timeout: object) -> None:
    """`TypeError` unless a timeout is a timedelta."""
    if not isinstance(timeout, timedelta):
        raise ArgumentError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}")


def _checked_timeout(timeout: timedelta | None) -> timedelta:
    if timeout is None:
        return default_pg_timeout
    require_timedelta(timeout)
    if timeout <= timedelta(0):
        raise ValueRangeError(f"timeout must be positive, but got {timeout}")
    return timeout


def _rendezvous(
    init_method: str | None, store: Store | None, rank: int, world_size: int, timeout: timedelta
) -> tuple[Store, int, int]:
    thread = thread_rank()
    if store is not None:
        if rank < 0 or world_size < 1:
            raise PreconditionError(
                "world_size must be positive if using store, and rank must be non-negative: give both, but got "
                f"world_size={world_size} and rank={rank}"
            )
        return store, rank, world_size
    if thread is not None and init_method is None:
        return thread.store, thread.rank, thread.size
    return next(iter(rendezvous(init_method or "env://", rank, world_size, timeout=timeout)))


def _compare_members(meeting: Meeting, backend: str, timeout: timedelta) -> list[str]:
    """Wait for the other ranks and compare their backends; returns their hosts by rank."""
    members = [json.loads(fact) for fact in meeting.wait(json.dumps([host_identity(), backend]), timeout)]
    for peer, (_, other) in enumerate(members):
        if other != backend:
            raise DistBackendError(
                f"init_process_group: rank {meeting.rank} has backend={backend!r} and rank {peer} backend={other!r}"
            )
    return [host for host, _ in members]


def host_identity() -> str:
    """A text that is equal for processes that can share memory: it names the kernel, the PID namespace and the user."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"


def register_group(group: ProcessGroup, *, default: bool = False, desc: str | None = None) -> ProcessGroup:
    """Add a group to those of this rank, or make it the default one; `desc` is the user's name for it."""
    world = _world()
    world.groups.append(group)
    if default:
        world.default = group
    group.group_desc = desc or ("default_pg" if default else "undefined")
    group.enter = rank_setter()  # callbacks of the group's operations belong to this rank
    return group


# --- further groups -------------------------------------------------------------------------------------------


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: object = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: object = None,
    sort_ranks: bool = True,
) -> Result:
    """A group of some ranks of the job. All ranks of the job must call it, and create groups in the same order.

    With `use_local_synchronization`, only the members must call it. Other ranks get `GroupMember.NON_GROUP_MEMBER`.
    Members are numbered in the order of their ranks in the job or, without `sort_ranks`, in the given order.
    """
    del pg_options, device_id
    world, default = _world(), require_default()
    assert default.store is not None, "only groups that users make themselves have no store"
    members = list(default.ranks if ranks is None else ranks)
    if sort_ranks:
        members.sort()
    if len(set(members)) < len(members):
        raise ValueRangeError(f"the new group's ranks {members} contain one twice")
    for rank in members:
        if not hasattr(rank, "__index__"):
            raise ArgumentError(f"the new group's ranks must be ints, got {type(rank).__name__} {rank!r}")
        if rank not in default.ranks:
            raise ValueRangeError(f"the new group's rank {rank} is not one of the {default.size()} ranks of the job")
    chosen = _backends.canonical_name(backend)
    if chosen == "mpi" and use_local_synchronization:
        raise ValueRangeError("MPI backend doesn't support use_local_synchronization=True")
    timeout = _checked_timeout(timeout) if timeout is not None else default.timeout
    members = [*map(int, members)]
    if not use_local_synchronization:
        world.groups_created += 1
        # Compares the lists of members: ranks that make different groups, or in another order, would wait for each
        # other.
        default.await_ranks(f"new_group({abridged(members)}{'' if backend is None else f', backend={chosen!r}'})")
    if get_rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    # Only members meet, so a counter that all ranks share cannot name the group; their ranks do.
    if use_local_synchronization and _backends.meets(default.own_backend.name):
        place = PrefixStore(keys.own_group(members), default.store)
        with Meeting(place, members.index(get_rank()), len(members), "new_group", DistBackendError) as meeting:
            meeting.wait("", timeout)
        own, name = meeting.store, f"group of {abridged(members)}"
    else:
        own = PrefixStore(keys.group(world.groups_created), default.store)
        name = f"group {world.groups_created}"
    own_backend = _backends.subgroup(chosen, default, own, members, timeout)
    group = register_group(ProcessGroup.over(name, own_backend, members, own, default), desc=group_desc)
    group.requested_name = default.requested_name if backend is None else _backends.requested_name(backend)
    return group


def abridged(members: Sequence[object]) -> str:
    """A list as a short text for the calls that ranks compare; different lists have different texts."""
    text = str(members)
    if len(text) <= _LONGEST_LIST:
        return text
    return f"{text[: _LONGEST_LIST // 2]}... of {len(members)}, checksum {zlib.crc32(text.encode()):x}"


def destroy_process_group(group: AnyGroup = None) -> None:
    """Leave a group, by default all groups. Operations that wait for peers fail."""
    world = _world()
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    leaving = list(world.groups) if group is None or group is world.default else [require_group(group)]
    if not leaving and group is None:
        raise PreconditionError("Process group cannot be None: call init_process_group first")
    for one in reversed(leaving):
        one.close()
        world.groups.remove(one)
    if world.default not in world.groups:
        world.default, world.groups_created = None, 0


def _leave() -> None:
    """Leave the groups, so that peers fail at once and no thread outlives the interpreter."""
    forget(_leave)
    if _process.default is not None:
        destroy_process_group()


# --- queries --------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """True: process groups are always available."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` has been called."""
    return _default.get() is not None


def is_torchelastic_launched() -> bool:
    """Whether this process was started by `weft run` or by PyTorch's launcher."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def own_groups() -> list[ProcessGroup]:
    """The groups of which this process is a member."""
    return list(_world().groups)


def is_default(group: ProcessGroup) -> bool:
    """Whether this is the default group."""
    return group is _default.get()


def require_default() -> ProcessGroup:
    """The default group; `ValueError` before `init_process_group`."""
    group = _default.get()
    if group is None:
        raise ValueRangeError(
            "Default process group has not been initialized, please make sure to call init_process_group."
        )
    return group


def require_group(group: object) -> ProcessGroup:
    """The given group, or the default one for None; `ValueError` for a destroyed group."""
    if group is None:
        return require_default()
    if group is GroupMember.NON_GROUP_MEMBER:
        raise ValueRangeError("Invalid process group specified: this rank is no member of it")
    if not isinstance(group, ProcessGroup):
        raise ValueRangeError(
            f"Invalid process group specified: group must be a ProcessGroup or None, not {type(group).__name__} "
            f"{group!r}"
        )
    if group not in _world().groups and group.group_name:  # a user's object without a name was never registered
        raise ValueRangeError(f"Invalid process group specified: {group!r} has been destroyed")
    return group


def member_of(group: object, operation: str, root: int | None = None) -> ProcessGroup | None:
    """The group of an operation; None, with a warning, if this rank is not a member.

    `ValueError` if it is not, and names a `root` by its rank in the job, which cannot be found in the group then.
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        if root is not None:
            raise ValueRangeError(
                f"Invalid process group specified: rank {get_rank()} is no member of it, and cannot call {operation} "
                f"with rank {root} there"
            )
        warnings.warn(
            f"Running {operation} on global rank {get_rank()} which does not belong to the given group.",
            stacklevel=3,
        )
        return None
    return require_group(group)


def get_rank(group: AnyGroup = None) -> int:
    """This process's rank in a group; -1 if it is not a member."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else require_group(group).rank()


def get_world_size(group: AnyGroup = None) -> int:
    """The number of ranks of a group; -1 if this process is not a member."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else require_group(group).size()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's rank on its host, as set by launchers; else `fallback_rank`, or `RuntimeError` if that is None."""
    rank = os.environ.get("LOCAL_RANK", fallback_rank)
    if rank is None:
        raise OptionError(
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to "
            "work, assuming you are not running in a multi-device context and want the code to run locally instead."
        )
    return int(rank)


def get_pg_count() -> int:
    """The number of groups of which this process is a member."""
    return len(_world().groups)


def get_backend(group: AnyGroup = None) -> str:
    """The name of a group's backend, or of those for several devices, as `cpu:gloo,cuda:nccl`: as it was requested."""
    process_group = require_group(group)
    return process_group.requested_name or process_group.name()


def get_process_group_ranks(group: AnyGroup = None) -> list[int]:
    """The ranks in the job of a group's members, by their rank in the group."""
    return list(require_group(group).ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in a group of a rank of the job; `ValueError` if it is not a member.

    In the default group both are the same, so any number is returned as it is.
    """
    return global_rank if group is GroupMember.WORLD else require_group(group).rank_in_group(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the job of a rank of a group; `ValueError` if there is no such rank.

    In the default group both are the same, so any number is returned as it is.
    """
    if group is GroupMember.WORLD:
        return group_rank
    ranks = require_group(group).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueRangeError(f"Group rank {group_rank} is not part of group {group!r}")
    return ranks[group_rank]


ask_for_group(lambda: (get_world_size(), get_rank()) if is_initialized() else None)
