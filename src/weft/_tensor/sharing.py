"""Tensors that get other elements: `p.data = x`, `Parameter(x)`, `t_()`."""

from __future__ import annotations

import weakref
from typing import TypeVar

from weft._base.state import ambient, using
from weft._dispatch import apply
from weft._lazy.value import Value
from weft._tensor.alias import current, owner_of, path_of
from weft._tensor.base import Alias, PathStep, TensorBase
from weft._tensor.view import attach, check_writable, own, placed
from weft.errors import GradientError

T = TypeVar("T", bound=TensorBase)


def share(target: TensorBase, source: TensorBase) -> None:
    """Let `target`, which has no storage, share all elements of `source`, outside the tape.

    `target` then owns the storage, because optimizers write faster to an owner, and the former owner becomes a view.
    The owner does not change if it is a leaf that requires a gradient, if `source` is only a part of it, or if a replay
    could not find the storage any more.
    """
    target._value = own(current(source))
    owner, path = owner_of(source), path_of(source)
    tape = owner._read().tape
    capture = ambient().capture
    found_anew = capture is not None and not capture.is_inside(owner._read())
    if path or (tape is not None and tape.leaf) or found_anew:
        attach(target, Alias(owner, path, False))
    else:
        _move_storage(owner, target)
        attach(owner, Alias(target, (), False))


def set_data(target: TensorBase, source: TensorBase) -> None:
    """`target.data = source`: share its elements, but keep the handle, its place in the graph and its gradient."""
    old = target._read()
    tape = old.tape
    aval = source._read().aval
    if tape is not None and not aval.dtype.is_differentiable:
        raise GradientError("data set to a tensor that requires gradients must be floating point or complex dtype")
    if owner_of(source) is owner_of(target) and path_of(source) == path_of(target):
        return
    _leave_storage(target)
    share(target, source)
    if tape is not None and (tape.leaf or aval is old.aval):
        target._value = placed(old, target._read())
    capture = ambient().capture
    if capture is not None:
        if target._alias is not None:
            capture.needs_value("an assignment to `.data` of a part of another tensor")
        capture.wrote(target, old)


def rebind(target: T, result: TensorBase) -> T:
    """Make `target` the view `result` of itself, as `t_()` does. If it owned its storage, a hidden tensor now does."""
    state = ambient()
    check_writable(target, state.grad)
    old, value = target._read(), result._read()
    hidden = target._alias is None or target._alias.hidden
    _leave_storage(target)
    alias = result._alias
    assert alias is not None, "only views are taken on"
    if old.tape is not None and old.tape.leaf:
        value.tape = old.tape
    elif old.tape is not None and value.tape is None:
        value = _in_graph(old, value, alias.steps[-1])
    attach(target, Alias(alias.base, alias.steps, alias.tracked, hidden=hidden))
    target._value = value
    owner_of(target)._writes += 1
    if state.capture is not None:
        state.capture.wrote(target, old)
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
        target._memory = None
        return
    hidden: TensorBase = object.__new__(type(target))
    hidden._value = target._value
    if alias is None:
        _hand_over(target, hidden)
    else:
        attach(hidden, Alias(alias.base, alias.steps, alias.tracked))
    _repoint(views, target, hidden, tracked=hidden)


def _move_storage(owner: TensorBase, target: TensorBase) -> None:
    """Make `target` the owner of a storage. Views that are apart follow; others stay with the tensor of their graph."""
    _hand_over(owner, target)
    views, owner._views = owner._views or [], None
    _repoint(views, owner, target, tracked=owner)


def _hand_over(old: TensorBase, new: TensorBase) -> None:
    """Let another tensor be the owner of a storage."""
    new._writes, new._address = old._writes, old._address
    old._writes = old._address = 0
    if old._memory is not None:
        new._memory, old._memory = old._memory, None
        new._memory.owner = weakref.ref(new)


def _repoint(views: list[weakref.ref[TensorBase]], old: TensorBase, new: TensorBase, *, tracked: TensorBase) -> None:
    """Make views of `old` that are apart views of `new`, the others views of `tracked`; all have the same elements."""
    for ref in views:
        view = ref()
        alias = None if view is None else view._alias
        if alias is not None and alias.base is old:
            alias.base = base = tracked if alias.tracked else new
            if base._views is None:
                base._views = []
            base._views.append(ref)
