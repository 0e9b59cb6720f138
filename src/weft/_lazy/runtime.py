"""jax's configuration, the memory allocator, and devices. No other module uses these."""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import jax
import jaxlib.version
import numpy as np

from weft._base import config
from weft._base.cell import Cell
from weft._base.collector import collector_paused
from weft._base.device import CPU, META, device
from weft._base.interrupts import keep_ignored_interrupts
from weft._base.timeline import Phase, spanned
from weft._base.types import AnyArray, Arg
from weft._lazy import compile_cache, metrics
from weft._lazy.aval import Aval
from weft._lazy.living import largest_on, needed_for
from weft._lazy.value import NO_DATA, Value
from weft.errors import DeviceError, DistBackendError, NoDeviceError, OutOfMemoryError
from weft.ops._extremes import keep_nan_on_cpus
from weft.ops._jax import device_put, live_arrays, update_config

# mallopt's parameters, from glibc's <malloc.h>
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_PAD = 256 << 20

JaxDevice: TypeAlias = Any
"""A device of jax's, of whose methods jax's stub lacks some."""

_config: Arg = jax.config  # whose attributes are made at run time


def _tune_allocator() -> None:
    """Keep freed pages in the process: XLA:CPU allocates its temporaries anew in every run.

    One arena, no mmap, no trim, 256 MB of padding. Only glibc has these switches.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    for parameter, value in ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, _PAD)):
        libc.mallopt(parameter, value)


def _configure() -> None:
    update_config("jax_enable_x64", True)
    keep_nan_on_cpus()
    if config.COMPILE_CACHE:
        folder = Path(config.COMPILE_CACHE) / f"jaxlib-{jaxlib.version.__version__}"
        if compile_cache.prepare(folder):
            update_config("jax_compilation_cache_dir", str(folder))
            update_config("jax_persistent_cache_min_compile_time_secs", 0.1)
            update_config("jax_persistent_cache_min_entry_size_bytes", 0)
    if config.TUNE_ALLOCATOR:
        _tune_allocator()


_configure()
keep_ignored_interrupts()  # jax has just hung a callback into the garbage collector

_PLATFORMS = {"cpu": "cpu", "cuda": "cuda", "gpu": "gpu", "tpu": "tpu", "mps": "METAL", "xla": None}


@lru_cache(maxsize=64)
def jax_device(target: device) -> JaxDevice:
    """The jax device with a name; `xla` means the default backend. `RuntimeError` if there is none, and in a process
    that was forked from one that has computed.
    """
    if _Forked.from_started:
        raise DeviceError(
            "XLA cannot run here: this process was forked from one in which it runs, and its threads do not survive a "
            "fork. What is on the CPU is computed with NumPy; for anything else start processes with the 'spawn' or "
            "'forkserver' method (as weft.multiprocessing does), or fork before anything is computed"
        )
    if target.type not in _PLATFORMS:
        raise DeviceError(f"{target}: there are no {target.type} devices here; use one of {', '.join(_PLATFORMS)}")
    platform_name = _PLATFORMS[target.type]
    _Started.begun = True
    try:
        devices = started_devices(platform_name)
    except RuntimeError as error:
        text = f"{target}: this machine has no {target.type} device that jax can use"
        if target.type == "cuda":
            raise NoDeviceError(f"Torch not compiled with CUDA enabled; {text}") from error
        raise DeviceError(text) from error
    if devices[0].platform != "cpu":  # where the first tier is programs of single applications
        update_config("jax_persistent_cache_min_compile_time_secs", 0.0)
    index = target.index or 0
    if index >= len(devices):
        raise DeviceError(f"{target}: this machine has {len(devices)} {target.type} device(s), counted from 0")
    if devices[index].platform != "cpu":
        _accelerators[devices[index].id] = devices[index]
    return devices[index]


# no cell: a cache, keyed by all that its entries depend on
_accelerators: dict[int, Arg] = {}
"""The jax devices other than CPUs that this process has used."""


def is_exhaustion(error: BaseException) -> bool:
    """Whether a computation has failed for want of memory."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in _EXHAUSTION)


