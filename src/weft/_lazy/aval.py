"""Types of values: shape, dtype and device, one object for each combination."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any

from weft._base.device import CPU, META, device
from weft._base.dtype import DType
from weft._base.size import Size, size_of
from weft._base.types import Arg
from weft._lazy.native import native
from weft._lazy.owner import Distributed, Owner
from weft.ops._dims import Names

AnyOwner = Owner[Any, Any, Any]
"""An owner as types hold it. The classes of what it takes and gives are defined above this module."""


class Aval:
    """Interned type of a value: shape, dtype and device. Compare by identity.

    `weak` marks a Python number, which yields to the types of tensors; `inference` what was made in inference mode;
    `names` are those of the dims, or None where no dim has one; `owner` takes over calls on such values, or is
    None; `external` marks elements in memory that others may write to (`external.py`). They are part of the type so
    that the common call, which looks signatures up by types, needs not look at them.
    `shape` is that of the array in this process, and `size` that of the tensor as users get it.
    """

    __slots__ = ("device", "dtype", "external", "inference", "names", "nbytes", "owner", "shape", "size", "weak")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        weak: bool,
        device: device,
        inference: bool = False,
        names: Names | None = None,
        owner: AnyOwner | None = None,
        external: bool = False,
    ) -> None:
        self.external = external
        self.inference = inference
        self.names = names
        self.owner = owner
        self.shape = shape
        self.size = size_of(shape) if owner is None else owner.whole_size(shape)
        self.dtype = dtype
        self.weak = weak
        self.device = _devices.setdefault(device, device)
        self.nbytes = prod(shape) * dtype.itemsize

    @property
    def distributed(self) -> Distributed[Arg] | None:
        """The owner, if each process has a part of the tensor."""
        return None if self.owner is None else self.owner.distributed

    @property
    def mesh(self) -> Hashable:
        """The processes that have parts of the tensor, compared by equality; None for a tensor that is no part."""
        distributed = self.distributed
        return None if distributed is None else distributed.mesh

    def __repr__(self) -> str:
        names = "" if self.names is None else f" {list(self.names)}"
        owner = "" if self.owner is None else f" of {self.owner.describe()}"
        return f"{self.dtype.name}{list(self.shape)}{names}{owner}"


if native is not None:
    native.bind(Aval=Aval, Size=Size)

# no cell: a cache, keyed by all that its entries depend on
_devices = {CPU: CPU, META: META}
"""The one object for each device that types have, so that devices of values are compared by identity."""

# no cell: a cache, keyed by all that its entries depend on
_avals: dict[tuple[object, ...], Aval] = {}
if native is not None:
    native.bind(avals=_avals)


def aval_of(shape: tuple[int, ...], dtype: DType, *, weak: bool = False, device: device = CPU) -> Aval:
    """The one `Aval` with these properties."""
    key = (shape, dtype, weak, device)
    aval = _avals.get(key)
    return aval if aval is not None else _avals.setdefault(key, Aval(*key))


if native is not None:
    native.bind(aval_of=aval_of)


def marked(aval: Aval, inference: bool) -> Aval:
    """The type for values that were made in inference mode, or not."""
    return aval if aval.inference is inference else _with(aval, inference, aval.names, aval.owner, aval.external)


def named(aval: Aval, names: Names | None) -> Aval:
    """The type with other names of the dims; `names` that are all None are none."""
    if names is not None and not any(names):
        names = None
    return aval if aval.names == names else _with(aval, aval.inference, names, aval.owner, aval.external)


def owned(aval: Aval, owner: AnyOwner | None) -> Aval:
    """The type with another owner, or with none."""
    return aval if aval.owner is owner else _with(aval, aval.inference, aval.names, owner, aval.external)


def in_memory(aval: Aval, external: bool) -> Aval:
    """The type for elements in memory that others may write to, or not."""
    return aval if aval.external is external else _with(aval, aval.inference, aval.names, aval.owner, external)


def plain_type(aval: Aval) -> Aval:
    """The type of the array alone, without names of its dims, without an owner, and in memory of Weft's own."""
    return in_memory(named(owned(aval, None), None), False)


def _with(aval: Aval, inference: bool, names: Names | None, owner: AnyOwner | None, external: bool) -> Aval:
    if not inference and names is None and owner is None and not external:
        return aval_of(aval.shape, aval.dtype, weak=aval.weak, device=aval.device)
    key = (aval.shape, aval.dtype, aval.weak, aval.device, inference, names, owner, external)
    result = _avals.get(key)
    return result if result is not None else _avals.setdefault(key, Aval(*key))
