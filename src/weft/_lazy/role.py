"""Roles: how a value takes part in differentiation.

| role       | the value                                                          | a backward pass                   |
|------------|--------------------------------------------------------------------|-----------------------------------|
| None       | depends on nothing that requires a gradient                        | does not see it                   |
| `Leaf`     | is a leaf that requires a gradient                                 | ends here, and adds to `grad`     |
| `Interior` | is an output of an application through which gradients flow        | goes on to the inputs             |
| `Executed` | is one whose application a pass has executed (`_lazy/value.py`)    | goes on by the links that it left |
| `Freed`    | is one of which nothing is left, as only the derivative has seen it | is refused                        |
"""

from __future__ import annotations

from collections.abc import Callable

from weft._base.types import AnyCallable, Arg
from weft._lazy.native import native


class NodeHooks:
    """What users have attached to an application, through whichever of its outputs.

    before    (cotangent by output, or None) -> replacements or None; called before the derivative
    after     (gradient by input or None, cotangents) -> replacements or None; called after it
    metadata  a dict of the user's
    """

    __slots__ = ("after", "before", "metadata")

    def __init__(self) -> None:
        self.before: dict[int, AnyCallable] = {}
        self.after: dict[int, AnyCallable] = {}
        self.metadata: dict[object, object] = {}


class Hooks(dict[int, AnyCallable]):
    """The hooks on the gradient of a value, by key, and those of its application if it has no other output."""

    node: NodeHooks | None = None

    def __bool__(self) -> bool:
        return len(self) > 0 or self.node is not None


class Role:
    """How a value takes part in differentiation.

    hooks  on the gradient of the value; they map it to another value, or to None to leave it
    """

    __slots__ = ("hooks",)
    hooks: Hooks | None

    KEEP = 1 << 62
    """The key of `retain_grad`'s hook: hooks run in the order of their keys, so it runs last."""

    @property
    def role(self) -> Role:
        """Itself: in the graph that a backward pass leaves, roles replace their values."""
        return self


class Leaf(Role):
    """The value is a leaf; here the gradients of all backward passes are added up.

    grad        the tensor that it has collected, or None
    owner       a weak reference to the leaf's tensor, or None
    post_hooks  called when a gradient has been added
    """

    __slots__ = ("grad", "owner", "post_hooks")

    def __init__(self) -> None:
        self.hooks = None
        self.grad: Arg = None  # a tensor, whose type is defined above this module
        self.owner: Arg = None
        self.post_hooks: dict[int, AnyCallable] | None = None


class Retained(Leaf):
    """Collects the gradient of a tensor whose value is interior (`retain_grad`). No value's role."""

    __slots__ = ()


class Interior(Role):
    """The value is an output of an application through which gradients flow.

    Most recorded values share `INTERIOR`. A value has its own if it has hooks or a user's derivative, or if anomaly
    mode stores the line that made it.

    custom   (cotangents by output, outputs) -> gradients of the inputs, for users' derivatives
    forward  tangents of the inputs, None for zero -> tangents by output, for users' derivatives that have forward mode
    release  frees what `custom` has saved
    """

    __slots__ = ("custom", "forward", "release", "site")

    def __init__(
        self, *, site: str = "", custom: AnyCallable | None = None, release: Callable[[], None] | None = None
    ) -> None:
        self.hooks = None
        self.site = site
        self.custom = custom
        self.forward: AnyCallable | None = None
        self.release = release


class Freed(Interior):
    """A backward pass has executed the application, and needs none of its arrays any more.

    spent  whether its derivative has read some of them, so that it cannot be executed again
    """

    __slots__ = ()
    spent = True


def custom_of(role: Role | None) -> AnyCallable | None:
    """The user's derivative of the application that has made a value with this role, or None."""
    return role.custom if isinstance(role, Interior) else None


INTERIOR = Interior()
FREED = Freed()

if native is not None:
    native.bind(Leaf=Leaf, Interior=Interior, Freed=Freed, INTERIOR=INTERIOR, FREED=FREED)