_EXHAUSTION = ("RESOURCE_EXHAUSTED", "Out of memory allocating")


def raise_if_exhausted(error: BaseException, target: device, values: Sequence[Value] = ()) -> None:
    """Raise `OutOfMemoryError` for an error of a computation on a device, if that was for want of memory.

    `values` are the largest results of the program that was to be computed, where that is known.
    """
    if not is_exhaustion(error):
        return
    traceback.clear_frames(error.__traceback__)  # which keep arrays of what has failed
    if not config.FULL_TRACEBACKS:
        error.__traceback__ = None  # nor do frames keep any that still run
    allocator = "DefaultCPUAllocator: can't allocate memory: " if target.type == "cpu" else ""
    text = str(error).partition("\n")[0].removeprefix("RESOURCE_EXHAUSTED: ").rstrip(".")
    advice = "compute less at a time, or `del` tensors that are no longer needed"
    lines = [
        f"{target.type.upper()} out of memory. {allocator}{text}; {advice}",
        needed_for(values),
        largest_on(target),
    ]
    raise OutOfMemoryError("\n".join(filter(None, lines))) from (error if config.FULL_TRACEBACKS else None)


class telling_of_memory:
    """A block whose failure for want of memory is raised as `OutOfMemoryError`.

    Where accelerators compute while the program goes on, such a failure appears only in a wait.
    """

    __slots__ = ("_target",)

    def __init__(self, target: device) -> None:
        self._target = target

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            raise_if_exhausted(error, self._target)


# no cell: set once, when XLA starts
class _Started:
    """Whether XLA runs in this process or is starting; a child that is forked while it starts cannot use it either."""

    begun = False


# no cell: XLA cannot run where it is set
class _Forked:
    """Whether XLA was running in the process from which this one was forked."""

    from_started = False


def _before_fork() -> None:
    """Wait until everything is computed, since nothing would finish it in the child."""
    if has_started():
        for array in live_arrays():
            array.block_until_ready()


def _after_fork() -> None:
    if has_started():
        _Forked.from_started = True
        for forget in _on_fork:
            forget()


# no cell: called when the process forks
_on_fork: list[Callable[[], None]] = [jax_device.cache_clear]
# What other threads have started is waited for when they can start nothing more.
collector_paused.alone.append(_before_fork)
os.register_at_fork(after_in_child=_after_fork)


def started_devices(platform: str | None = None, *, everywhere: bool = False) -> list[jax.Device]:
    """jax's devices of a platform, by default the best one, of this process or of all. To ask for them starts XLA."""
    try:
        return jax.devices(platform) if everywhere else jax.local_devices(backend=platform)
    finally:
        _answer_jax_on_forks()  # also where there is no such device: XLA runs then, too


@cache
def _answer_jax_on_forks() -> None:
    """Keep jax from warning of every fork that the child will probably not live: Weft's children never enter XLA.

    jax warns by a hook that it sets when XLA starts. Hooks of before a fork are called last to first, so one that is
    set now, and once only, is called before that of jax.
    """
    blocks: list[warnings.catch_warnings[None]] = []

    def ignore() -> None:
        blocks.append(warnings.catch_warnings())
        blocks[-1].__enter__()
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)

    def restore() -> None:
        if blocks:  # else the hooks were set by another thread, after those before this fork had run
            blocks.pop().__exit__(None, None, None)

    os.register_at_fork(before=ignore, after_in_parent=restore, after_in_child=restore)


def on_fork(forget: Callable[[], None]) -> None:
    """Call `forget()` in a forked process that cannot use XLA, to clear caches of XLA's objects."""
    _on_fork.append(forget)


# no cell: a replay runs its program by the tiers of its own time
class _Tiers:
    """Whether one tier computes everything, so that a value never depends on what was computed before."""

    fixed = False


def fix_tier(fixed: bool) -> None:
    """Compile every program before its first run or, as by default, only those that are worth it."""
    _Tiers.fixed = fixed


