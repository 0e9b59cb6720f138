"""A type of devices: how many there are, which one is current, and how they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from weft._base.device import DeviceLike, current_index, set_current_index
from weft._base.device import device as Device
from weft._devices.figures import CURRENT, MOST_RESERVED, PEAK, RESERVED, figures_of, free_and_total, reset_peak
from weft._devices.streams import Stream, StreamContext
from weft._devices.streams import synchronize as finish_all
from weft._lazy.runtime import jax_device, memory_of
from weft._tensor.generator import Generator, default_generator
from weft._tensor.tensor import Tensor
from weft.errors import DeviceError, SettingError, ValueRangeError
from weft.random import get_rng_state, manual_seed, set_rng_state


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is: the vendor's name, and its memory in bytes. jax does not tell the rest."""

    name: str
    total_memory: int
    major: int
    minor: int


class DeviceType:
    """The functions that PyTorch has for a type of devices. Arguments that name a device may also be its index.

    `RuntimeError` where a device is needed and there is none (for "cuda" it is an `AssertionError`, too), and
    `ValueError` for a device of another type.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    # --- which there are ---

    def device_count(self) -> int:
        """The number of devices of this type that jax can use."""
        count = 0
        while True:
            try:
                jax_device(Device(self.kind, count))
            except DeviceError:
                return count
            count += 1

    def is_available(self) -> bool:
        """Whether there is a device of this type that jax can use."""
        return self.device_count() > 0

    is_initialized = is_available

    def init(self) -> None:
        """Start using the devices, which happens by itself."""
        self.held(0)

    def set_device(self, device: DeviceLike) -> None:
        """Let the type alone, such as "cuda", mean this device in this thread; a negative index has no effect."""
        index = self.index_of(device)
        if index >= 0:
            self.held(index)
            set_current_index(self.kind, index)

    def current_device(self) -> int:
        """The index of the device that the type alone means in this thread."""
        self.held(self.index)
        return self.index

    @property
    def index(self) -> int:
        """The index of the current device, whether there is one or not."""
        return current_index(self.kind)

    def device(self, device: DeviceLike) -> DeviceContext:
        """A context in which the type alone means this device; a negative index has no effect."""
        return DeviceContext(self, self.index_of(device))

    def device_of(self, tensor: Tensor) -> DeviceContext:
        """A context in which the type alone means the device of a tensor, if it is of this type."""
        return DeviceContext(self, (tensor.device.index or 0) if tensor.device.type == self.kind else -1)

    # --- what they do ---

    def synchronize(self, device: DeviceLike | None = None) -> None:
        """Wait until the device has finished all its computations."""
        index = self.index_of(device, optional=True)
        self.held(index)
        finish_all(Device(self.kind, index))

    def current_stream(self, device: DeviceLike | None = None) -> Stream:
        """The one stream of a device."""
        index = self.index_of(device, optional=True)
        self.held(index)
        return Stream(Device(self.kind, index))

    default_stream = current_stream

    def set_stream(self, stream: Stream | None) -> None:
        """Let the stream's device be the current one."""
        if stream is not None:
            self.set_device(stream.device)

    def stream(self, stream: Stream | None) -> StreamContext:
        """A block in which a stream is current, which changes nothing."""
        return StreamContext(stream)

    # --- how they are ---

    def get_device_name(self, device: DeviceLike | None = None) -> str:
        """The vendor's name of the device."""
        return self.held(self.index_of(device, optional=True)).device_kind

    def get_device_capability(self, device: DeviceLike | None = None) -> tuple[int, int]:
        """The version (major, minor) of what the device can compute; (0, 0) where jax does not tell it."""
        version = str(getattr(self.held(self.index_of(device, optional=True)), "compute_capability", "0.0"))
        major, _, minor = version.partition(".")
        return int(major), int(minor or 0)

    def get_device_properties(self, device: DeviceLike | None = None) -> DeviceProperties:
        """Name, memory and version of the device."""
        held = self.held(self.index_of(device, optional=True))
        return DeviceProperties(held.device_kind, memory_of(held)[1], *self.get_device_capability(device))

    def can_device_access_peer(self, device: DeviceLike, peer_device: DeviceLike) -> bool:
        """Whether devices copy to each other without the host; False, since jax does not tell it."""
        for one in (device, peer_device):
            self.held(self.index_of(one))
        return False

    @property
    def default_generators(self) -> tuple[Generator, ...]:
        """The default generator, once for each device."""
        return (default_generator,) * self.device_count()

    # --- memory ---

    def empty_cache(self) -> None:
        """Does nothing: XLA's allocator keeps memory for later results."""

    def memory_stats(self, device: DeviceLike | None = None) -> dict[str, int]:
        """XLA's figures of a device's memory, in bytes, with PyTorch's names for them; empty without a device."""
        return figures_of(self._target(device)) if self.is_available() else {}

    def memory_allocated(self, device: DeviceLike | None = None) -> int:
        """Bytes of tensors on the device; 0 without one."""
        return self.memory_stats(device).get(CURRENT, 0)

    def max_memory_allocated(self, device: DeviceLike | None = None) -> int:
        """The largest number of bytes allocated at one time; 0 without a device."""
        return self.memory_stats(device).get(PEAK, 0)

    def memory_reserved(self, device: DeviceLike | None = None) -> int:
        """Bytes that XLA's allocator has taken from the device; 0 without one."""
        return self.memory_stats(device).get(RESERVED, 0)

    def max_memory_reserved(self, device: DeviceLike | None = None) -> int:
        """The largest number of bytes that XLA's allocator has had at one time; 0 without a device."""
        return self.memory_stats(device).get(MOST_RESERVED, 0)

    def mem_get_info(self, device: DeviceLike | None = None) -> tuple[int, int]:
        """The bytes that are free on the device, and those that it has."""
        return free_and_total(self._target(device))

    def reset_peak_memory_stats(self, device: DeviceLike | None = None) -> None:
        """Let `max_memory_allocated` count from now on: the peak that is larger than XLA's so far, or that of readings.

        XLA's own peak cannot be reset. While it does not grow, memory is read after each program.
        """
        if self.is_available():
            reset_peak(self._target(device))

    reset_accumulated_memory_stats = reset_peak_memory_stats

    def _target(self, device: DeviceLike | None) -> Device:
        index = self.index_of(device, optional=True)
        self.held(index)
        return Device(self.kind, index)

    def get_per_process_memory_fraction(self, device: DeviceLike | None = None) -> float:
        """The part of the memory that XLA's allocator may take, by `XLA_PYTHON_CLIENT_MEM_FRACTION`."""
        self.held(self.index_of(device, optional=True))
        return float(os.environ.get(_FRACTION, "0.75"))

    def set_per_process_memory_fraction(self, fraction: float, device: DeviceLike | None = None) -> None:
        """Refused with `RuntimeError`: XLA decides it when it starts."""
        self.index_of(device, optional=True)
        raise SettingError(f"XLA decides on its memory when it starts: set {_FRACTION}={fraction} in the environment")

    # --- random numbers, which are the same on every device ---

    def manual_seed(self, seed: int) -> None:
        """Restart the default generator; its draws are the same on every device."""
        manual_seed(seed)

    manual_seed_all = manual_seed

    def seed(self) -> None:
        """Restart the default generator from a seed of the operating system."""
        default_generator.seed()

    seed_all = seed

    def initial_seed(self) -> int:
        """The seed from which the default generator was started."""
        return default_generator.initial_seed()

    def get_rng_state(self, device: DeviceLike | None = None) -> Tensor:
        """The state of the default generator."""
        return get_rng_state()

    def set_rng_state(self, new_state: Tensor, device: DeviceLike | None = None) -> None:
        """Set the state of the default generator."""
        set_rng_state(new_state)

    def get_rng_state_all(self) -> list[Tensor]:
        """The state of the default generator, once for each device."""
        return [get_rng_state() for _ in range(self.device_count())]

    def set_rng_state_all(self, new_states: Iterable[Tensor]) -> None:
        """Set the state of the default generator to the first of the states, if there is one."""
        for state in list(new_states)[:1]:
            set_rng_state(state)

    # --- how devices are named ---

    def held(self, index: int) -> Any:
        """The jax device; `RuntimeError` if there is none."""
        return jax_device(Device(self.kind, index))

    def index_of(self, device: DeviceLike | None, *, optional: bool = False) -> int:
        """The index of a device, given as a device, a name or an index; None means the current one, if `optional`."""
        if optional and device is None:
            return self.index
        if isinstance(device, int):
            return device
        if not isinstance(device, (str, Device)):
            raise ValueRangeError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        target = Device(device)
        if target.type != self.kind:
            raise ValueRangeError(f"Expected a {self.kind} device, but got: {target}")
        if target.index is None and not optional:
            raise ValueRangeError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        return self.index if target.index is None else target.index


_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_INTERNAL = ("index", "index_of", "held")


class DeviceContext:
    """A block in which a type of devices means the device with this index; a negative one changes nothing."""

    def __init__(self, devices: DeviceType, index: int) -> None:
        self._devices = devices
        self.idx = index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = self._devices.index
        self._devices.set_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx >= 0:
            self._devices.set_device(self.prev_idx)


def module_of(devices: DeviceType, package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module whose functions are those of a type of devices."""
    public = [name for name in vars(DeviceType) if not name.startswith("_") and name not in _INTERNAL]

    def get(name: str) -> Any:
        if name not in public:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; there are {', '.join(public)}")
        return getattr(devices, name)

    return get, lambda: public
