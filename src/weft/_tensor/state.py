"""What modules of this package reach inside of a tensor: its value, and facts that most tensors do not have.

The names have an underscore, because all others on a tensor are PyTorch's, or its user's. Type checkers read the stub
beside this file, and take what a stub declares for public.
"""

from __future__ import annotations

import weakref
from operator import attrgetter
from typing import Self

import numpy as np

from weft._base.dtype import DType
from weft._base.state import ambient
from weft._base.types import Arg
from weft._lazy import checks, reading
from weft._lazy.native import native
from weft._lazy.role import Leaf
from weft._lazy.value import Value
from weft._tensor.derived import Derived
from weft._tensor.memory import Memory
from weft.errors import ConversionError
from weft.ops._kinds import Array, Scalar


class Facts:
    """What is to be known of a tensor besides its value: of most tensors nothing, so these share one object.

    alias        the `Alias`: its relation to the tensor of which it is a view
    views        its views
    role         what a leaf collects its gradient in
    writes       of a tensor that owns its storage: how often that was written
    overwritten  of such a tensor: the number of its last value that was in memory before it was written
    address      of a tensor that owns its storage: where it can be read, once somebody has asked
    storage      of a tensor that owns its storage: the object that users have for that
    resized      whether this is all of a storage that was resized, in one dim; no user holds it
    """

    __slots__ = ("address", "alias", "overwritten", "resized", "role", "storage", "views", "writes")

    def __init__(self) -> None:
        self.alias: object = None
        self.views: list[weakref.ref[TensorBase]] | None = None
        self.role: Leaf | None = None
        self.writes = self.overwritten = 0
        self.address: Memory | None = None
        self.storage: weakref.ref[object] | None = None
        self.resized = False


NO_FACTS = Facts()
"""Those of a new tensor."""


def own_facts(tensor: Arg) -> Facts:
    """The facts of a tensor, as an object of its own."""
    facts = tensor._facts
    if facts is NO_FACTS:
        facts = tensor._facts = Facts()
    return facts


def _fact(name: str) -> property:
    """The attribute of a tensor that is one of its facts."""

    def write(tensor: Arg, value: Arg) -> None:
        setattr(own_facts(tensor), name, value)

    return property(attrgetter(f"_facts.{name}"), write)


class TensorBase(Derived):
    """What views, writes and captures need of a tensor: its state.

    It is in slots, because its `__dict__` is its user's: programs copy, pickle and pass on what is in
    it.
    """

    __slots__ = ("_facts", "_value")
    _value: Value | None  # None in a view whose base has been written since
    _facts: Facts
    _alias = _fact("alias")
    _views = _fact("views")
    _role = _fact("role")
    _writes = _fact("writes")
    _overwritten = _fact("overwritten")
    _address = _fact("address")
    _storage = _fact("storage")
    _resized = _fact("resized")

    def _read(self) -> Value:
        """The current value."""
        value = self._value
        return value if value is not None else self._refreshed()

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._read().aval.dtype

    def _refreshed(self) -> Value:
        """The value of a view whose base has been written since it was last read."""
        raise NotImplementedError

    def _read_concrete(self, *, decides: bool = False) -> Value:
        value = self._read()
        capture = ambient().capture
        if capture is not None:
            capture.needs_elements(value, decides=decides)
            value = self._read()  # the capture may have replaced it
        return value

    def _array(self) -> Array:
        """The jax array, computed now if necessary."""
        return reading.array_of(self._read_concrete())

    def _host(self, *, decides: bool = False) -> np.ndarray:
        """The elements as a read-only NumPy array, after all index checks so far; `decides` is for control flow."""
        return host(self, decides)

    def _require_grad(self, requires_grad: object, refusal: str = "") -> Self:
        """`requires_grad_`, with the error `refusal` for element types without gradients."""
        return self._set_requires_grad(requires_grad, refusal)

    def _set_requires_grad(self, requires_grad: object, refusal: str) -> Self:
        raise NotImplementedError


def _host_of(tensor: Arg, decides: bool = False) -> np.ndarray:
    array = reading.host_array(tensor._read_concrete(decides=decides))
    array.flags.writeable = False
    checks.report(ambient().pending)
    return array


def _item_of(tensor: Arg, decides: bool = False) -> Scalar:
    """The only element of a tensor; `decides` is for control flow."""
    if tensor.numel() != 1:
        raise ConversionError(f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar")
    return tensor._host(decides=decides).reshape(()).item()


host, item = _host_of, _item_of
"""`_host_of` and `_item_of`, or their twins in the extension."""
if native is not None:
    native.bind(host=_host_of, item=_item_of)
    host, item = native.host, native.item
