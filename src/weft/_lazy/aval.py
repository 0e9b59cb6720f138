"""Types of values: shape, dtype and device, one object for each combination."""

from __future__ import annotations

from math import prod
from typing import Any

from weft._base.device import CPU, device
from weft._base.dtype import DType
from weft._base.size import size_of


class Aval:
    """Interned type of a value: shape, dtype and device. Compare by identity.

    `weak` marks a Python number, which yields to the types of tensors; `inference` what was made in inference mode.
    That is part of the type so that the common call, which looks signatures up by types, leaves it to `record`.
    """

    __slots__ = ("device", "dtype", "inference", "nbytes", "shape", "size", "weak")

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, weak: bool, device: device, inference: bool = False
    ) -> None:
        self.inference = inference
        self.shape = shape
        self.size = size_of(shape)  # as users get it
        self.dtype = dtype
        self.weak = weak
        self.device = device
        self.nbytes = prod(shape) * dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


_avals: dict[Any, Aval] = {}


def aval_of(shape: tuple[int, ...], dtype: DType, *, weak: bool = False, device: device = CPU) -> Aval:
    """The one `Aval` with these properties."""
    key = (shape, dtype, weak, device)
    aval = _avals.get(key)
    return aval if aval is not None else _avals.setdefault(key, Aval(*key))


def marked(aval: Aval, inference: bool) -> Aval:
    """The type for values that were made in inference mode, or not."""
    if aval.inference is inference:
        return aval
    key = (aval.shape, aval.dtype, aval.weak, aval.device, *((True,) if inference else ()))
    result = _avals.get(key)
    return result if result is not None else _avals.setdefault(key, Aval(*key))
