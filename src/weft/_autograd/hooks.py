"""Hooks of a backward pass, over values: on the gradient of one value, and around the derivative of an application."""

from __future__ import annotations

from collections.abc import Sequence

from weft._autograd.graph import Vertex
from weft._autograd.node import count_outputs, edges_of
from weft._lazy.role import NodeHooks, Role
from weft._lazy.value import Value
from weft.errors import GradientError

Gradients = list[Value | None]
Cotangents = list[tuple[int, Value]]
"""Cotangents of outputs, by the index of the output."""


def hooked(role: Role, grad: Value) -> Value:
    """A gradient after the hooks of its value."""
    if role.hooks:
        for _, hook in sorted(role.hooks.items()):
            replacement = hook(grad)
            if replacement is not None and replacement.aval is not grad.aval:
                _check_replacement(hook.__name__, grad, replacement)
            grad = replacement or grad
    return grad


def before(attached: NodeHooks, place: Vertex | Role, cotangents: Cotangents) -> Cotangents:
    """The cotangents after what is called before an application's derivative, or before a leaf accumulates."""
    if not attached.before:
        return cotangents
    every = _by_output(place, cotangents)
    for _, hook in sorted(attached.before.items()):
        every = _replaced(hook.__name__, every, hook(tuple(every)))
    return [(index, grad) for index, grad in enumerate(every) if grad is not None]


def after(
    attached: NodeHooks,
    place: Vertex | Role,
    inputs: Sequence[Value],
    need: Sequence[int],
    grads: Gradients,
    cotangents: Cotangents,
) -> Gradients:
    """The gradients of the inputs `need` after what is called when an application was differentiated."""
    if not attached.after:
        return grads
    seen = edges_of(place)
    by_input: dict[int, Value | None] = dict(zip(need, grads, strict=True))
    every: Gradients = [by_input.get(i) for i in seen]
    outputs = tuple(_by_output(place, cotangents))
    for _, hook in sorted(attached.after.items()):
        every = _replaced(hook.__name__, every, hook(tuple(every), outputs))
    by_input.update(zip(seen, every, strict=True))
    return [by_input[i] for i in need]


def _by_output(place: Vertex | Role, cotangents: Cotangents) -> Gradients:
    every: Gradients = [None] * count_outputs(place)
    for index, grad in cotangents:
        every[index] = grad
    return every


def _replaced(hook: str, grads: Gradients, replacements: Sequence[Value | None] | None) -> Gradients:
    """Gradients with what a hook has returned, if that is not None."""
    if replacements is None:
        return grads
    if len(replacements) != len(grads):
        raise GradientError(
            f"hook '{hook}' has returned an incorrect number of values (got {len(replacements)}, but expected "
            f"{len(grads)})"
        )
    for old, new in zip(grads, replacements, strict=True):
        if new is None:
            continue
        if old is None:
            raise GradientError("can't replace a None gradient with a non-None value")
        if old.aval is not new.aval:
            _check_replacement(hook, old, new)
    return list(replacements)


def _check_replacement(hook: str, grad: Value, replacement: Value) -> None:
    old, new = grad.aval, replacement.aval
    if old.shape != new.shape:
        raise GradientError(
            f"hook '{hook}' has changed the size of value (was {list(old.shape)} got {list(new.shape)})"
        )
    if old.dtype is not new.dtype:
        raise GradientError(f"hook '{hook}' has changed the type of value (was {old.dtype} got {new.dtype})")
