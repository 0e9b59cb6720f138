"""Tapes: how a value takes part in differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NodeHooks:
    """What users have attached to an application, through whichever of its outputs.

    before    (cotangent by output, or None) -> replacements or None; called before the derivative
    after     (gradient by input or None, cotangents) -> replacements or None; called after it
    metadata  a dict of the user's
    """

    __slots__ = ("after", "before", "metadata")

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self.after: dict[int, Any] = {}
        self.metadata: dict[Any, Any] = {}


class Hooks(dict[int, Any]):
    """The hooks on the gradient of a value, by key, and those of its application if it has no other output."""

    node: NodeHooks | None = None

    def __bool__(self) -> bool:
        return len(self) > 0 or self.node is not None


class Tape:
    """How a value takes part in differentiation.

    Most recorded values share `INTERIOR`. A value has its own tape if it is a leaf that accumulates a gradient, has
    hooks, has a user's derivative, if anomaly mode stores the line that made it, or if a backward pass has executed its
    application. Hooks map a gradient's value to another value, or to None to leave it.

    freed    a backward pass has executed the application, and needs none of its arrays any more
    spent    its derivative has read some of them, so it cannot be executed again
    custom   (cotangents by output, outputs) -> gradients of the inputs, for users' derivatives
    forward  tangents of the inputs, None for zero -> tangents by output, for users' derivatives that have forward mode
    release  frees what `custom` has saved
    """

    __slots__ = (
        "custom",
        "forward",
        "freed",
        "grad",
        "hooks",
        "leaf",
        "owner",
        "post_hooks",
        "release",
        "site",
        "spent",
    )

    KEEP = 1 << 62
    """The key of `retain_grad`'s hook: hooks run in the order of their keys, so it runs last."""

    def __init__(self, *, leaf: bool = False, freed: bool = False, site: str = "") -> None:
        self.leaf = leaf
        self.freed = freed
        self.spent = freed
        self.site = site
        self.grad: Any = None  # the tensor that a leaf has collected
        self.hooks: Hooks | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.owner: Any = None  # weak reference to the leaf's tensor
        self.custom: Any = None
        self.forward: Any = None
        self.release: Callable[[], None] | None = None

    @property
    def tape(self) -> Tape:
        """Itself: in the graph that a backward pass leaves, tapes replace their values."""
        return self


INTERIOR = Tape()
FREED = Tape(freed=True)
"""The tape of a value whose graph was freed completely."""
