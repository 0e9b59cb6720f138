"""The graph on which a backward pass runs, and what the pass leaves of it.

Before a pass, the tape consists of the recorded values themselves. A pass gives each application that it executes its
own role (`Executed`), which links to other such roles, to the roles of leaves, and to values that the pass has not
reached. So the graph of a loss that is kept holds no arrays, and applications that saved nothing can be executed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft._lazy.native import native
from weft._lazy.role import FREED, INTERIOR, Freed, Hooks, Interior, Leaf, NodeHooks, Role
from weft._lazy.value import OUTSIDE, PENDING, Executed, Link, Shared, Value
from weft.errors import GradientError

VertexKey = Leaf | int
"""Identifies a value in a pass: a leaf by its role, any other by the number of its recording."""

Vertex = Value | Executed

_new = object.__new__


def key_of(x: Link) -> VertexKey:
    """The key of a value or role; equal for all that are at the same place in the graph."""
    role = x.role
    assert role is not None, "only what takes part in differentiation has a place in the graph"
    if isinstance(role, Leaf):
        return role
    return role.time if isinstance(role, Executed) else x.time


def vertex_of(x: Vertex) -> Vertex:
    """The object with the links of a value's application: the value, or the tape left by a pass."""
    return x.role if isinstance(x.role, Executed) else x


def inputs_of(vertex: Vertex) -> tuple[Link, ...]:
    """The inputs of a vertex's application, or the links left by an earlier pass, possibly through another output."""
    inputs = vertex.inputs
    return inputs.links if type(inputs) is Shared and inputs.links is not None else inputs


def application_key(x: Value | Role) -> VertexKey:
    """Identifies the application that has made a value, for all its outputs; or a leaf."""
    family = _family_of(x)
    if family is None:
        return key_of(x)
    if family.key is None:
        family.key = vertex_of(x).time  # pyright: ignore[reportArgumentType]  no leaf's role
    return family.key


def is_spent(vertex: Vertex) -> bool:
    """Whether a pass has freed what the derivative reads."""
    role, inputs = vertex.role, vertex.inputs
    return (isinstance(role, Freed) and role.spent) or (type(inputs) is Shared and inputs.spent)


def hooks_of(x: Value | Role) -> Hooks:
    """The gradient hooks of what is on the tape; creates a role of its own for them if necessary."""
    role = x.role
    assert role is not None, "the caller has checked that a gradient flows"
    if isinstance(x, Value) and (role is INTERIOR or role is FREED):
        x.role = role = type(role)()
    if role.hooks is None:
        role.hooks = Hooks()
    return role.hooks


def node_hooks_of(x: Value | Role) -> NodeHooks:
    """What users have attached to the application that has made `x`, or to a leaf; creates it if necessary."""
    hooks = attached_to(x)
    if hooks is None:
        hooks = NodeHooks()
        family = _family_of(x)
        if family is None:
            hooks_of(x).node = hooks
        else:
            family.node = hooks
    return hooks


def attached_to(x: Value | Role) -> NodeHooks | None:
    """What users have attached to the application that has made `x`, or to a leaf."""
    family = _family_of(x)
    if family is not None:
        return family.node
    return None if x.role is None or x.role.hooks is None else x.role.hooks.node


def _family_of(x: Value | Role) -> Shared | None:
    """The inputs of an application with several outputs, which are the same object for all of these."""
    if not isinstance(x.role, Interior):
        return None
    inputs = inputs_of(vertex_of(x))  # pyright: ignore[reportArgumentType]  no leaf's role
    return inputs if type(inputs) is Shared else None


def has_own_derivative(value: Value) -> bool:
    """Whether a value's role has hooks or a user's derivative."""
    role = value.role
    return isinstance(role, Interior) and bool(role.custom or role.hooks or attached_to(value))


def leads_to(value: Value, is_end: Callable[[VertexKey], bool]) -> bool:
    """Whether gradients flow from a value to one whose key `is_end`, also through what a pass has executed."""
    stack: list[Link] = [value]
    seen: set[VertexKey] = set()
    while stack:
        x = stack.pop()
        if x.role is None:
            continue
        key = key_of(x)
        if key in seen:
            continue
        if is_end(key):
            return True
        seen.add(key)
        if not isinstance(x.role, Leaf):
            stack.extend(inputs_of(vertex_of(x)))
    return False


def second_backward_error() -> GradientError:
    """The error for a second pass over what the first pass has freed."""
    return GradientError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
        "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
        "saved tensors after calling backward."
    )


def mark_executed(value: Value, spent: bool, left: list[Executed]) -> None:
    """Give a value whose application was executed an `Executed`; `spent` if what its derivative read is freed."""
    passed: Executed = _new(Executed)
    role = value.role
    if role is INTERIOR:
        passed.hooks = passed.custom = passed.forward = None
        passed.site = ""
    else:
        assert isinstance(role, Interior), "only applications are executed"
        passed.hooks, passed.custom, passed.site = role.hooks, role.custom, role.site
        passed.forward = role.forward
        if role.release is not None:
            role.release()
    passed.spent = spent
    passed.origin = value.origin
    passed.inputs = value.inputs
    passed.time = value.time
    value.role = passed
    for extra in value.extras:
        extra.role = FREED
    if value.content is not PENDING:
        value.inputs = ()
        value.extras = ()
    left.append(passed)


class Held:
    """The graph between some values and what was recorded before a time, which is there after passes that free it."""

    def __init__(self, outputs: Iterable[Value], start: int) -> None:
        links = self._links = dict[Value, tuple[tuple[Value, ...], Interior, tuple[Value, ...]]]()
        stack = list(outputs)
        while stack:
            x = stack.pop()
            role, inputs = x.role, x.inputs
            if isinstance(role, Interior) and x.time > start and x not in links:
                stack.extend(inputs)
                if inputs and role.custom is None:  # what a user's derivative saved would be gone
                    links[x] = inputs, role, x.extras

    def restore(self) -> None:
        """Put back what was freed. Values are immutable, so what the derivatives read can be computed again."""
        for x, (inputs, role, extras) in self._links.items():
            if isinstance(x.role, Freed):
                x.inputs, x.role, x.extras = inputs, role, extras
                if type(inputs) is Shared:
                    inputs.links, inputs.spent = None, False


def _drop_values(left: Iterable[Executed]) -> None:
    """Replace the values in the links of executed applications by roles."""
    for passed in left:
        inputs = passed.inputs
        if type(inputs) is Shared:
            inputs.spent |= passed.spent
            passed.inputs = shared_links(inputs)
        elif len(inputs) == 1:
            passed.inputs = (_link(inputs[0]),)
        elif len(inputs) == 2:
            passed.inputs = (_link(inputs[0]), _link(inputs[1]))
        else:
            passed.inputs = links_to(inputs)


drop_values = _drop_values
"""`_drop_values`, or its twin in the extension."""
if native is not None:
    native.bind(drop_values=_drop_values)
    drop_values = native.drop_values


def shared_links(inputs: Shared) -> Shared:
    """The links to the inputs of an application with several outputs, the same object for all of these."""
    if inputs.links is None:
        inputs.links = Shared(links_to(inputs))
        inputs.links.node, inputs.links.key = inputs.node, inputs.key
    return inputs.links


def links_to(inputs: Iterable[Value]) -> tuple[Link, ...]:
    """What takes the place of inputs in a graph without arrays."""
    return tuple(map(_link, inputs))


def _link(x: Value) -> Value | Role:
    role = x.role
    if role is None:
        return x if x.aval.weak else OUTSIDE  # a number, such as an index, has no array
    return role if isinstance(role, (Freed, Leaf)) else x
