"""`torch_xla.distributed.xla_multiprocessing`: one process for each replica."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from weft._base.device import DeviceLike
from weft._base.failing import before_leaving
from weft._base.guards import is_int, is_list_or_tuple
from weft._base.types import Arg, Args
from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore
from weft._comm.stores.tcp_store import TCPStore
from weft._lazy.runtime import started_devices
from weft.distributed._group_xla import join as join_group
from weft.distributed.constants import default_pg_timeout
from weft.errors import ArgumentError, ValueRangeError
from weft.multiprocessing._processes import ProcessContext, start_processes
from weft.nn._module import Module
from weft.xla._flags import number
from weft.xla._replicas import replicas
from weft.xla.distributed import xla_backend as xla_backend  # the address `xla://`

T = TypeVar("T")

_START_SECONDS = 300.0  # for all processes to begin


def spawn(
    fn: Callable[[Arg], object],
    args: Args = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(ordinal, *args)` in one process for each replica; collectives between them are part of their programs.

    nprocs: the number of replicas; None is one for each accelerator of this host or, on CPUs, CPU_NUM_DEVICES (by
    default 1). One replica runs in this process. With `join`, returns when all have ended, else their context. When one
    fails, the others are ended, and `ProcessRaisedException` has its traceback.
    """
    count = _device_count() if nprocs is None else nprocs
    if not callable(fn):
        raise ArgumentError(f"spawn: fn must be a function of a module, got {fn!r}")
    if not is_int(count):
        raise ArgumentError(f"spawn: nprocs must be an int or None, got {nprocs!r}")
    if not is_list_or_tuple(args):
        raise ArgumentError(f"spawn: args must be a tuple of arguments, got {type(args).__name__}")
    if start_method == "fork":
        raise ValueRangeError("spawn: XLA does not survive a fork; use start_method='spawn' or 'forkserver'")
    if count < 1:
        raise ValueRangeError(f"spawn: nprocs must be at least 1, got {count}")
    if replicas().size > 1:
        raise ArgumentError("spawn: this process is a replica itself; call spawn in the program's main process")
    if count == 1:
        fn(0, *args)
        return None
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = start_processes(_replica, (count, store.port, fn, args), count, False, daemon, start_method)
    assert started is not None, "without `join` there is a context"
    context = _ReplicaContext(started, store)
    if not join:
        return context
    while not context.join():
        pass
    return None


class _ReplicaContext(ProcessContext):
    """The processes of replicas, and the store by which they meet."""

    def __init__(self, started: ProcessContext, store: TCPStore) -> None:
        super().__init__(started.processes, started.error_files)
        self._store = store

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """As `ProcessContext.join`; the store ends with the last process."""
        try:
            return super().join(timeout, grace_period)
        finally:
            if not self.sentinels:
                self._store.close()


def launch(
    fn: Callable[[Arg], object],
    args: Args = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """`spawn` with one replica for each device, or one in all to debug.

    In a process that `weft run` has started, it calls `fn(local rank, *args)`.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        fn(int(os.environ["LOCAL_RANK"]), *args)
    else:
        spawn(fn, args, 1 if debug_single_process else None, start_method=start_method)


def _device_count() -> int:
    held = started_devices()
    return int(number("CPU_NUM_DEVICES", 1)) if held[0].platform == "cpu" else len(held)


def _replica(ordinal: int, count: int, port: int, fn: Callable[[Arg], object], args: Args) -> None:
    """The main function of a replica: joins the others, then calls the user's."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(ordinal),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(ordinal),
        "LOCAL_WORLD_SIZE": str(count),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the parent has the store
    }
    store = TCPStore("127.0.0.1", port, timeout=timedelta(seconds=_START_SECONDS))
    backend = join_group(PrefixStore(keys.REPLICAS, store), ordinal, range(count), default_pg_timeout)
    try:
        fn(ordinal, *args)
        replicas().gather(b"", "the end of its function")  # nobody leaves before all are done
    finally:
        before_leaving()
        backend.close()
        store.close()


class MpModelWrapper:
    """A model that processes started by `fork` share until each moves it to its device."""

    def __init__(self, model: Module) -> None:
        self._model = model

    def to(self, device: DeviceLike | None) -> Module:
        """The model, on a device."""
        return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one replica after the other, for example because it needs much memory on the host."""

    def run(self, fn: Callable[[], T]) -> T:
        """What `fn()` returns here; replicas of larger ordinals wait for those of smaller ones."""
        job = replicas()
        result: list[T] = []
        for ordinal in range(job.size):
            if ordinal == job.ordinal:
                result.append(fn())
            job.gather(b"", f"the end of the function of replica {ordinal}")
        return result[0]
