"""Aliases: tensors that read, and write, a part of another one.

A view holds its base and the path of view operators that leads to it. Reading replays the path when the base has been
written since; writing computes a new base through the path. Both are ordinary recorded operators, so gradients
follow, and values saved for a backward pass stay what they were.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from weft._base.dtype import can_cast
from weft._base.state import ambient, using
from weft._dispatch import apply
from weft._lazy.infer import ONE, Call, call_of
from weft._lazy.value import Value
from weft.errors import DTypeError, InPlaceError, ShapeError
from weft.ops._dims import broadcast_shapes
from weft.ops._table import TABLE, Kind, OpDef, Param
from weft.ops._words import scalar_word

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor

Step = tuple[Call, tuple[Value, ...]]


class Alias:
    """What a view is a view of.

    base     the tensor that owns the storage, itself no view
    steps    view operators from the base on, each with its inputs after the first
    tracked  whether gradients of the view flow to the base
    """

    __slots__ = ("base", "steps", "tracked")

    def __init__(self, base: Tensor, steps: tuple[Step, ...], tracked: bool) -> None:
        self.base = base
        self.steps = steps
        self.tracked = tracked


def make_view(result: Tensor, source: Tensor, call: Call, others: tuple[Value, ...]) -> Tensor:
    """Mark `result`, which is `call` applied to `source`, as a view of it."""
    alias = source._alias
    tracked = ambient().grad and call.op.differentiable
    if alias is None:
        base = source
        steps: tuple[Step, ...] = ((call, others),)
    else:
        base = alias.base
        steps = (*alias.steps, (call, others))
        tracked = tracked and alias.tracked
    result._alias = Alias(base, steps, tracked)
    views = base._views
    if views is None:
        base._views = [weakref.ref(result)]
        return result
    if len(views) >= 16 and not len(views) & (len(views) - 1):  # at powers of two, forget the dead
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(result))
    return result


def refresh(view: Tensor) -> Value:
    """The value of a view whose base has been written since it was last read."""
    alias = view._alias
    assert alias is not None, "only views are stale"
    value = _read_base(alias)
    with using(grad=alias.tracked):
        for call, others in alias.steps:
            value = apply(call, (value, *others))[0]
    view._value = value
    return value


def _read_base(alias: Alias) -> Value:
    """The value of what a view is a view of, as an operator reads it."""
    value = alias.base._read()
    capture = ambient().capture
    if capture is not None:
        capture.read(alias.base, value)
    return value


def is_view_of(result: Tensor, source: Tensor) -> bool:
    """Whether `result` is another handle on the storage of `source`."""
    if result._alias is None or result is source:
        return False
    return result._alias.base is (source if source._alias is None else source._alias.base)


def become(target: Tensor, result: Tensor) -> Tensor:
    """Make `target` its own view `result`, as `t_()` does. Where it owned its storage, a hidden tensor does now."""
    state = ambient()
    _check_writable(target, state.grad)
    old, value, alias = target._read(), result._read(), result._alias
    assert alias is not None, "only views are taken on"
    if alias.base is target:
        base = object.__new__(type(target))
        base._value, base._version, base._views = old, target._version, target._views
        for ref in base._views or ():
            view = ref()
            if view is not None and view._alias is not None:
                view._alias.base = base
        base._views = [*(base._views or ()), weakref.ref(target)]
        target._views = None
    if old.tape is not None and old.tape.leaf:
        value.tape = old.tape
    target._alias = Alias(alias.base, alias.steps, alias.tracked)
    target._value = value
    target._version += 1
    if state.capture is not None:
        state.capture.wrote(target, old)
    return target


def write(target: Tensor, value: Value) -> Tensor:
    """Make a freshly recorded value the contents of `target` and of all that alias it.

    The value is cast and expanded to the target's type. `RuntimeError` for a leaf that requires a gradient in grad
    mode, a shape that does not broadcast to the target's, a type that cannot be cast, and a target that overlaps
    itself.
    """
    state = ambient()
    _check_writable(target, state.grad)
    value = _fitted(target, value)
    alias = target._alias
    if alias is None:
        _set_base(target, value, state.grad)
        return target
    grad = state.grad and alias.tracked
    with using(grad=grad):
        chain = [_read_base(alias)]
        for call, others in alias.steps[:-1]:
            chain.append(apply(call, (chain[-1], *others))[0])
        new = value
        for (call, others), old in zip(reversed(alias.steps), reversed(chain), strict=True):
            if call.op.write is None and prod(old.aval.shape) < prod(new.aval.shape):
                raise InPlaceError(
                    "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                    "location. Please clone() the tensor before performing the operation."
                )
            new = apply(_writing(call), (old, new, *others))[0]
    _set_base(alias.base, new, grad)
    target._value = value
    return target


def _check_writable(target: Tensor, grad: bool) -> None:
    tape = target._read().tape
    alias = target._alias
    if not grad or (alias is not None and not alias.tracked):
        return
    if tape is not None and tape.leaf:
        raise InPlaceError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Write inside torch.no_grad(), or to a clone()"
        )
    if alias is not None:
        root = alias.base._read().tape
        if root is not None and root.leaf:
            raise InPlaceError(
                "a view of a leaf Variable that requires grad is being used in an in-place operation. "
                "Write inside torch.no_grad(), or to a view of a clone()"
            )


def _fitted(target: Tensor, value: Value) -> Value:
    """`value`, cast and expanded to the target's type."""
    want, have = target._read().aval, value.aval
    if have.shape != want.shape and broadcast_shapes(want.shape, have.shape) != want.shape:
        raise ShapeError(
            f"output with shape {list(want.shape)} doesn't match the broadcast shape "
            f"{list(broadcast_shapes(want.shape, have.shape))}"
        )
    if have.dtype is not want.dtype:
        if not can_cast(have.dtype, want.dtype):
            raise DTypeError(
                f"result type {scalar_word(have.dtype)} can't be cast to the desired output type "
                f"{scalar_word(want.dtype)}"
            )
        value = apply(call_of(TABLE["to_dtype"], (ONE, want.dtype)), (value,))[0]
    if have.shape != want.shape:
        value = apply(call_of(TABLE["broadcast_to"], (ONE, want.shape)), (value,))[0]
    return value


def _set_base(base: Tensor, value: Value, grad: bool) -> None:
    old = base._read()
    tape = old.tape
    if tape is not None and not grad:
        if tape.leaf:
            value.tape = tape
        elif not tape.freed:  # the graph does not see a write made without it
            with using(grad=True):
                value = apply(call_of(TABLE["carry"], (ONE, ONE)), (old, value))[0]
    set_value(base, value)
    capture = ambient().capture
    if capture is not None:
        capture.wrote(base, old)


def set_value(base: Tensor, value: Value) -> None:
    """Point a tensor that owns its storage to another value; its views are read anew."""
    base._value = value
    base._version += 1
    for ref in base._views or ():
        view = ref()
        if view is not None:
            view._value = None


def replace_value(target: Tensor, value: Value) -> None:
    """`write` outside of the tape, short where the target owns its storage and the type stays."""
    old = target._value
    if target._alias is None and old is not None and old.aval is value.aval and ambient().capture is None:
        tape = old.tape
        if tape is None or tape.leaf:
            value.tape = tape
            set_value(target, value)
            return
    with using(grad=False):
        write(target, value)


@lru_cache(maxsize=512)
def _writing(call: Call) -> Call:
    """The call that writes through a view call: (base, value, its other inputs) -> new base."""
    return call_of(_write_row(call.op), (ONE, ONE, *call.static[1:]))


@lru_cache(maxsize=256)
def _write_row(op: OpDef) -> OpDef:
    params = (Param("base", Kind.ARRAY), Param("value", Kind.ARRAY), *op.params[1:])
    body = op.write or partial(_write_by_transpose, op.impl)
    return OpDef(f"{op.name}_write", body, params, grad_name="CopySlices")


def _write_by_transpose(view: Callable[..., Any], base: jax.Array, value: jax.Array, *rest: Any, **static: Any) -> Any:
    """Write through any view operator: it only moves elements, so its linear transpose puts them back."""
    if not jnp.issubdtype(base.dtype, jnp.inexact):
        wide = base.dtype.itemsize == 8
        as_float, back = _through_bits(base.dtype) if wide else _through_float64(base.dtype)
        return back(_write_by_transpose(view, as_float(base), as_float(value), *rest, **static))
    put_back = jax.linear_transpose(lambda x: view(x, *rest, **static), base)
    (mask,) = put_back(jnp.ones_like(value))
    (moved,) = put_back(value)
    return jnp.where(mask != 0, moved, base)


def _through_bits(dtype: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return partial(jax.lax.bitcast_convert_type, new_dtype=jnp.float64), partial(
        jax.lax.bitcast_convert_type, new_dtype=dtype
    )


def _through_float64(dtype: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (lambda x: x.astype(jnp.float64)), (lambda x: x.astype(dtype))
