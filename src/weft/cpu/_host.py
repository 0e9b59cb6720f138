"""The host, as `torch.get_device_module("cpu")` gives it. All of its processors are one device with one stream."""

from __future__ import annotations

from weft._base.device import CPU, DeviceLike
from weft._devices.streams import Stream, StreamContext
from weft._devices.streams import synchronize as _synchronize


def is_available() -> bool:
    """True."""
    return True


is_initialized = is_available


def device_count() -> int:
    """One: all of the host's processors are one device."""
    return 1


def current_device() -> str:
    """Always "cpu"."""
    return "cpu"


def set_device(device: DeviceLike | None) -> None:
    """Does nothing: there is one device."""


def synchronize(device: DeviceLike | None = None) -> None:
    """Wait until everything so far has been computed."""
    _synchronize(CPU)


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The host's stream."""
    return Stream()


def stream(stream: Stream | None) -> StreamContext:
    """A block in which a stream is current, which changes nothing."""
    return StreamContext(stream)
