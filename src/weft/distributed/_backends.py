"""The backends by name, and the choice of a job's backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec

from weft import cuda
from weft._base.types import AnyCallable
from weft._comm.stores.store import Store
from weft.distributed._group import ProcessGroup
from weft.distributed._group_backend import GroupBackend
from weft.errors import DistBackendError, PreconditionError, ValueRangeError

Join = Callable[..., GroupBackend | ProcessGroup]
"""`join(store, rank, ranks, timeout)` makes this rank's part of a group with the members `ranks` of the job.

A user's function may return an object of a subclass of `ProcessGroup`.
"""

JobRendezvous = Callable[[int, int, timedelta], tuple[Store, int, int]]
"""`place(rank, world_size, timeout)` gives a store, the rank and the world size; -1 stands for unknown ones."""

_JOIN = {
    "shm": "weft.distributed._group_host:join_processes",
    "tcp": "weft.distributed._group_host:join_messages",
    "threads": "weft.distributed._group_host:join_threads",
    "xla": "weft.distributed._group_xla:join",
    "nccl": "weft.distributed._group_xla:join_accelerators",
    "mpi": "weft.distributed._group_mpi:join",
    "fake": "weft.distributed._group_fake:join",
}
_JOB_RENDEZVOUS = {
    "mpi": "weft.distributed._group_mpi:rendezvous",
    "fake": "weft.distributed._group_fake:rendezvous",
}
_PACKAGES = {"mpi": "mpi4py"}  # packages that are installed by extras
_OTHER_NAMES = {"gloo": "auto", "undefined": "auto"}
# no cell: read where a process group is made, which is no part of a capture
_registered: dict[str, Join] = {}


def canonical_name(name: object) -> str:
    """This package's name of a backend; `auto` if the choice depends on the job. `AssertionError` for unknown names."""
    if name is None:
        return "auto"
    if not isinstance(name, str):
        raise ValueRangeError(f"Backend name must be a string, but got: {name!r}")
    chosen = name.lower()
    if ":" in chosen:
        by_device = backends_by_device(chosen)
        chosen = next(iter(by_device.values()))
        # Programs for clusters ask for "cpu:gloo,cuda:nccl" everywhere; without accelerators the CPU's backend is
        # meant.
        if chosen == "nccl" and "cpu" in by_device and not is_nccl_available():
            chosen = by_device["cpu"]
    known_name = _OTHER_NAMES.get(chosen, chosen)
    if known_name != "auto" and known_name not in _JOIN and known_name not in _registered:
        names = ", ".join(sorted({*_JOIN, *_registered, *_OTHER_NAMES}))
        raise PreconditionError(f"Unknown backend type {name!r}; known are {names}")
    return known_name


def backends_by_device(names: str) -> dict[str, str]:
    """What a text such as `cpu:gloo,cuda:nccl` says; `ValueError` if it is none."""
    by_device: dict[str, str] = {}
    for pair in names.split(","):
        kind, colon, name = pair.partition(":")
        if not (kind and colon and name) or ":" in name:
            raise ValueRangeError(
                f"Invalid device:backend pairing: {pair!r} in {names!r}; give DEVICE:BACKEND,DEVICE:BACKEND..., such "
                "as cpu:gloo,cuda:nccl"
            )
        if kind in by_device:
            raise ValueRangeError(f"Duplicate device type {kind} in backend string: {names}")
        by_device[kind] = name
    return by_device


def requested_name(name: str | None) -> str | None:
    """The name that a program gives a backend, if it stands for another one here, or names those of several devices."""
    stands_for_others = name is not None and (":" in name or name.lower() in _OTHER_NAMES)
    return name.lower() if name is not None and stands_for_others else None


def register_backend(name: str, func: Join) -> None:
    """Add a backend: `func(store, rank, ranks, timeout)` makes this rank's part of a group."""
    name = name.lower()
    if name in _JOIN or name in _OTHER_NAMES or name in _registered:
        raise ValueRangeError(f"{name} c10d backend already exists")
    _registered[name] = func


def is_backend_available(backend: str) -> bool:
    """Whether groups of this backend can be created in this process."""
    try:
        known_name = canonical_name(backend)
    except PreconditionError:
        return False
    return (
        is_nccl_available()
        if known_name == "nccl"
        else known_name not in _PACKAGES or find_spec(_PACKAGES[known_name]) is not None
    )


def is_gloo_available() -> bool:
    """True: here, `gloo` stands for the backend that suits the job's hosts."""
    return True


def is_nccl_available() -> bool:
    """Whether this process has an accelerator; `nccl` stands for XLA's transport between accelerators."""
    return cuda.is_available()


def is_mpi_available() -> bool:
    """Whether the extra `mpi` is installed."""
    return is_backend_available("mpi")


def is_ucc_available() -> bool:
    """False: XLA has no such transport."""
    return False


def is_xccl_available() -> bool:
    """False: XLA has no such transport."""
    return False


def job_rendezvous(backend: str) -> JobRendezvous | None:
    """The rendezvous of a backend that needs no address: MPI's launcher connects the processes. None for others."""
    return _loaded(_JOB_RENDEZVOUS[backend]) if backend in _JOB_RENDEZVOUS else None


def meets(backend: str) -> bool:
    """Whether the ranks of a job exist, so that they wait for each other when they join."""
    return backend != "fake"


def _join_of(backend: str) -> Join:
    return _registered.get(backend) or _loaded(_JOIN[backend])


def _loaded(name: str) -> AnyCallable:
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name != "mpi4py":
            raise
        raise ModuleNotFoundError(
            "backend mpi needs the package mpi4py and an MPI library; install both with: pip install weft[mpi]",
            name="mpi4py",
        ) from None


def join_job(backend: str, store: Store, rank: int, hosts: Sequence[str], timeout: timedelta) -> GroupBackend:
    """The backend of a job whose ranks are on these hosts; `auto` is `shm` on one host, and `tcp` on several."""
    if backend == "auto":
        backend = "shm" if len(set(hosts)) == 1 else "tcp"
    if backend == "shm" and len(set(hosts)) > 1:
        other = next(peer for peer, host in enumerate(hosts) if host != hosts[rank])
        raise DistBackendError(
            f"the backend shm is for ranks that share memory, but ranks {rank} and {other} are on different hosts, in "
            "different containers, or of different users; write backend='gloo', which chooses shm or tcp by itself"
        )
    joined = join_group(backend, store, rank, range(len(hosts)), timeout)
    joined.hosts = hosts
    return joined


def may_shrink(backend: str) -> bool:
    """Whether some ranks of a job can continue without the others."""
    return backend not in {"xla", "nccl", "mpi"}


def subgroup(
    backend: str, default: ProcessGroup, store: Store, members: Sequence[int], timeout: timedelta
) -> GroupBackend:
    """The backend of a group of some ranks of the job, including this one; `store` is the group's own."""
    if backend == "auto":
        backend, hosts = default.own_backend.name, default.own_backend.hosts
        if backend == "tcp" and hosts and len({hosts[member] for member in members}) == 1:
            backend = "shm"  # these ranks of a job on several hosts share memory
    return join_group(backend, store, members.index(default.ranks[default.rank()]), members, timeout)


def join_group(backend: str, store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> GroupBackend:
    """This rank's part of a group with the members `ranks` of the job."""
    joined = _join_of(backend)(store, rank, ranks, timeout)
    if not isinstance(joined, ProcessGroup):
        return joined
    own_backend = joined.own_backend  # that of a user's object
    own_backend.name, own_backend.timeout = backend, timeout
    return own_backend
