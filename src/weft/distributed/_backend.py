"""Names of backends, and the backend of each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from weft._base.device import DeviceLike
from weft._base.device import device as Device
from weft._comm.stores.store import Store
from weft.distributed import _backends
from weft.distributed._group import ProcessGroup
from weft.distributed._group_backend import GroupBackend as _Backend
from weft.distributed._world import get_backend
from weft.errors import ValueRangeError

BackendFactory = Callable[..., _Backend | ProcessGroup]


@dataclass
class DistributedBackendOptions:
    """What a function that is registered with `extended_api` gets of the group that it makes."""

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta
    group_id: str
    global_ranks_in_group: list[int]


class Backend(str):
    """The name of a backend, in lower case. The names of this package's backends are attributes, as `Backend.GLOO`."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    SHM = "shm"
    TCP = "tcp"
    THREADS = "threads"
    FAKE = "fake"
    XLA = "xla"

    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, SHM, TCP, THREADS, FAKE, XLA]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL, "tpu": XLA, "xla": XLA}

    def __new__(cls, name: object) -> Backend:
        if not isinstance(name, str):
            raise ValueRangeError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls, name: str, func: BackendFactory, extended_api: bool = False, devices: str | Sequence[str] | None = None
    ) -> None:
        """Add a backend: `func(store, rank, size, timeout)` returns this rank's part of a group.

        That is an object of a subclass of `ProcessGroup`, or a `dist._Backend`. With `extended_api`, `func` gets the
        same as an object, and None, for options. It becomes the default backend of those `devices` that have none.
        """

        def join(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> _Backend | ProcessGroup:
            if extended_api:
                return func(DistributedBackendOptions(store, rank, len(ranks), timeout, "", list(ranks)), None)
            return func(store, rank, len(ranks), timeout)

        _backends.register_backend(name, join)
        setattr(cls, name.upper(), name.lower())
        cls.backend_list.append(name.lower())
        for kind in [devices] if isinstance(devices, str) else devices or ():
            cls.default_device_backend_map.setdefault(kind, name.lower())


class BackendConfig:
    """Backends by device, parsed from names such as `cpu:gloo,cuda:nccl`, or from a single name for CPUs and GPUs."""

    def __init__(self, backend: str) -> None:
        self.device_backend_map: dict[str, Backend]
        name_list = Backend(backend)
        if ":" not in name_list:
            devices = ("cuda",) if name_list == Backend.NCCL else ("cpu", "cuda")
            self.device_backend_map = dict.fromkeys(devices, name_list)
            return
        by_device = _backends.backends_by_device(name_list)
        self.device_backend_map = {kind: Backend(name) for kind, name in by_device.items()}

    def __repr__(self) -> str:
        return ",".join(f"{kind}:{backend}" for kind, backend in self.device_backend_map.items())

    def get_device_backend_map(self) -> dict[str, Backend]:
        """Backends by device."""
        return self.device_backend_map


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """A group's backend for each device, such as `cpu:gloo,cuda:gloo`."""
    return str(BackendConfig(get_backend(group)))


def get_default_backend_for_device(device: DeviceLike) -> str:
    """The backend for tensors on a device; `ValueError` if none is known."""
    kind = (device if isinstance(device, Device) else Device(device)).type
    backend = Backend.default_device_backend_map.get(kind)
    if backend is None:
        raise ValueRangeError(f"Default backend not registered for device : {device}")
    return backend
