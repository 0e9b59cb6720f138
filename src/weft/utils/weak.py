"""Weak references to tensors, and dicts whose keys they are. Keys are compared by identity: `==` gives a tensor."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping
from typing import Any

from weft._base.types import AttributeValue
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError


class WeakIdRef(weakref.ref[Any]):
    """A weak reference that is equal to others of the same living object, and has the hash of its identity."""

    __slots__ = ("_id",)

    def __new__(cls, key: object, callback: Callable[[Any], object] | None = None) -> WeakIdRef:
        """A reference to `key`; `callback(reference)` is called when it is gone."""
        reference = super().__new__(cls, key, callback)
        reference._id = id(key)
        return reference

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        key = self()
        return self is other if key is None or not isinstance(other, weakref.ref) else key is other()

    def __ne__(self, other: object) -> bool:
        return not self == other  # otherwise it is that of `weakref.ref`, which compares the objects


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dict with weak keys that are compared by identity; an entry is gone when its key is."""

    def __init__(self, dict: Mapping[object, object] | None = None, ref_type: type[WeakIdRef] = WeakIdRef) -> None:
        self.data: _References = {}
        self.ref_type = ref_type
        data = self.data
        self._remove: Callable[[Any], Any] = lambda reference: data.pop(reference, None)
        self.update(dict or {})

    def __getitem__(self, key: object) -> AttributeValue:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: object, value: AttributeValue) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: object) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # there are no weak references to it
            return False

    def __iter__(self) -> Iterator[Hashable]:
        for reference in self.keyrefs():
            key = reference()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self.data)

    def keyrefs(self) -> list[WeakIdRef]:
        """The references to the keys, some of which may be gone when they are called."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """Another dict with these keys and values."""
        return WeakIdKeyDictionary(self, self.ref_type)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(key): value for key, value in self.items()} == {id(key): value for key, value in other.items()}

    __hash__ = None  # it is mutable

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"


_References = dict[WeakIdRef, Any]
WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor: calling it gives the tensor, or None when it is gone."""

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise PreconditionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()


class StorageWeakRef:
    """Says whether a storage is still there, and compares by the storage."""

    def __init__(self, storage: Any) -> None:
        self.cdata: int = storage._cdata
        self._ref = weakref.ref(storage)

    def expired(self) -> bool:
        """Whether nobody refers to the storage any more."""
        return self._ref() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, StorageWeakRef) and self.cdata == other.cdata)
