"""The state of a tensor: its value, its place in a backward pass, and the elements that it shares with others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

from weft._base.dtype import DType
from weft._lazy.infer import Call
from weft._lazy.role import Leaf
from weft._lazy.value import Value
from weft._tensor.derived import Derived
from weft._tensor.memory import Memory
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


class Facts:
    """What is to be known of a tensor besides its value: of most tensors nothing, so these share one object.

    alias        its relation to the tensor of which it is a view
    views        its views
    role         what a leaf collects its gradient in
    writes       of a tensor that owns its storage: how often that was written
    overwritten  of such a tensor: the number of its last value that was in memory before it was written
    address      of a tensor that owns its storage: where it can be read, once somebody has asked
    storage      of a tensor that owns its storage: the object that users have for that
    resized      whether this is all of a storage that was resized, in one dim; no user holds it
    memory       of a tensor that owns its storage: the `NumPyMemory` that shows the same, if there is one
    """

    alias: Alias | None = None
    views: list[weakref.ref[TensorBase]] | None = None
    role: Leaf | None = None
    writes: int = 0
    overwritten: int = 0
    address: Memory | None = None
    storage: weakref.ref[Any] | None = None
    resized: bool = False
    memory: Any = None


NO_FACTS = Facts()
"""Those of a new tensor."""


def _fact(name: str) -> Any:
    """The attribute of a tensor that is one of its facts."""

    def write(tensor: TensorBase, value: Any) -> None:
        facts = tensor._facts
        if facts is NO_FACTS:
            facts = tensor._facts = Facts()
        setattr(facts, name, value)

    return property(attrgetter(f"_facts.{name}"), write)


class TensorBase(Derived):
    """What views, writes and captures need of a tensor.

    Its state is in slots, because a tensor's `__dict__` is its user's: programs copy, pickle and pass on what is in it.
    """

    __slots__ = ("_facts", "_value")
    _value: Value | None  # None in a view whose base has been written since
    _facts: Facts
    _alias: Alias | None = _fact("alias")
    _views: list[weakref.ref[TensorBase]] | None = _fact("views")
    _role: Leaf | None = _fact("role")
    _writes: int = _fact("writes")
    _overwritten: int = _fact("overwritten")
    _address: Memory | None = _fact("address")
    _storage: weakref.ref[Any] | None = _fact("storage")
    _resized: bool = _fact("resized")
    _memory: Any = _fact("memory")

    def _read(self) -> Value:
        """The current value."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._read().aval.dtype


current_value: Callable[[TensorBase], Value] = methodcaller("_read")
"""The current value of a tensor."""

T = TypeVar("T", bound=TensorBase)
VALUE_SLOT: Any = vars(TensorBase)["_value"]
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
