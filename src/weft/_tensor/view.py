"""Aliases: tensors that read and write a part of another tensor.

A view refers to its base, and to the path of view operators from it. If the base has been written since, reading
replays the path; writing computes a new base through the path. Both are ordinary recorded operators, so gradients
follow, and values saved for a backward pass do not change.

A view through which no gradient flows (`detach()`, `.data`, a parameter made from a tensor) is apart: it shares
elements, but has its own place in the graph, which it keeps when other aliases write.
"""

from __future__ import annotations

import weakref
from typing import TypeVar

from weft._autograd.graph import hooks_of
from weft._base.state import ambient, using
from weft._dispatch import apply
from weft._lazy.aval import Aval, in_memory, marked
from weft._lazy.call import ONE
from weft._lazy.external import External, ExternalMemory, external_value, taken_in
from weft._lazy.infer import Call, call_of
from weft._lazy.native import native
from weft._lazy.role import Freed, Interior, Leaf, Retained, Role
from weft._lazy.value import PENDING, Value
from weft._tensor.alias import current, layout_of, owner_of, path_of, path_to, spreads
from weft._tensor.base import Alias, Path, TensorBase, new_handle
from weft._tensor.handover import move_storage
from weft._tensor.state import own_facts
from weft._tensor.write_checks import check_cast, check_names, check_shape, check_writable
from weft._tensor.writing import writing
from weft.errors import InPlaceError
from weft.ops._dims import Names
from weft.ops._table import TABLE

T = TypeVar("T", bound=TensorBase)

# --- making and reading -----------------------------------------------------------------------------------------


def make_view(result: T, source: TensorBase, call: Call, others: tuple[Value, ...]) -> T:
    """Mark `result`, which is `call` applied to `source`, as a view of it."""
    value = result._read()
    _copy_inference_mark(value, source._read())
    alias = source._alias
    step = (call, others)
    if not (ambient().grad and call.derives):
        attach(result, Alias(owner_of(source), (*path_of(source), step), False))
    elif alias is None or not alias.tracked:
        attach(result, Alias(source, (step,), True))
    else:
        attach(result, Alias(alias.base, (*alias.steps, step), True))
    if _is_read_anew(result, value):
        result._value = None
    return result


def make_detached_view(result: T, source: TensorBase) -> T:
    """Mark `result` as a view of all elements of `source` through which no gradient flows."""
    _copy_inference_mark(result._read(), source._read())
    return attach(result, Alias(owner_of(source), path_of(source), False))


def attach(view: T, alias: Alias) -> T:
    """Make a tensor a view by an alias; writes to the base mark it stale."""
    own_facts(view).alias = alias
    facts = own_facts(alias.base)
    views = facts.views
    if views is None:
        facts.views = [weakref.ref(view)]
        return view
    if len(views) >= 16 and not len(views) & (len(views) - 1):  # at powers of two, forget the dead
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(view))
    return view


def _copy_inference_mark(value: Value, other: Value) -> None:
    """Mark a fresh value as made in inference mode if another value of its storage is marked so."""
    if value.aval.inference is not other.aval.inference:
        value.aval = marked(value.aval, other.aval.inference)


def refresh(view: TensorBase) -> Value:
    """The value of a view whose base has been written since the view was last read."""
    alias = view._alias
    assert alias is not None, "only views are stale"
    value = replayed(alias)
    _copy_inference_mark(value, alias.base._read())
    place = alias.place
    if place is not None:
        value = placed(place, value)
    if _is_read_anew(view, value):
        return value
    alias.place = None
    view._value = value
    if view._role is not None:
        _move_retain_grad(view, value)
    return value


def _is_read_anew(view: TensorBase, value: Value) -> bool:
    """Whether a value of a view is not kept, because it is a copy of elements that others may write to.

    Values that gradients flow through are kept if they come from the base: they have their place in the graph.
    """
    alias = view._alias
    if value.aval.external or alias is None or ambient().capture is not None:
        return False
    return not (alias.tracked and value.role is not None) and external_memory_of(owner_of(view)) is not None


def external_memory_of(owner: TensorBase) -> ExternalMemory | None:
    """Where the elements of a tensor that owns its storage are, if others may write to them there."""
    value = owner._value
    if value is None or not value.aval.external:
        return None
    content: External = value.content
    return None if content.memory.private else content.memory


def _drop_retain_grad(tensor: TensorBase, old: Value) -> None:
    kept = tensor._role
    if isinstance(kept, Retained) and old.role is not None and old.role.hooks:
        old.role.hooks.pop(Role.KEEP, None)


def _move_retain_grad(tensor: TensorBase, value: Value) -> None:
    """Let `retain_grad` accumulate the gradient of a tensor's new value instead of that of its old one."""
    kept = tensor._role
    if not isinstance(kept, Retained) or not kept.hooks or value.role is None:
        return
    hooks_of(value)[Role.KEEP] = kept.hooks[Role.KEEP]


def replayed(alias: Alias) -> Value:
    """The current value of an alias: its path replayed from the base."""
    value = current(alias.base)
    with using(grad=alias.tracked):
        for call, others in alias.steps:
            value = apply(call, (value, *others))[0]
    return value if alias.steps else own(value)


def own(value: Value) -> Value:
    """A separate value with the same contents, outside the tape."""
    result = None if ambient().capture is not None else value.leaf()
    return apply(_DETACH, (value,))[0] if result is None else result


_DETACH = call_of(TABLE["detach"], (ONE,))
_COPY = call_of(TABLE["copy"], (ONE, ONE))


def entered(value: Value) -> Value:
    """The same contents at a place of its own inside of the tape, to which derivatives can be taken."""
    with using(grad=True):
        result = apply(call_of(TABLE["alias"], (ONE,)), (taken_in(value),))[0]
    if result.role is None:
        result.role = Interior()
    return result


def is_view_of(result: TensorBase, source: TensorBase) -> bool:
    """Whether `result` is another handle to the storage of `source`."""
    return result._alias is not None and result is not source and owner_of(result) is owner_of(source)


# --- writing ----------------------------------------------------------------------------------------------------


def _write(target: T, value: Value, *, uniform: bool = False) -> T:
    """Make a freshly recorded value the contents of `target`, and so of all its aliases.

    The value is cast and expanded to the target's type and shape. `RuntimeError` for a leaf that requires a gradient in
    grad mode, a shape that does not broadcast, a type that cannot be cast, and a target that overlaps itself, unless
    the value is `uniform`: one number everywhere.
    """
    state = ambient()
    check_writable(target, state.grad)
    value = _fitted(target, value)
    alias = target._alias
    if alias is None:
        put(target, value, state.grad)
        return target
    if not uniform and spreads(target) and layout_of(target).repeats:
        raise InPlaceError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location. Please clone() the tensor before performing the operation."
        )
    if target._read().aval.external and _write_part(target, value):
        return target
    if not alias.tracked:
        put(target, value, state.grad)
        return target
    if alias.base._alias is not None and spreads(target) and _is_scattered(alias.base):
        return _write_to_storage(target, value)
    in_graph = target._read().role is not None
    new = written(_write_path(target, alias), current(alias.base), value)
    put(alias.base, new, state.grad)
    if value.role is None and not in_graph:  # else its place in the graph follows from that of the base
        _copy_inference_mark(value, alias.base._read())
        target._value = None if _is_read_anew(target, value) else value
    return target


def _is_scattered(base: TensorBase) -> bool:
    """Whether the elements of a part of a storage are not dense, so that no layout can be given within that part."""
    return spreads(base) or not layout_of(base).is_contiguous


def _write_to_storage(target: T, value: Value) -> T:
    """Write to a detached view that shows elements in several places, directly to the storage."""
    if value.role is not None:
        raise InPlaceError(
            "a view of a detached tensor that shows elements several times takes no value with a gradient; clone() it"
        )
    owner = owner_of(target)
    with using(grad=False):
        new = written(path_to(owner, layout_of(target, exact=True)), current(owner), value)
    put(owner, new, False)
    return target


def _write_path(view: TensorBase, alias: Alias) -> Path:
    """The steps to write through: directly to the view's places if it shows an element several times."""
    if not spreads(view):
        return alias.steps
    layout = layout_of(view, exact=True)
    return alias.steps if layout.changed or not layout.spread else path_to(alias.base, layout)


def written(steps: Path, base: Value, value: Value) -> Value:
    """The base with `value` written at the end of the path `steps`."""
    chain = [base]
    for call, others in steps[:-1]:
        chain.append(apply(call, (chain[-1], *others))[0])
    for (call, others), old in zip(reversed(steps), reversed(chain[: len(steps)]), strict=True):
        value = _owned_as(old.aval, apply(writing(call), (old, value, *others))[0])
    return value


def _owned_as(aval: Aval, value: Value) -> Value:
    """A value that is written, with the owner of what it is written to; `RuntimeError` if it cannot have it."""
    own = value.aval.owner
    either = aval.owner or own
    return value if either is None or own is aval.owner else either.to_owner(value, aval.owner)


def put(base: TensorBase, value: Value, grad: bool) -> None:
    """Make `value` the contents of a tensor that owns its storage or is apart; its place in the graph stays."""
    old = base._read()
    _copy_inference_mark(value, old)
    if old.role is not None and not grad:
        value = placed(old, value)
    elif old.role is not None and value.role is None:  # the gradient of what was there before is zero
        value = apply(_COPY, (old, value))[0]
    alias = base._alias
    capture = ambient().capture
    if alias is None:
        set_value(base, value)
        if grad and base._role is not None:
            _drop_retain_grad(base, old)
            _move_retain_grad(base, value)
        if capture is not None:
            capture.wrote(base, old)
        return
    with using(grad=False):
        shared = written(_write_path(base, alias), current(alias.base), value)
        put(alias.base, own(value) if shared is value else shared, False)
    if external_memory_of(owner_of(base)) is not None:
        base._value, alias.place = None, value if value.role is not None else None
    else:
        base._value, alias.place = value, None
    if capture is not None and isinstance(value.role, Interior):
        capture.wrote(base, old)


def placed(old: Value | Role, value: Value) -> Value:
    """`value`, placed in the graph where `old` is; the graph does not see that the contents have changed."""
    role = old.role
    assert role is not None, "only what requires a gradient has a place"
    if isinstance(old, Role) or isinstance(role, (Freed, Leaf)):
        value.role = role
    else:
        with using(grad=True):
            value = apply(call_of(TABLE["carry"], (ONE, ONE)), (old, value))[0]
    return value


def set_value(base: TensorBase, value: Value) -> None:
    """Set the value of a tensor that owns its storage; its views become stale."""
    old = base._value
    facts = own_facts(base)  # at once: an optimizer's step comes here for each parameter and each of its states
    if old is not None:
        if old.aval.external and _write_external(base, old, value):
            return
        _copy_inference_mark(value, old)
        if type(old) is Value and old.content is not PENDING:
            facts.overwritten = old.time
    base._value = value
    facts.writes += 1
    if facts.views is not None:
        mark_views_stale(base)


def _write_external(base: TensorBase, old: Value, value: Value) -> bool:
    """Write new contents of a tensor that owns its storage to its external memory.

    False if the tensor gets the value instead: since nobody else sees the memory, or it is read-only.
    """
    memory: ExternalMemory = old.content.memory
    if memory.becomes_private():
        return False
    if not memory.write(old.content.array, value):
        return False
    base._writes += 1
    if isinstance(value.role, Interior):
        set_apart(base, value)
    else:
        old.role = value.role
    mark_views_stale(base)
    return True


def _write_part(view: TensorBase, value: Value) -> bool:
    """Write to the external memory of a view; False if that is not possible, and for values with gradients."""
    content: External = view._read().content
    if value.role is not None or content.memory.becomes_private() or not content.memory.write(content.array, value):
        return False
    owner = owner_of(view)
    owner._writes += 1
    mark_views_stale(owner)
    return True


def set_apart(base: TensorBase, place: Value) -> None:
    """Let a hidden tensor own the external memory of `base`, which keeps its place in the graph as a view of that."""
    held = base._value
    assert held is not None, "a tensor with external memory has a value"
    hidden: TensorBase = new_handle(type(base))
    hidden._value = external_value(held.content.memory, held.content.array, held.aval)
    move_storage(base, hidden)
    alias = Alias(hidden, (), False)
    alias.place = place
    attach(base, alias)._value = None


def mark_views_stale(base: TensorBase) -> None:
    """Let the views of a tensor be computed anew, after a write to it."""
    living = False
    for ref in base._views or ():
        view = ref()
        if view is None:
            continue
        living = True
        if (old := view._value) is None:
            continue
        alias = view._alias
        if alias is None or alias.base is not base:  # it is a view of another base now
            continue
        if old.aval.external and old.content.memory is external_memory_of(owner_of(base)):
            continue  # it shows what is there anyway
        if view._role is not None:
            _drop_retain_grad(view, old)
        role = old.role
        if role is not None and not alias.tracked and alias.place is None:
            if isinstance(role, Leaf):  # the contents are not needed any more
                old = Value(in_memory(old.aval, False))
                old.role = role
            alias.place = old
        view._value = None
        if view._views is not None:
            mark_views_stale(view)
    if not living:  # a tensor that is alone is written to without a look at what else it may overlap
        base._views = None


def _replace_value(target: TensorBase, value: Value) -> None:
    """`write` outside the tape; a shortcut if the target owns its storage and the type stays."""
    old = target._value
    if target._alias is None and old is not None and old.aval is value.aval and ambient().capture is None:
        role = old.role
        if not isinstance(role, Interior):
            value.role = role
            set_value(target, value)
            return
    with using(grad=False):
        _write(target, value)


write, replace_value = _write, _replace_value
"""`_write` and `_replace_value`, or their twins in the extension."""
if native is not None:
    native.bind(write=_write, replace_value=_replace_value, mark_views_stale=mark_views_stale)
    native.bind(detach_call=_DETACH, copy_call=_COPY)
    write, replace_value = native.write, native.replace_value


def _fitted(target: TensorBase, value: Value) -> Value:
    """`value`, cast and expanded to the target's type."""
    want, have = target._read().aval, value.aval
    check_names(want.names, have.names)
    check_shape(have.size, want.size)
    if have.dtype is not want.dtype and not want.dtype.is_quantized:  # for such, its form puts numbers on its grid
        check_cast(have.dtype, want.dtype)
        value = apply(call_of(TABLE["to_dtype"], (ONE, want.dtype)), (value,))[0]
    if have.size != want.size:
        value = apply(call_of(TABLE["broadcast_to"], (ONE, tuple(want.size))), (value,))[0]
    if have.names != want.names:
        value = renamed(value, want.names)
    return _owned_as(want, value)


def renamed(value: Value, names: Names | None) -> Value:
    """A value of the same elements whose dims have these names."""
    return apply(call_of(TABLE["renamed"], (ONE, names or (None,) * len(value.aval.shape))), (value,))[0]
