"""Events of a profile, and sums of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from weft.profiler._units import time_text


def _with_unit(name: str) -> property:
    def with_unit(self: object) -> str:
        return time_text(getattr(self, name))

    with_unit.__doc__ = f"`{name}` with its unit."
    return property(with_unit)


class DeviceType(IntEnum):
    """Kinds of devices, with PyTorch's numbers."""

    CPU = 0
    CUDA = 1
    MKLDNN = 2
    OPENGL = 3
    OPENCL = 4
    IDEEP = 5
    HIP = 6
    FPGA = 7
    MAIA = 8
    XLA = 9
    Vulkan = 10
    Metal = 11
    XPU = 12
    MPS = 13
    Meta = 14
    HPU = 15
    VE = 16
    Lazy = 17
    IPU = 18
    MTIA = 19
    PrivateUse1 = 20


class Interval(NamedTuple):
    """A stretch of time, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


@dataclass(slots=True, eq=False, repr=False)
class FunctionEvent:
    """A stretch of a thread's time, or an operator; times in microseconds.

    Of an operator on the CPU, `cpu_time_total` has the time to record it, and its share of the programs that computed
    it, which is an estimate; on other devices the share is `device_time_total`. `computed_time_total` is the share in
    both cases. Without spans within, it is `self_cpu_time_total`. `flops` counts floating-point operations,
    `cpu_memory_usage` and `device_memory_usage` bytes of results, and `self_cpu_memory_usage` and
    `self_device_memory_usage` those without the events within.

    id            the position among the events of the profile
    uncomputed    1 of an operator that no program has computed
    is_async      whether others do it, while threads here go on or wait: a call, a collective or a message
    is_remote     whether it is of another worker; its times are not those of this process
    node_id       the number of the worker, for calls and what they have caused; otherwise -1
    cpu_parent    the event within which it is, in this thread: of an operator or a block, the nearest block, backward
                  pass or optimizer step, or captured function; `cpu_children` are those directly within it
    """

    key: str
    thread: int
    start: float
    cpu_time_total: float
    self_cpu_time_total: float
    count: int = 1
    device_time_total: float = 0.0
    computed_time_total: float = 0.0
    cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    self_device_memory_usage: int = 0
    flops: int = 0
    uncomputed: int = 0
    id: int = -1
    input_shapes: list[Any] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    modules: tuple[str, ...] = ()
    is_user_annotation: bool = False
    is_operator: bool = False
    is_top_level: bool = False
    is_async: bool = False
    is_remote: bool = False
    node_id: int = -1
    cpu_parent: FunctionEvent | None = None
    cpu_children: list[FunctionEvent] = field(default_factory=list)
    is_legacy = False  # the same for all, so no fields: kernels are no events, and their time is that of operators
    sequence_nr = -1
    overload_name = ""
    device_type = DeviceType.CPU
    device_index = scope = 0
    use_device: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        """The same as `key`."""
        return self.key

    @property
    def time_range(self) -> Interval:
        """When it began and ended."""
        return Interval(self.start, self.start + self.cpu_time_total)

    @property
    def cpu_time(self) -> float:
        """The time of one, on average."""
        return self.cpu_time_total / max(1, self.count)

    @property
    def device_time(self) -> float:
        """The time on the device of one, on average."""
        return self.device_time_total / max(1, self.count)

    @property
    def self_device_time_total(self) -> float:
        """The same as `device_time_total`: operators have none within."""
        return self.device_time_total

    cpu_time_str = _with_unit("cpu_time")
    cpu_time_total_str = _with_unit("cpu_time_total")
    self_cpu_time_total_str = _with_unit("self_cpu_time_total")
    device_time_str = _with_unit("device_time")
    device_time_total_str = _with_unit("device_time_total")
    trace_name = name
    self_device_time_total_str = device_time_total_str
    cuda_time = device_time
    self_cuda_time_total = self_device_time_total

    @property
    def self_cuda_memory_usage(self) -> int:
        """The same as `self_device_memory_usage`."""
        return self.self_device_memory_usage

    @property
    def cuda_time_total(self) -> float:
        """The same as `device_time_total`."""
        return self.device_time_total

    @property
    def kernels(self) -> list[Any]:
        """None: the time of kernels is that of operators."""
        return []

    def __repr__(self) -> str:
        times = f"cpu_time={self.cpu_time_total_str} self_cpu_time={self.self_cpu_time_total_str}"
        children = [child.id for child in self.cpu_children]
        return (
            f"<FunctionEvent id={self.id} name={self.key} node_id={self.node_id} start_us={self.start:.3f} {times} "
            f"device_time={self.device_time_total_str} cpu_children={children} input_shapes={self.input_shapes}>"
        )

    def add(self, other: FunctionEvent) -> FunctionEvent:
        """Add the times, counts, bytes and operations of another one to this one."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


_SUMS = (
    *("cpu_time_total", "self_cpu_time_total", "count", "device_time_total", "computed_time_total"),
    *("cpu_memory_usage", "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage"),
    *("flops", "uncomputed"),
)


class FunctionEventAvg(FunctionEvent):
    """The sum of all events of one name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} device_time={self.device_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage} device_memory_usage={self.device_memory_usage}>"
        )
