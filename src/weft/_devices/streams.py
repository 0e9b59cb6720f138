"""Streams and events. Each device has one stream: it computes in the order of the program, and nothing has to wait."""

from __future__ import annotations

from time import perf_counter

from weft._base.device import CPU, DeviceLike, canonical
from weft._base.device import device as Device
from weft._lazy.flushing import flush_pending
from weft._lazy.runtime import finish, has_started, jax_device
from weft.errors import ArgumentError, DeviceError


def synchronize(device: Device) -> None:
    """Compute what this thread has recorded, and wait until a device has finished everything."""
    flush_pending()
    if device is not CPU or has_started():
        finish(jax_device(device))


class Stream:
    """The stream of a device. All streams of a device are one, in which results follow the order of the program."""

    stream_id = 0

    def __init__(self, device: DeviceLike | None = None, priority: int = 0, **options: object) -> None:
        del priority, options
        self.device = CPU if device is None else canonical(device)

    @property
    def device_index(self) -> int:
        """The index of the device."""
        return self.device.index or 0

    def synchronize(self) -> None:
        """Wait until the device has finished everything."""
        synchronize(self.device)

    def query(self) -> bool:
        """True, after everything so far has been computed."""
        self.synchronize()
        return True

    def wait_event(self, event: Event) -> None:
        """Does nothing: whatever is called later is computed later."""

    def wait_stream(self, stream: Stream) -> None:
        """Does nothing: whatever is called later is computed later."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, by default a new one, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"<torch.Stream device={self.device}>"


class Event:
    """A point of the program. With `enable_timing`, it is known when the device has reached it.

    `record()` lets the device compute everything so far. It waits for that if times are wanted, since only the host has
    a clock here.
    """

    def __init__(
        self,
        device: DeviceLike | None = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        del blocking
        if interprocess:
            raise ArgumentError("Event(): events of other processes cannot be waited for; leave `interprocess` out")
        self.device = CPU if device is None else canonical(device)
        self.enable_timing = enable_timing
        self._time: float | None = None
        self._is_recorded = False

    def record(self, stream: Stream | None = None) -> None:
        """Let the event mean this point of the program."""
        self.device = self.device if stream is None else stream.device
        self._is_recorded = True
        if self.enable_timing:
            synchronize(self.device)
            self._time = perf_counter()
        else:
            flush_pending()

    def wait(self, stream: Stream | None = None) -> None:
        """Does nothing: whatever is called later is computed later."""

    def query(self) -> bool:
        """True, after everything so far has been computed."""
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Wait until the device has finished everything so far."""
        if self._is_recorded:
            synchronize(self.device)

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds between two recorded events with `enable_timing`; `RuntimeError` for others."""
        if not (self.enable_timing and end_event.enable_timing):
            raise DeviceError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise DeviceError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3


class StreamContext:
    """A block in which a stream is current. Nothing changes: a device has one stream. None is accepted."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass
