"""The state of a tensor: its value, its place in a backward pass, and the elements that it shares with others."""

from __future__ import annotations

import weakref
from typing import Any

from weft._base.dtype import DType
from weft._lazy.infer import Call
from weft._lazy.tape import Tape
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


class TensorBase(Derived):
    """What views, writes and captures need of a tensor."""

    _value: Value | None  # None in a view whose base has been written since
    _alias: Alias | None = None
    _views: list[weakref.ref[TensorBase]] | None = None
    _tape: Tape | None = None  # what a leaf collects its gradient in
    _writes: int = 0  # of a tensor that owns its storage: how often that was written
    _overwritten: int = 0  # of such a tensor: the number of its last value that was in memory before it was written
    _address: Memory | None = None  # of a tensor that owns its storage: where it can be read, once somebody has asked
    _storage: weakref.ref[Any] | None = None  # of a tensor that owns its storage: the object that users have for that
    _resized: bool = False  # whether this is all of a storage that was resized, in one dim; no user holds it
    _memory: Any = None  # of a tensor that owns its storage: the `NumPyMemory` that shows the same, if there is one

    def _read(self) -> Value:
        """The current value."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._read().aval.dtype
