"""Views of any places of a storage."""

from __future__ import annotations

from weft._base.dtype import DType
from weft._base.state import ambient
from weft._lazy.infer import ONE, call_of
from weft._tensor.alias import Alias, Path, layout_of, owner_of
from weft._tensor.tensor import Tensor, number
from weft._tensor.view import attach, replayed
from weft.errors import DTypeError, ShapeError
from weft.ops._strides import Layout
from weft.ops._table import TABLE


def strided_view(input: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Tensor:
    """The view of the storage of `input`, in elements of its type, at the places that strides and an offset name.

    Gradients flow as from any view. `RuntimeError` for places that the storage does not have.
    """
    layout = layout_of(input)
    if layout.changed:
        raise DTypeError("as_strided: a conjugated view has no elements of its own; take it of x.resolve_conj()")
    _check(Layout(size, stride, offset, layout.dtype), owner_of(input).nbytes)
    alias = input._alias
    start = input if alias is None or not alias.tracked else alias.base
    if start._alias is None:
        path = _flat_as(start.dtype, layout.dtype)
    elif start.requires_grad:
        path, offset = (), _relative(start, size, stride, offset)
    else:
        start = owner_of(start)
        path = _flat_as(start.dtype, layout.dtype)
    tracked = ambient().grad and (start is input or (alias is not None and alias.tracked))
    path = (*path, (call_of(TABLE["strided"], (ONE, size, stride, ONE)), (number(offset),)))
    view = object.__new__(Tensor)
    attach(view, Alias(start, path, tracked))
    view._value = replayed(view._alias)
    return view


def _check(places: Layout, room: int) -> None:
    """Raise `RuntimeError` for places that are none, or lie outside of a storage of so many bytes."""
    size, stride, offset = list(places.sizes), list(places.strides), places.offset
    if len(size) != len(stride):
        raise ShapeError("mismatch in length of strides and shape")
    if any(step < 0 for step in stride):
        raise ShapeError(f"as_strided: Negative strides are not supported at the moment, got strides: {stride}")
    if any(n < 0 for n in size):
        raise ShapeError(f"Storage size calculation overflowed with sizes={size} and strides={stride}")
    if offset < 0:
        raise ShapeError(f"Tensor: invalid storage offset {offset}")
    itemsize = places.dtype.itemsize
    needed = (offset + places.extent) * itemsize
    if places.extent and needed > room:
        raise ShapeError(
            f"setStorage: sizes {size}, strides {stride}, storage offset {offset}, and itemsize {itemsize} requiring a "
            f"storage size of {needed} are out of bounds for storage of size {room}"
        )


def _flat_as(old: DType, new: DType) -> Path:
    """The steps that show a storage as elements of another type, in their order."""
    if old is new:
        return ()
    if old.to_real() is new:
        return ((call_of(TABLE["view_as_real"], (ONE,)), ()),)
    if old.to_complex() is new:
        pairs = call_of(TABLE["view"], (ONE, (-1, 2)))
        return ((pairs, ()), (call_of(TABLE["view_as_complex"], (ONE,)), ()))
    flat = call_of(TABLE["view"], (ONE, (-1,)))
    return ((flat, ()), (call_of(TABLE["retyped"], (ONE, new)), ()))


def _relative(start: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> int:
    """An offset counted from the first element of a leaf that shares a part of a storage, and gets the gradients."""
    whole = layout_of(start, exact=True)
    within = offset - whole.offset
    if not whole.is_contiguous or not 0 <= within <= start.numel() - Layout(size, stride, 0, whole.dtype).extent:
        raise ShapeError(
            "as_strided: gradients flow only within a leaf whose elements lie side by side; take it of x.detach()"
        )
    return within
