"""CUDA devices: which exist, and which one `cuda` means in this thread."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from weft._base.device import DeviceLike
from weft._base.types import AttributeValue
from weft._devices.device_type import DeviceContext, DeviceType
from weft._tensor.legacy_types import classes_of
from weft.errors import DeviceError, UnsupportedCallError

cuda = DeviceType("cuda")
CudaError = DeviceError

can_device_access_peer = cuda.can_device_access_peer
current_device = cuda.current_device
current_stream = cuda.current_stream
default_stream = cuda.default_stream
device_count = cuda.device_count
device_of = cuda.device_of
get_device_capability = cuda.get_device_capability
get_device_name = cuda.get_device_name
get_device_properties = cuda.get_device_properties
get_rng_state = cuda.get_rng_state
get_rng_state_all = cuda.get_rng_state_all
init = cuda.init
initial_seed = cuda.initial_seed
is_available = cuda.is_available
is_initialized = cuda.is_initialized
manual_seed = cuda.manual_seed
manual_seed_all = cuda.manual_seed_all
seed = cuda.seed
seed_all = cuda.seed_all
set_device = cuda.set_device
set_rng_state = cuda.set_rng_state
set_rng_state_all = cuda.set_rng_state_all
set_stream = cuda.set_stream
stream = cuda.stream
synchronize = cuda.synchronize


class device(DeviceContext):
    """A block in which `cuda` means this device; a negative index has no effect."""

    def __init__(self, device: DeviceLike) -> None:
        super().__init__(cuda, cuda.index_of(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a CUDA device; all of them support bfloat16."""
    del including_emulation
    return is_available()


def _lazy_call(callable: Callable[[], object], **kwargs: object) -> None:
    """Call a function that needs CUDA devices; without any, nothing, as such calls wait for the first use of one."""
    del kwargs
    if is_available():
        callable()


def get_arch_list() -> list[str]:
    """Nothing: XLA compiles for the device that is there."""
    return []


def ipc_collect() -> None:
    """Does nothing: no memory of the device is shared between processes."""


def is_current_stream_capturing() -> bool:
    """False: XLA captures what it repeats by itself."""
    return False


def get_gencode_flags() -> str:
    """Nothing: XLA compiles for the device that is there."""
    return ""


def is_tf32_supported() -> bool:
    """Whether products of float32 matrices may use TensorFloat-32: on devices from version 8.0 on."""
    return is_available() and get_device_capability() >= (8, 0)


def cudart() -> NoReturn:
    """Refused: XLA calls CUDA's runtime by itself."""
    raise UnsupportedCallError("cuda.cudart: XLA calls CUDA's runtime by itself; it cannot be called through it")


def _not_told(name: str, doc: str) -> Callable[..., NoReturn]:
    def refuse(device: DeviceLike | None = None) -> NoReturn:
        raise UnsupportedCallError(f"cuda.{name}: jax does not tell it; ask NVIDIA's library, such as by `pynvml`")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"{doc} Refused, since jax does not tell it."
    return refuse


utilization = _not_told("utilization", "How busy a device is.")
temperature = _not_told("temperature", "How warm a device is.")
power_draw = _not_told("power_draw", "What a device draws.")
clock_rate = _not_told("clock_rate", "How fast a device runs.")
device_memory_used = _not_told("device_memory_used", "What all processes use of a device's memory.")
list_gpu_processes = _not_told("list_gpu_processes", "Which processes use a device.")


_MODULES = ("amp", "comm", "graphs", "memory", "nccl", "nvtx", "profiler", "random", "streams")
_CLASSES = classes_of("cuda", "torch.cuda")


def __getattr__(name: str) -> AttributeValue:
    if name in _MODULES:
        return import_module(f"weft.cuda.{name}")
    if name in _CLASSES:
        return _CLASSES[name]
    if name == "memory_snapshot":  # it tells what keeps arrays, which modules and optimizers do, too
        return import_module("weft.utils.memory").memory_snapshot
    if name == "default_generators":
        return cuda.default_generators
    raise AttributeError(
        f"module 'weft.cuda' has no attribute {name!r}: graphs, captures and allocators are XLA's own affair"
    )
