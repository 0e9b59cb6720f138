"""Names of devices. `_lazy/runtime.py` finds out which devices exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from weft._base.cell import LocalCell
from weft._base.of_pytorch import way_from_pytorch
from weft.errors import ArgumentError, DeviceError

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"([a-z_]+)(?::(\d+))?")
TYPES = ("cpu", "xla", "cuda", "gpu", "tpu", "mps", "xpu", "mtia", "meta")


class device:
    """A device by type and index: `device("cpu")`, `device("xla", 1)`, `device("cuda:0")`.

    In a `with` block, and in a function that it decorates, new tensors are made there by default.
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

    def __enter__(self) -> device:
        _defaults.set((*_defaults.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _defaults.set(_defaults.get()[:-1])

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def on_device(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return on_device

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

    def __reduce__(self) -> tuple[type[device], tuple[str]]:
        return device, (str(self),)


def _require_name(type: object, index: object) -> None:
    if not isinstance(type, str):
        raise ArgumentError(f"device(): a string, an index or a device is needed, got {type!r}{way_from_pytorch(type)}")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise ArgumentError(f"device(): argument 'index' must be int, not {index.__class__.__name__}")


DeviceLike = str | device | int
"""What stands for a device where one is asked for."""

CPU = device("cpu")
META = device("meta")
"""Tensors there have types and no elements: operators on them are recorded, and never computed."""

_defaults = LocalCell[tuple[device | None, ...]]("the default device", (None,))
"""What `set_default_device` has set, and the devices of the `with` blocks from the outermost to the innermost."""


def default_device() -> device | None:
    """Device of new tensors, or None for the first CPU."""
    return _defaults.get()[-1]


def set_default_device(device: DeviceLike | None) -> None:
    """Set the device of new tensors in this thread, outside of `with device(...)`; None means the first CPU."""
    _defaults.set((None if device is None else _as_device(device), *_defaults.get()[1:]))


_as_device = device


_current = {kind: LocalCell(f"the current {kind} device", 0) for kind in TYPES}


def current_index(kind: str) -> int:
    """The index of the device meant by a type without an index."""
    return _current[kind].get()


def set_current_index(kind: str, index: int) -> None:
    """Set the index of the device meant by a type without an index, in this thread."""
    _current[kind].set(index)


def canonical(name: DeviceLike) -> device:
    """The device as tensors have it: `cpu` without an index is the first CPU, others but `meta` get an index."""
    target = name if isinstance(name, device) else device(name)
    if target.type == "cpu" and not target.index:
        return CPU
    if target.type == "meta":
        return META
    return target if target.index is not None else device(target.type, current_index(target.type))
