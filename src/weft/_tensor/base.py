"""The state of a tensor: its value, its place in a backward pass, and the elements that it shares with others."""

from __future__ import annotations

from typing import TypeVar

from weft._lazy.infer import Call
from weft._lazy.native import native
from weft._lazy.value import Value
from weft._tensor.state import NO_FACTS
from weft._tensor.state import TensorBase as TensorBase
from weft.ops._strides import Layout

PathStep = tuple[Call, tuple[Value, ...]]
Path = tuple[PathStep, ...]


class Alias:
    """The relation of a view to its base. A view is tracked, or it is apart: a leaf, or a tensor with its own graph.

    base     where the path starts: for a view that is apart, the owner of the storage; for a tracked view, the nearest
             tensor with its own place in the graph, which is the owner of the storage or a view that is apart
    steps    view operators from the base on, each with its inputs after the first; empty if all elements are shared
    tracked  whether gradients of the view flow to the base
    hidden   whether no user holds the base, because the view has taken its place, as by `x.t_()`
    place    for a view that is apart, requires a gradient and is stale or cannot be read: a value with its place in the
             graph
    layout   where the elements lie, once it has been computed
    """

    __slots__ = ("base", "hidden", "layout", "place", "steps", "tracked")

    def __init__(self, base: TensorBase, steps: Path, tracked: bool, *, hidden: bool = False) -> None:
        self.base = base
        self.steps = steps
        self.tracked = tracked
        self.hidden = hidden
        self.place: Value | None = None
        self.layout: Layout | None = None


if native is not None:
    native.bind(Alias=Alias)

T = TypeVar("T", bound=TensorBase)
VALUE_SLOT = vars(TensorBase)["_value"]
"""The place of a tensor's value. Overriding classes have another attribute of that name."""


def new_handle(kind: type[T]) -> T:
    """A tensor of a class, which does not have a value yet."""
    handle = object.__new__(kind)
    handle._facts = NO_FACTS
    return handle


def value_of(tensor: TensorBase) -> Value | None:
    """The value of a tensor, also of an overriding class; None for a view to be computed anew, and a new tensor."""
    try:
        return VALUE_SLOT.__get__(tensor)
    except AttributeError:
        return None
