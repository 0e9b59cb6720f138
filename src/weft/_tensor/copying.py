"""Copies of tensors for `copy.deepcopy` and `pickle`."""

from __future__ import annotations

import copyreg
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._base.device import META
from weft._base.dtype import DType
from weft._base.state import ambient, using
from weft._base.types import Arg, Args, SavedState
from weft._dispatch import apply
from weft._lazy.aval import AnyOwner, aval_of, marked
from weft._lazy.external import taken_in
from weft._lazy.owner import Stored
from weft._lazy.reading import host_array
from weft._lazy.value import NO_DATA, Value
from weft._tensor.alias import owner_of, path_of
from weft._tensor.base import TensorBase, new_handle, value_of
from weft._tensor.convert import from_host
from weft._tensor.dim_names import checked_names, set_names
from weft._tensor.sharing import share
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import make_view, own
from weft.errors import CheckpointError, GradientError


def handle_on(kind: type[Tensor], source: Tensor, requires_grad: bool) -> Tensor:
    """A new leaf of a tensor class, with the elements and the owner of `source`."""
    owner = source._read().aval.owner
    if owner is not None:
        kind = owner.type_like(kind)
    handle: Tensor = new_handle(kind)
    handle._value = own(taken_in(source._read()))
    return handle.requires_grad_(requires_grad)


def extras_of(tensor: Tensor) -> SavedState:
    """The attributes that users and subclasses have set on a tensor, and its `names` if dims have some."""
    extras = dict(tensor.__dict__)
    extras |= {name: getattr(tensor, name) for name in slots_of(type(tensor)) if hasattr(tensor, name)}
    names = tensor._read().aval.names
    return extras if names is None else {**extras, "names": names}


_SLOTS: tuple[str, ...] = vars(TensorBase)["__slots__"]


def slots_of(kind: type[Tensor]) -> list[str]:
    """The names of the slots that subclasses of `Tensor` have."""
    names: list[str] = getattr(copyreg, "_slotnames")(kind)  # noqa: B009  which keeps them in the class
    return [name for name in names if name not in _SLOTS]


def set_extras(tensor: Tensor, extras: SavedState) -> None:
    """Give a tensor what `extras_of` has found on another one."""
    attributes = dict(extras)
    names = attributes.pop("names", None)
    for name in slots_of(type(tensor)):
        if name in attributes:
            setattr(tensor, name, attributes.pop(name))
    tensor.__dict__.update(attributes)
    if names is not None:
        set_names(tensor, checked_names(names, tensor.ndim))


def deepcopy(self: Tensor, memo: dict[int, Arg]) -> Tensor:
    """A leaf with the same elements, gradient and attributes; `RuntimeError` for a result of operators.

    Copies share elements if the originals do.
    """
    earlier = memo.get(id(self))
    if earlier is not None:
        return earlier
    if not self.is_leaf:
        raise GradientError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            "Deep-copy `tensor.detach()` instead."
        )
    result = _copy(self, memo)
    result._read().aval = marked(result._read().aval, ambient().inference)
    result.requires_grad_(self.requires_grad)
    memo[id(self)] = result
    set_extras(result, extras_of(self))
    if self.grad is not None:
        result.grad = deepcopy(self.grad, memo)
    return result


def _copy(self: Tensor, memo: dict[Arg, Arg]) -> Tensor:
    """A tensor at the same place of a copy of the storage; all aliases share that copy."""
    owner = owner_of(self)
    key = (_STORAGE, id(owner))
    if key not in memo:
        memo[key] = handle_on(Tensor, owner, False)
    result: Tensor = new_handle(type(self))
    share(result, _at_place_of(self, memo[key]))
    return result


def _at_place_of(tensor: Tensor, storage: Tensor) -> Tensor:
    """The view of another storage that a tensor is of its own."""
    with using(grad=False):
        view: Tensor = storage.detach()
        for call, others in path_of(tensor):
            view = make_view(wrap(apply(call, (view._read(), *others))[0]), view, call, others)
    return view


