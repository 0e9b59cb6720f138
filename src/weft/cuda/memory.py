"""Memory of CUDA devices, in bytes, as XLA tells it. What would change the allocator is refused: it is XLA's."""

from __future__ import annotations

from typing import Any

from weft._absent.refused import CUDAPluggableAllocator as CUDAPluggableAllocator
from weft._absent.refused import change_current_allocator as change_current_allocator
from weft._base.device import DeviceLike
from weft._base.device import device as Device
from weft._base.exports import on_first_use as _on_first_use
from weft._base.types import Json
from weft._devices.figures import summary
from weft.cuda._devices import cuda

__getattr__, __dir__ = _on_first_use(
    __name__,
    {"weft.utils.memory": ("_dump_snapshot", "_record_memory_history", "_snapshot", "memory_snapshot")},
)

empty_cache = cuda.empty_cache
get_per_process_memory_fraction = cuda.get_per_process_memory_fraction
max_memory_allocated = cuda.max_memory_allocated
max_memory_reserved = cuda.max_memory_reserved
mem_get_info = cuda.mem_get_info
memory_allocated = cuda.memory_allocated
memory_reserved = cuda.memory_reserved
memory_stats = cuda.memory_stats
reset_accumulated_memory_stats = cuda.reset_accumulated_memory_stats
reset_peak_memory_stats = cuda.reset_peak_memory_stats
set_per_process_memory_fraction = cuda.set_per_process_memory_fraction

# what these were called before
max_memory_cached = cuda.max_memory_reserved
memory_cached = cuda.memory_reserved
reset_max_memory_allocated = cuda.reset_peak_memory_stats
reset_max_memory_cached = cuda.reset_peak_memory_stats


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """The figures of a device's memory as a table; `abbreviated` leaves out those that only XLA has."""
    index = cuda.index_of(device, optional=True)
    return summary(Device(cuda.kind, index), abbreviated) if cuda.is_available() else ""


def memory_stats_as_nested_dict(device: DeviceLike | None = None) -> dict[str, Json]:
    """`memory_stats` as dicts within dicts, by the parts of the names."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def get_allocator_backend() -> str:
    """The name of the allocator: "xla"."""
    return "xla"
