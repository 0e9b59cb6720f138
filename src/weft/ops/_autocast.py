"""Autocast classes: what happens to floating inputs of a row in regions of `weft.autocast`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from weft._base.dtype import DType


class Cast(Enum):
    """What autocast does to floating inputs: a row's class."""

    NONE = "nothing"
    LOWER = "cast to the lower precision type"
    FLOAT32 = "cast to float32"
    PROMOTE = "cast to the widest floating type among the inputs"


@dataclass(frozen=True, slots=True)
class Banned:
    """The autocast class of what is refused, with what to do instead."""

    advice: str


CastClass = Cast | DType | Banned
"""An autocast class. A `DType` is the type to which floating inputs are cast."""


@dataclass(frozen=True, slots=True)
class PerDevice:
    """A row's autocast classes where they differ: on the CPU, and on accelerators, which all have CUDA's."""

    cpu: CastClass = Cast.NONE
    accelerator: CastClass = Cast.NONE


def class_on(cast: CastClass | PerDevice, device_type: str) -> CastClass:
    """The autocast class on devices of a type."""
    if not isinstance(cast, PerDevice):
        return cast
    return cast.cpu if device_type == "cpu" else cast.accelerator


CPU_FLOAT32 = PerDevice(cpu=Cast.FLOAT32)
ACCELERATOR_FLOAT32 = PerDevice(accelerator=Cast.FLOAT32)
ACCELERATOR_LOWER = PerDevice(accelerator=Cast.LOWER)
ACCELERATOR_PROMOTE = PerDevice(accelerator=Cast.PROMOTE)
