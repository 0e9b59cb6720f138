"""Types of values: shape, dtype and device, one object for each combination."""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

from weft._base.device import CPU, META, device
from weft._base.dtype import DType
from weft._base.size import size_of
from weft.ops._dims import Names


class Sharding(Protocol):
    """How the elements of a tensor are distributed over processes (`distributed/tensor/_sharding.py`).

    Or of which other tensors it consists (`_tensor/composed.py`): its `apply` is what operators on it do.
    """

    mesh: Any  # of the processes, compared by equality
    size: Any  # of the whole tensor, as users get it
    tensor_type: type

    def type_like(self, kind: type) -> type:
        """The class of sharded tensors that are also of a subclass of `Tensor`."""
        ...

    def apply(self, call: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Record a call on inputs of which one has this sharding; returns the values of its outputs."""
        ...

    def of_gradient(self, gradient: Any) -> Any:
        """The gradient of a value with this sharding, as a backward pass leaves it, as a sharded value."""
        ...

    def whole(self, value: Any, size: Any) -> Any:
        """A plain value of this size, which all processes have, as one that is whole on each process of the mesh."""
        ...

    def part(self, value: Any) -> Any:
        """This process's part of a value with this sharding, as a plain value."""
        ...

    def facts(self) -> dict[str, Any]:
        """What says of which tensor a process has a part, and which part, as JSON can hold it."""
        ...

    def created(self, size: Any, create: Any, row: str = "") -> Any:
        """A new value of the whole size, placed as values of this sharding are, or whole if it has another size.

        `create(size, first)` makes a part of this size, by the factory `row`; `first` is the position of its first
        element in the whole.
        """
        ...

    def seed(self, gradient: Any) -> Any:
        """The gradient of a value with this sharding, which all processes have, as a backward pass takes it."""
        ...

    def to_cotangent(self, gradient: Any, text: str) -> Any:
        """The reverse; `text` is how errors call the gradient."""
        ...

    def to_sharding(self, value: Any, sharding: Any) -> Any:
        """A value with another sharding; `RuntimeError` for a value or a sharding that is None."""
        ...


class Aval:
    """Interned type of a value: shape, dtype and device. Compare by identity.

    `weak` marks a Python number, which yields to the types of tensors; `inference` what was made in inference mode;
    `names` are those of the dims, or None where no dim has one; `sharding` says of which tensor a process has a part,
    or is None. They are part of the type so that the common call, which looks signatures up by types, needs not look at
    them. `shape` is that of the array in this process, and `size` that of the whole tensor.
    """

    __slots__ = ("device", "dtype", "inference", "names", "nbytes", "shape", "sharding", "size", "weak")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        weak: bool,
        device: device,
        inference: bool = False,
        names: Names | None = None,
        sharding: Sharding | None = None,
    ) -> None:
        self.inference = inference
        self.names = names
        self.sharding = sharding
        self.shape = shape
        self.size = size_of(shape) if sharding is None else sharding.size  # as users get it
        self.dtype = dtype
        self.weak = weak
        self.device = _devices.setdefault(device, device)
        self.nbytes = prod(shape) * dtype.itemsize

    @property
    def mesh(self) -> Any:
        """The mesh of processes over which the tensor is distributed, or None."""
        return None if self.sharding is None else self.sharding.mesh

    def __repr__(self) -> str:
        names = "" if self.names is None else f" {list(self.names)}"
        sharding = "" if self.sharding is None else f" of {self.sharding!r}"
        return f"{self.dtype.name}{list(self.shape)}{names}{sharding}"


# no cell: a cache, keyed by all that its entries depend on
_devices = {CPU: CPU, META: META}
"""The one object for each device that types have, so that devices of values are compared by identity."""

# no cell: a cache, keyed by all that its entries depend on
_avals: dict[tuple[object, ...], Aval] = {}


def aval_of(shape: tuple[int, ...], dtype: DType, *, weak: bool = False, device: device = CPU) -> Aval:
    """The one `Aval` with these properties."""
    key = (shape, dtype, weak, device)
    aval = _avals.get(key)
    return aval if aval is not None else _avals.setdefault(key, Aval(*key))


def marked(aval: Aval, inference: bool) -> Aval:
    """The type for values that were made in inference mode, or not."""
    return aval if aval.inference is inference else _with(aval, inference, aval.names, aval.sharding)


def named(aval: Aval, names: Names | None) -> Aval:
    """The type with other names of the dims; `names` that are all None are none."""
    if names is not None and not any(names):
        names = None
    return aval if aval.names == names else _with(aval, aval.inference, names, aval.sharding)


def sharded(aval: Aval, sharding: Sharding | None) -> Aval:
    """The type of a part of another tensor; None is for a tensor that is whole."""
    return aval if aval.sharding is sharding else _with(aval, aval.inference, aval.names, sharding)


def _with(aval: Aval, inference: bool, names: Names | None, sharding: Sharding | None) -> Aval:
    if not inference and names is None and sharding is None:
        return aval_of(aval.shape, aval.dtype, weak=aval.weak, device=aval.device)
    key = (aval.shape, aval.dtype, aval.weak, aval.device, inference, names, sharding)
    result = _avals.get(key)
    return result if result is not None else _avals.setdefault(key, Aval(*key))