def tier_of(target: device) -> str:
    """How programs are computed on a device: "compiled", "interpreted", or "auto": first interpreted, then compiled."""
    if _Forked.from_started and target.type == "cpu":
        return "interpreted"
    return "compiled" if _Tiers.fixed and config.TIER == "auto" else config.TIER


def has_started() -> bool:
    """Whether this package has started XLA in this process."""
    return _Started.begun


def xla_devices(*, everywhere: bool = False) -> list[JaxDevice]:
    """The jax devices that `xla:0`, `xla:1`, … name in this process; or, in order, those of all processes."""
    jax_device(device("xla", 0))
    return started_devices(everywhere=everywhere)


def memory_of(held: AnyArray) -> tuple[int, int]:
    """The bytes in use on a jax device, and those that it has.

    Where jax does not know, as on CPUs, the first are those of the arrays there, and the second the host's memory.
    """
    stats = held.memory_stats()
    if stats:
        return stats["bytes_in_use"], stats.get("bytes_limit", 0)
    used = sum([array.nbytes for array in live_arrays(held.platform) if held in array.devices()])
    return used, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def accelerator_memory() -> tuple[int, int]:
    """The bytes in use on the accelerators that this process has used, and those that these have."""
    figures = [memory_of(held) for held in list(_accelerators.values())]
    return sum(used for used, _ in figures), sum(limit for _, limit in figures)


@spanned(Phase.WAITING, "for a device")
def finish(held: AnyArray) -> None:
    """Wait until a jax device has computed all arrays that somebody holds there."""
    with telling_of_memory(device("cuda" if held.platform == "gpu" else held.platform)):
        for array in live_arrays(held.platform):
            if held in array.devices():
                array.block_until_ready()


def default_jax_device() -> JaxDevice:
    """The device of programs without array inputs, by default."""
    return jax_device(device("xla", 0))


_precision = Cell[str | None]("the precision of matrix products", _config.jax_default_matmul_precision)


def matmul_precision() -> str | None:
    """The precision that `set_matmul_precision` has set, or None."""
    return _precision.get()


def set_matmul_precision(precision: str) -> None:
    """Set the precision of float32 matrix products, in jax's words."""
    _precision.set(precision)
    update_config("jax_default_matmul_precision", precision)


def device_of(array: jax.Array) -> device:
    """The name of the device that holds an array."""
    return named(next(iter(array.devices())))


@lru_cache(maxsize=64)
def named(held: AnyArray) -> device:
    """The name of a jax device; the devices of this process are counted from 0."""
    index = jax.local_devices(backend=held.platform).index(held) if jax.distributed.is_initialized() else held.id
    if held.platform == "cpu" and index == 0:
        return CPU
    return device("cuda" if held.platform == "gpu" else held.platform, index)


def new_array(aval: Aval, number: complex) -> AnyArray:
    """A new array of this type with one number everywhere."""
    return _filled(aval, number, aval.device is CPU and tier_of(CPU) != "compiled")


def filled_array(aval: Aval, number: complex) -> AnyArray:
    """A shared array of this type with one number everywhere, for constants.

    Once XLA runs, it is a jax array, which programs need not move to their device again.
    """
    return _constant(aval, number, aval.device is CPU and (_Forked.from_started or not _Started.begun))


def _filled(aval: Aval, number: complex, on_host: bool) -> AnyArray:
    if aval.device is META:
        return NO_DATA
    with telling_of_memory(CPU):
        host = np.full(aval.shape, number, aval.dtype.numpy)
    if on_host or aval.device is CPU:
        return host if on_host else device_put(host, jax_device(aval.device))
    with metrics.to_device(host.nbytes):
        return device_put(host, jax_device(aval.device))


_constant = lru_cache(maxsize=256)(_filled)


# --- several processes ------------------------------------------------------------------------------------------

