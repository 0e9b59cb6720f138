"""Tensors that get other elements: `p.data = x`, `Parameter(x)`, `t_()`."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from weft._base.capture import active_capture
from weft._base.state import ambient, using
from weft._dispatch import apply
from weft._lazy.aval import Aval, aval_of
from weft._lazy.call import ONE, many
from weft._lazy.infer import call_of
from weft._lazy.role import Leaf
from weft._lazy.runtime import new_array
from weft._lazy.value import Absent, Value
from weft._tensor.alias import current, layout_of, owner_of, path_of, strided_step
from weft._tensor.base import VALUE_SLOT, Alias, PathStep, TensorBase, new_handle
from weft._tensor.handover import hand_over, move_storage, repoint
from weft._tensor.view import attach, external_memory_of, own, placed, set_value
from weft._tensor.write_checks import check_writable
from weft.errors import GradientError, ShapeError
from weft.ops._strides import row_major
from weft.ops._table import TABLE

T = TypeVar("T", bound=TensorBase)


def share(target: TensorBase, source: TensorBase) -> None:
    """Let `target`, which has no storage, share all elements of `source`, outside the tape.

    `target` then owns the storage, because optimizers write faster to an owner, and the former owner becomes a view.
    The owner does not change if it is a leaf that requires a gradient, if `source` is only a part of it, or if a replay
    could not find the storage any more.
    """
    target._value = own(current(source))
    owner, path = owner_of(source), path_of(source)
    role = owner._read().role
    capture = ambient().capture
    found_anew = capture is not None and not capture.is_inside(owner._read())
    if path or (isinstance(role, Leaf)) or found_anew:
        attach(target, Alias(owner, path, False))
    else:
        move_storage(owner, target)
        attach(owner, Alias(target, (), False))


def of_class(kind: type[T], fresh: TensorBase) -> T:
    """A tensor of a class, in the place of one that nobody else holds.

    `__class__` cannot be set where the class has slots.
    """
    result = new_handle(kind)
    VALUE_SLOT.__set__(result, fresh._value)
    return result if fresh._alias is None else attach(result, fresh._alias)


def set_data(target: TensorBase, source: TensorBase) -> None:
    """`target.data = source`: share its elements, but keep the handle, its place in the graph and its gradient."""
    old = target._read()
    role = old.role
    aval = source._read().aval
    if role is not None and not aval.dtype.is_differentiable:
        raise GradientError("data set to a tensor that requires gradients must be floating point or complex dtype")
    if owner_of(source) is owner_of(target) and path_of(source) == path_of(target):
        return
    _leave_storage(target)
    share(target, source)
    if role is not None and (isinstance(role, Leaf) or aval is old.aval):
        target._value = placed(old, target._read())
    active_capture().wrote(target, old)
    if target._alias is not None:
        active_capture().needs_value("an assignment to `.data` of a part of another tensor")


def rebind(target: T, result: TensorBase) -> T:
    """Make `target` the view `result` of itself, as `t_()` does. If it owned its storage, a hidden tensor now does."""
    state = ambient()
    check_writable(target, state.grad)
    old, value = target._read(), result._read()
    hidden = target._alias is None or target._alias.hidden
    _leave_storage(target)
    alias = result._alias
    assert alias is not None, "only views are taken on"
    if isinstance(old.role, Leaf):
        value.role = old.role
    elif old.role is not None and value.role is None:
        value = _in_graph(old, value, alias.steps[-1])
    attach(target, Alias(alias.base, alias.steps, alias.tracked, hidden=hidden))
    target._value = value
    owner_of(target)._writes += 1
    active_capture().wrote(target, old)
    return target


def _in_graph(old: Value, value: Value, step: PathStep) -> Value:
    """`value`, made of `old` by a view operator without gradients, placed in the graph where `old` is."""
    if value.aval is old.aval:
        return placed(old, value)
    call, others = step
    with using(grad=True):
        return apply(call, (old, *others))[0]


def detach_view(view: TensorBase) -> None:
    """Detach a view through which no gradient flows yet from its base's graph: it becomes a leaf."""
    attach(view, Alias(owner_of(view), path_of(view), False))


def _leave_storage(target: TensorBase) -> None:
    """Move the elements of `target` to a hidden tensor, with its views, before `target` gets other elements."""
    alias, views = target._alias, target._views
    target._alias = target._views = None
    if not views:
        return
    hidden: TensorBase = new_handle(type(target))
    hidden._value = target._value
    if alias is None:
        hand_over(target, hidden)
    else:
        attach(hidden, Alias(alias.base, alias.steps, alias.tracked))
    repoint(views, target, hidden, tracked=hidden)


def require_resizable(owner: TensorBase) -> None:
    """Raise `RuntimeError` for a tensor whose storage is in memory that others have, too."""
    if external_memory_of(owner) is not None:
        raise ShapeError("Trying to resize storage that is not resizable: its memory is also that of another object")


def resize_storage(owner: TensorBase, count: int) -> None:
    """Give the storage of `owner`, which owns it, room for so many elements; tensors on it keep their places.

    New elements are 0. Tensors that need more than there is cannot be read until there is enough.
    """
    require_resizable(owner)
    storage = owner if owner._resized else _separated(owner)
    value = current(storage)
    room = value.aval.shape[0]
    if count == room:
        return
    views: list[tuple[TensorBase, Alias, Aval]] = []
    for ref in storage._views or ():
        view = ref()
        if view is not None and (alias := view._alias) is not None and alias.base is storage:
            views.append((view, alias, view._read().aval))
    with using(grad=False):
        if count < room:
            call, others = strided_step((count,), (1,), 0)
            value = own(apply(call, (value, *others))[0])
        else:
            padding = aval_of((count - room,), value.aval.dtype, device=value.aval.device)
            value = apply(call_of(TABLE["cat"], (many(2), 0)), (value, Value(padding, new_array(padding, 0))))[0]
    set_value(storage, value)
    for view, alias, aval in views:
        layout, place = layout_of(view, exact=True), alias.place
        needed = (layout.offset + layout.extent) * layout.dtype.itemsize if layout.extent else 0
        if needed > value.aval.nbytes:
            view._value = unreadable = Value(aval, Absent(partial(_refuse, aval, needed, value.aval.nbytes)))
            if place is not None and isinstance(place.role, Leaf):
                unreadable.role = place.role


def _refuse(aval: Aval, needed: int, room: int) -> None:
    raise ShapeError(
        f"a tensor of size {list(aval.size)} requires a storage size of {needed}, which is out of bounds for storage "
        f"of size {room}: the storage was resized, and the tensor cannot be read before it is large enough again"
    )


def _separated(owner: TensorBase) -> TensorBase:
    """Move the elements of a tensor that owns its storage to a tensor of one dim, of which it becomes a view."""
    aval = owner._read().aval
    storage: TensorBase = new_handle(type(owner))
    with using(grad=False):
        storage._value = own(apply(call_of(TABLE["view"], (ONE, (-1,))), (current(owner),))[0])
    storage._resized = True
    move_storage(owner, storage, (strided_step(aval.shape, row_major(aval.shape), 0),))
    attach(owner, Alias(storage, (strided_step(aval.shape, row_major(aval.shape), 0),), False))
    return storage
