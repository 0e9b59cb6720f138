"""Applications of which hooks have packed what their derivatives read (`autograd.graph.saved_tensors_hooks`).

Such an application gets a role of its own as soon as it is recorded. Like those that a backward pass leaves, it links
to other roles and holds no arrays; what the derivative reads comes from what the hooks have packed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from weft._autograd.derive import Derivative, derivative_of, on_tape, smooth_outputs
from weft._autograd.graph import links_to, shared_links
from weft._lazy.role import INTERIOR, Role
from weft._lazy.signature import Output
from weft._lazy.value import Executed, Link, Shared, Value
from weft.errors import GradientError


class Saved(Protocol):
    """What is left of a value until a derivative reads it."""

    def value(self) -> Value:
        """The value again, at its place in the graph."""
        ...

    def release(self) -> None:
        """Free what was kept."""
        ...


Save = Callable[[Value, Value | Role | None], Saved]
"""(a value, its place in the graph, or None for one outside of the tape) -> what is left of it."""

_new = object.__new__


class Packed(Executed):
    """The role of a value of whose application something has been saved apart.

    saved   what its derivative reads, by position among (*inputs, *outputs); the same dict for all outputs
    """

    __slots__ = ("saved",)
    saved: dict[int, Saved]

    def operands(self, derivative: Derivative) -> list[Value]:
        """The inputs and outputs that a derivative reads."""
        count = len(self.inputs)
        inputs = [self.saved[i].value() if i in self.saved else self.inputs[i] for i in derivative.inputs]
        return inputs + [self.saved[count + i].value() for i in derivative.outputs]

    def drop(self, spent: bool) -> None:
        """Free what was saved, after a backward pass that has executed the application."""
        for saved in self.saved.values():
            saved.release()
        self.saved.clear()
        self.spent = spent
        if type(self.inputs) is Shared:
            self.inputs.spent |= spent


def save_apart(values: tuple[Value, ...], save: Save) -> None:
    """Keep what the derivative of an application reads by `save`; `values` are its main outputs, just recorded."""
    outputs = (*values, *values[0].extras)
    smooth = [value for value in outputs if value.role is INTERIOR]
    if not smooth:
        return
    origin, inputs = smooth[0].origin, smooth[0].inputs
    assert origin is not None, "only applications are inside of the tape"
    signature = origin.signature
    try:
        derivative = derivative_of(signature, on_tape(inputs), smooth_outputs(signature))
    except GradientError:  # no derivative: a backward pass raises
        return
    links = shared_links(inputs) if type(inputs) is Shared else links_to(inputs)
    saved: dict[int, Saved] = {}
    for value in smooth:
        assert value.origin is not None, "only applications are inside of the tape"
        value.role = _leaf_of(value.origin, value.time, links, saved)
    for i in derivative.inputs:
        if not inputs[i].aval.weak:
            saved[i] = save(inputs[i], None if inputs[i].role is None else links[i])
    for i in derivative.outputs:
        saved[len(inputs) + i] = save(outputs[i], outputs[i].role)
    values[0].extras = ()


def _leaf_of(origin: Output, time: int, links: tuple[Link, ...], saved: dict[int, Saved]) -> Packed:
    role: Packed = _new(Packed)
    role.hooks = role.custom = role.forward = None
    role.site = ""
    role.spent = False
    role.origin, role.inputs, role.time = origin, links, time
    role.saved = saved
    return role
