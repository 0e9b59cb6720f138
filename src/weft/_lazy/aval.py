"""Types of values: shape, dtype and device, one object for each combination."""

from __future__ import annotations

from math import prod

from weft._base.device import CPU, device
from weft._base.dtype import DType
from weft._base.size import size_of
from weft.ops._dims import Names


class Aval:
    """Interned type of a value: shape, dtype and device. Compare by identity.

    `weak` marks a Python number, which yields to the types of tensors; `inference` what was made in inference mode;
    `names` are those of the dims, or None where no dim has one. They are part of the type so that the common call,
    which looks signatures up by types, needs not look at them.
    """

    __slots__ = ("device", "dtype", "inference", "names", "nbytes", "shape", "size", "weak")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        weak: bool,
        device: device,
        inference: bool = False,
        names: Names | None = None,
    ) -> None:
        self.inference = inference
        self.names = names
        self.shape = shape
        self.size = size_of(shape)  # as users get it
        self.dtype = dtype
        self.weak = weak
        self.device = _devices.setdefault(device, device)
        self.nbytes = prod(shape) * dtype.itemsize

    def __repr__(self) -> str:
        names = "" if self.names is None else f" {list(self.names)}"
        return f"{self.dtype.name}{list(self.shape)}{names}"


_devices = {CPU: CPU}
"""The one object for each device that types have, so that devices of values are compared by identity."""

_avals: dict[tuple[object, ...], Aval] = {}


def aval_of(shape: tuple[int, ...], dtype: DType, *, weak: bool = False, device: device = CPU) -> Aval:
    """The one `Aval` with these properties."""
    key = (shape, dtype, weak, device)
    aval = _avals.get(key)
    return aval if aval is not None else _avals.setdefault(key, Aval(*key))


def marked(aval: Aval, inference: bool) -> Aval:
    """The type for values that were made in inference mode, or not."""
    return aval if aval.inference is inference else _with(aval, inference, aval.names)


def named(aval: Aval, names: Names | None) -> Aval:
    """The type with other names of the dims; `names` that are all None are none."""
    if names is not None and not any(names):
        names = None
    return aval if aval.names == names else _with(aval, aval.inference, names)


def _with(aval: Aval, inference: bool, names: Names | None) -> Aval:
    if not inference and names is None:
        return aval_of(aval.shape, aval.dtype, weak=aval.weak, device=aval.device)
    key = (aval.shape, aval.dtype, aval.weak, aval.device, inference, names)
    result = _avals.get(key)
    return result if result is not None else _avals.setdefault(key, Aval(*key))