_NEVER = 10**9  # seconds without a heartbeat: groups watch their ranks themselves, and this would end the process
_WARNINGS = "1"  # the level of XLA's log that jax sets where the environment has none
_PARTING = 3.0  # seconds for which this process tries to take its leave at its end


def in_runtime() -> tuple[int, int] | None:
    """This process's rank in XLA's runtime of several processes and their number; None outside of one."""
    return (jax.process_index(), jax.process_count()) if jax.distributed.is_initialized() else None


def join_runtime(path: str, rank: int, size: int, seconds: float, *, with_gloo: bool) -> None:
    """Join XLA's distributed runtime, whose coordinator is reached by this Unix socket.

    Rank 0 is the coordinator. Nothing may have been computed before. The end of a process does not end the others.
    Without Gloo, the CPUs of different processes cannot run a program together.
    """
    update_config("jax_cpu_collectives_implementation", "gloo" if with_gloo else None)
    update_config("jax_enable_recoverability", True)
    update_config("jax_enable_preemption_service", False)
    local = os.environ.get("LOCAL_RANK") if "CUDA_VISIBLE_DEVICES" not in os.environ else None
    try:
        with _errors_only():
            jax.distributed.initialize(
                f"unix:{path}",
                size,
                rank,
                None if local is None else [int(local)],
                cluster_detection_method="deactivate",
                initialization_timeout=max(1, int(seconds)),
                heartbeat_timeout_seconds=_NEVER,
                coordinator_bind_address=f"unix:{path}",
            )
    except RuntimeError as error:
        if "before any JAX" in " ".join(str(error).split()):
            raise DistBackendError(
                "init_process_group('xla') must come before anything is computed in this process, since XLA learns of "
                "its peers when it starts; call it first, right after the imports"
            ) from None
        raise DistBackendError(f"XLA's runtime of several processes did not start: {error}") from error
    _shutdowns.append(_Shutdown())
    _shutdowns[0].start()


@contextmanager
def _errors_only() -> Generator[None]:
    """Suppress XLA's warnings on stderr within the block, unless logging was configured."""
    level = _config.jax_logging_level
    if level != "NOTSET" or os.environ.get("TF_CPP_MIN_LOG_LEVEL") != _WARNINGS:
        yield
        return
    update_config("jax_logging_level", "ERROR")
    try:
        yield
    finally:
        update_config("jax_logging_level", "WARNING")  # "NOTSET" leaves XLA's own level as it is
        update_config("jax_logging_level", level)


def is_ready(array: jax.Array) -> bool:
    """Whether an array is computed."""
    return cast("Any", array).is_ready()  # which jax's stub lacks


# no cell: what the end of the process waits for
unfinished: list[jax.Array] = []
"""Results of abandoned exchanges with other processes, for which XLA waits when the process ends."""


class _Shutdown(threading.Thread):
    """Leaves XLA's runtime when asked. Started early, because an ending process cannot start threads (Python 3.12)."""

    def __init__(self) -> None:
        super().__init__(name="leave XLA's runtime", daemon=True)
        self._requested = threading.Event()

    def run(self) -> None:
        self._requested.wait()
        jax.distributed.shutdown()

    def within(self, seconds: float) -> bool:
        """Leave the runtime; returns whether that took less than `seconds`."""
        self._requested.set()
        self.join(seconds)
        return not self.is_alive()


# no cell: called when the process ends
_shutdowns: list[_Shutdown] = []  # one, made once this process has joined: a fork marks older threads as ended


def _leave_runtime() -> None:
    """Leave when the process ends. If the coordinator does not answer, XLA would wait for minutes."""
    if not (_shutdowns and _shutdowns[0].is_alive() and jax.distributed.is_initialized()):
        return
    if not _shutdowns[0].within(_PARTING):
        _end("the process of rank 0 has ended before this one")
    if not all(map(is_ready, unfinished)):
        _end("XLA still waits for the ranks that have not come")


def _end(why: str) -> None:
    """End the process at once."""
    print(f"weft: {why}; ending with status 1", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


atexit.register(_leave_runtime)
