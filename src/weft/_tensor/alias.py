"""Aliases: the base of a view, its path of view operators, and the layout of its elements."""

from __future__ import annotations

from functools import lru_cache
from math import isnan, prod
from typing import TypeVar, cast

from weft._base.dtype import DType, int64
from weft._base.state import ambient
from weft._lazy.aval import Aval, aval_of
from weft._lazy.call import ONE
from weft._lazy.external import taken_in
from weft._lazy.infer import Call, call_of
from weft._lazy.layouts import layout_after
from weft._lazy.native import native
from weft._lazy.value import Value
from weft._tensor.base import Path, PathStep, TensorBase
from weft.errors import ShapeError
from weft.ops._strides import Layout, row_major
from weft.ops._table import TABLE

T = TypeVar("T", bound=TensorBase)


def owner_of(tensor: T) -> T:
    """The tensor that owns the elements: for a view, the last base; else the tensor itself."""
    owner: TensorBase = tensor
    while owner._alias is not None:
        owner = owner._alias.base
    return cast("T", owner)  # users hold tensors, and nothing else has views


def path_of(tensor: TensorBase) -> Path:
    """The view operators that lead from the owner of the elements to the tensor."""
    alias = tensor._alias
    return () if alias is None else (*path_of(alias.base), *alias.steps)


def current(tensor: TensorBase) -> Value:
    """The current value of a tensor that is read through an alias, or written. A replay reads it anew."""
    value = tensor._read()
    capture = ambient().capture
    if capture is not None:
        value = taken_in(value)
        capture.read(tensor, value)
    return value


def layout_of(tensor: TensorBase, *, exact: bool = False) -> Layout:
    """The layout of a tensor's elements. An offset that depends on an index tensor is NaN; with `exact`, it is read."""
    alias = tensor._alias
    if alias is None:
        return _of_owner(tensor._read().aval)
    layout = alias.layout
    if layout is None or (exact and isnan(layout.offset)):
        layout = layout_of(alias.base, exact=exact)
        for call, others in alias.steps:
            layout = _after(layout, call, others, exact)
        alias.layout = layout
    return layout


def spreads(tensor: TensorBase) -> bool:
    """Whether a view may show an element in several places. It is result from the path, without the layout."""
    while (alias := tensor._alias) is not None:
        for call, _ in alias.steps:
            if call.spreads:
                return True
        tensor = alias.base
    return False


def is_copied(source: TensorBase, call: Call, others: tuple[Value, ...]) -> bool:
    """Whether a view operator's result is a copy, since no strides give it; raises for what PyTorch refuses.

    Where elements lie, but for the first, follows from the storage's type and the calls of the path.
    """
    if not call.by_layout or source._alias is None:
        return False
    key = (owner_of(source)._read().aval, *[step for step, _ in path_of(source)], call)
    result = _copied.get(key)
    if result is None:
        old = layout_of(source)
        new = layout_after(old, call, others)
        result = new is None
        if new is None or new.dtype is old.dtype:  # other types may be refused because of where the first element is
            if len(_copied) >= _MOST_COPIED:
                _copied.clear()
            _copied[key] = result
    return result


# no cell: a cache, keyed by all that its entries depend on
_copied: dict[tuple[object, ...], bool] = {}
_MOST_COPIED = 65_536

if native is not None:
    native.bind(copied=_copied)


def shows_changed(tensor: TensorBase) -> bool:
    """Whether a view shows its elements conjugated or negated."""
    return tensor._alias is not None and layout_of(tensor).changed


@lru_cache(maxsize=1024)
def _of_owner(aval: Aval) -> Layout:
    return Layout(aval.size, row_major(aval.size), 0, aval.dtype)


def _after(layout: Layout, call: Call, others: tuple[Value, ...], exact: bool) -> Layout:
    result = layout_after(layout, call, others, exact=exact)
    assert result is not None, "a copy is no view"
    return result


# --- the way to places that are given in full -------------------------------------------------------------------


def path_to(start: TensorBase, places: Layout) -> Path:
    """The path from a tensor that owns its storage, or is apart, to a layout in that storage."""
    if start._alias is None:
        steps, offset = _flat_as(start._read().aval, places.dtype), places.offset
    else:
        steps, offset = (), _within(start, places)
    return (*steps, strided_step(places.sizes, places.strides, offset))


def strided_step(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> PathStep:
    """The step from a tensor that owns its storage to these places."""
    call = call_of(TABLE["strided"], (ONE, sizes, strides, ONE))
    return call, (Value(aval_of((), int64, weak=True), offset),)


_FLAT = call_of(TABLE["view"], (ONE, (-1,)))


def _within(start: TensorBase, places: Layout) -> int:
    """The offset relative to the first element of `start`, which has a part of a storage and receives the gradients."""
    part = layout_of(start, exact=True)
    offset = places.offset - part.offset
    inside = 0 <= offset <= prod(start._read().aval.size) - places.extent
    if not inside or not part.is_contiguous or part.dtype is not places.dtype:
        raise ShapeError(
            "as_strided: gradients flow only within a leaf whose elements lie side by side; take it of x.detach()"
        )
    return offset


def _flat_as(storage: Aval, new: DType) -> Path:
    """The path that shows a storage as elements of another type, in order; bytes that are left over are left out."""
    old = storage.dtype
    if old is new:
        return ()
    if old.to_real() is new:
        return ((call_of(TABLE["view_as_real"], (ONE,)), ()),)
    if new.to_real() is old:
        pairs = call_of(TABLE["view"], (ONE, (-1, 2)))
        return ((pairs, ()), (call_of(TABLE["view_as_complex"], (ONE,)), ()))
    whole = storage.nbytes - storage.nbytes % new.itemsize
    flat = strided_step((whole // old.itemsize,), (1,), 0) if whole < storage.nbytes else (_FLAT, ())
    return (flat, (call_of(TABLE["retyped"], (ONE, new)), ()))
