"""What `state.py` gives to the other modules of this package, written by hand."""

import weakref
from typing import Any, Self

import numpy as np

from weft._base.dtype import DType
from weft._lazy.role import Leaf
from weft._lazy.value import Value
from weft._tensor.base import Alias
from weft._tensor.derived import Derived
from weft._tensor.memory import Memory
from weft._tensor.storage import UntypedStorage
from weft.ops._kinds import Scalar

class Facts:
    alias: Alias | None
    views: list[weakref.ref[TensorBase]] | None
    writes: int
    overwritten: int
    address: Memory | None
    storage: weakref.ref[UntypedStorage] | None

NO_FACTS: Facts

def own_facts(tensor: TensorBase) -> Facts: ...

class TensorBase(Derived):
    _value: Value | None
    _facts: Facts
    _alias: Alias | None
    _views: list[weakref.ref[TensorBase]] | None
    _role: Leaf | None
    _writes: int
    _overwritten: int
    _address: Memory | None
    _storage: weakref.ref[UntypedStorage] | None
    _resized: bool

    def _read(self) -> Value: ...
    @property
    def dtype(self) -> DType: ...
    def _refreshed(self) -> Value: ...
    def _read_concrete(self, *, decides: bool = False) -> Value: ...
    def _array(self) -> Any: ...  # a jax array, of whose methods jax's stub lacks some
    def _host(self, *, decides: bool = False) -> np.ndarray: ...
    def _require_grad(self, requires_grad: object, refusal: str = "") -> Self: ...
    def _set_requires_grad(self, requires_grad: object, refusal: str) -> Self: ...

def item(tensor: TensorBase, decides: bool = False, /) -> Scalar: ...