def without_elements(tensor: Tensor, storages: dict[int, tuple[weakref.ref[Tensor], Tensor]]) -> Tensor:
    """A tensor on the meta device in place of a tensor: at the same place of a storage, which aliases share.

    `storages` are those that there are already, by the identities of owners. A tensor on the meta device keeps its own.
    """
    owner = owner_of(tensor)
    if tensor._read().aval.device is META:
        return tensor.detach()
    entry = storages.get(id(owner))
    if entry is None or entry[0]() is not owner:
        meta = wrap(Value(aval_of(tuple(owner.shape), owner.dtype, device=META), NO_DATA))
        storages[id(owner)] = entry = weakref.ref(owner), meta
    return _at_place_of(tensor, entry[1])


_STORAGE = "storage"  # a key in a memo, whose other keys are ids of objects


def reduce(self: Tensor, protocol: int) -> Args:
    """The pickle of a tensor: its elements as a NumPy array, without the tape."""
    del protocol
    value = self._read()
    owner = value.aval.owner
    if owner is not None:
        stored = owner.save(value)
        return rebuild_owned, (plain_kind(self), stored, self.requires_grad, extras_of(self))
    if value.aval.device is META:
        return rebuild_on_meta, (type(self), tuple(self.shape), self.dtype, self.requires_grad, extras_of(self))
    elements = host_array(value)
    return rebuild, (type(self), elements, str(self.device), self.requires_grad, extras_of(self))


def require_whole(value: Value) -> None:
    """Raise `RuntimeError` for a distributed tensor, of which this process has a part."""
    if value.aval.distributed is not None:
        raise CheckpointError(
            f"a DTensor of size {list(value.aval.size)} cannot be saved: this process has a part of it only. Save "
            "x.full_tensor(), which all processes must call"
        )


# --- tensors with owners ------------------------------------------------------------------------------------------

Restorer = Callable[[dict[str, Any], dict[str, Tensor]], Tensor]
"""A function that makes a tensor of the facts and the parts of a `Stored`."""

# no cell: filled when the library is imported
_restorers: dict[str, Restorer] = {}


def set_restorer(kind: str, restorer: Restorer) -> None:
    """Set the function for a kind of `Stored`; the module that defines its owner does."""
    _restorers[kind] = restorer


def restored(stored: Stored[Tensor]) -> Tensor:
    """The tensor of which a file holds this; `ValueError` for a kind that no module has defined."""
    if stored.kind not in _restorers:
        raise ValueError(
            f"it holds a tensor of unknown layout {stored.kind!r}: import what defines it first, such as "
            "torch.distributed.tensor for a DTensor"
        )
    return _restorers[stored.kind](stored.facts, stored.parts)


def owner_that_saves(x: Tensor) -> AnyOwner | None:
    """The owner that says what files hold of a tensor, or None where that is one array.

    Of a distributed tensor it is the array of this process's part. What has no value yet is no part of anything.
    """
    value = value_of(x)
    if value is None:
        if x._alias is None:  # an uninitialised parameter
            return None
        value = x._read()
    owner = value.aval.owner
    return None if owner is None or owner.distributed is not None else owner


def plain_kind(tensor: Tensor) -> type[Tensor]:
    """The class of a tensor, without what its owner makes of it: `Parameter` for a distributed parameter."""
    owner = tensor._read().aval.owner
    if owner is None:
        return type(tensor)
    return next(kind for kind in type(tensor).__mro__ if kind is Tensor or not issubclass(kind, owner.tensor_type))


def rebuild_owned(kind: type[Tensor], stored: Stored[Tensor], requires_grad: bool, extras: SavedState) -> Tensor:
    """The tensor with an owner of a pickle."""
    result = handle_on(kind, restored(stored), requires_grad)
    set_extras(result, extras)
    return result


def rebuild(kind: type[Tensor], elements: np.ndarray, device: str, requires_grad: bool, extras: SavedState) -> Tensor:
    """The tensor that `reduce` took apart."""
    result = handle_on(kind, from_host(elements, device), requires_grad)
    set_extras(result, extras)
    return result


def rebuild_on_meta(
    kind: type[Tensor], shape: tuple[int, ...], dtype: DType, requires_grad: bool, extras: SavedState
) -> Tensor:
    """The tensor without elements that `reduce` took apart."""
    result = handle_on(kind, wrap(Value(aval_of(shape, dtype, device=META), NO_DATA)), requires_grad)
    set_extras(result, extras)
    return result
