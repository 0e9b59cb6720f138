"""Views of a storage with any strides."""

from __future__ import annotations

from dataclasses import replace

from weft._base.dtype import DType
from weft._base.state import ambient
from weft._tensor.alias import layout_of, owner_of, path_to
from weft._tensor.base import Alias
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import attach, replayed
from weft.errors import DTypeError, ShapeError
from weft.ops._memory import require_addressable_places
from weft.ops._strides import Layout


def strided_view(
    input: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int, *, dtype: DType | None = None
) -> Tensor:
    """The view of the storage of `input` with these strides and this offset, by default in the type of `input`.

    Gradients flow as through any view. `RuntimeError` for places outside the storage.
    """
    layout = layout_of(input)
    if layout.changed:
        raise DTypeError("as_strided: a conjugated view has no elements of its own; take it of x.resolve_conj()")
    places = replace(layout, sizes=size, strides=stride, offset=offset, dtype=dtype or input.dtype)
    _check(places, owner_of(input).nbytes)
    alias = input._alias
    start = input if alias is None or not alias.tracked else alias.base
    if start._alias is not None and not (ambient().grad and start._read().role is not None):
        start = owner_of(start)
    tracked = ambient().grad and (start is input or (alias is not None and alias.tracked))
    view = Alias(start, path_to(start, places), tracked)
    return attach(wrap(replayed(view)), view)


def _check(places: Layout, room: int) -> None:
    """Raise `RuntimeError` for an invalid layout, or one that does not fit into a storage of `room` bytes."""
    size, stride, offset = list(places.sizes), list(places.strides), places.offset
    if len(size) != len(stride):
        raise ShapeError("mismatch in length of strides and shape")
    if any(step < 0 for step in stride):
        raise ShapeError(f"as_strided: Negative strides are not supported at the moment, got strides: {stride}")
    needed = require_addressable_places(places)
    if offset < 0:
        raise ShapeError(f"Tensor: invalid storage offset {offset}")
    if needed > room:
        raise ShapeError(
            f"setStorage: sizes {size}, strides {stride}, storage offset {offset}, and itemsize "
            f"{places.dtype.itemsize} requiring a storage size of {needed} are out of bounds for storage of size {room}"
        )
