"""Names of devices. `_lazy/runtime.py` finds out which devices exist."""

from __future__ import annotations

import re
import threading

from weft.errors import ArgumentError, DeviceError

_NAME = re.compile(r"([a-z_]+)(?::(\d+))?")
TYPES = ("cpu", "xla", "cuda", "gpu", "tpu", "mps", "xpu", "mtia", "meta")


class Default:
    """The process-wide device of new tensors, None for the first CPU, and those that blocks go back to."""

    current: device | None = None
    outer: list[device | None] = []  # noqa: RUF012  shared on purpose


class device:
    """A device by type and index: `device("cpu")`, `device("xla", 1)`, `device("cuda:0")`.

    In a block `with device(...):` it is the device of new tensors, in all threads.
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __init__(self, type: str | device | int, index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index
        elif isinstance(type, int):
            type, index = "xla", type
        _require_name(type, index)
        if index is not None and index < 0:
            raise DeviceError(f"Device index must not be negative, got {index}")
        if not type:
            raise DeviceError("Device string must not be empty; write a type and maybe an index, such as 'xla:0'")
        match = _NAME.fullmatch(type)
        if match is None or (match[2] is not None and index is not None):
            raise DeviceError(f"Invalid device string: {type!r}; write a type and maybe an index, such as 'xla:0'")
        if match[1] not in TYPES:
            raise DeviceError(f"Expected one of {', '.join(TYPES)} device type at start of device string: {match[1]}")
        object.__setattr__(self, "type", match[1])
        object.__setattr__(self, "index", int(match[2]) if match[2] is not None else index)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"device is immutable; make another one to change {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __enter__(self) -> device:
        Default.outer.append(Default.current)
        Default.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Default.current = Default.outer.pop()

    def __reduce__(self) -> tuple[type[device], tuple[str]]:
        return device, (str(self),)


def _require_name(type: object, index: object) -> None:
    if not isinstance(type, str):
        raise ArgumentError(f"device(): a string, an index or a device is needed, got {type!r}")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise ArgumentError(f"device(): argument 'index' must be int, not {index.__class__.__name__}")


DeviceLike = str | device | int
"""What stands for a device where one is asked for."""

CPU = device("cpu")


class _Current(threading.local):
    cuda = 0
    xla = 0


current = _Current()
"""For each thread, the index of the device meant by `cuda` and by `xla` without an index."""


def canonical(name: DeviceLike) -> device:
    """The device as tensors have it: `cpu` without an index is the first CPU, other devices get an index."""
    target = name if isinstance(name, device) else device(name)
    if target.type == "cpu" and not target.index:
        return CPU
    return target if target.index is not None else device(target.type, getattr(current, target.type, 0))
