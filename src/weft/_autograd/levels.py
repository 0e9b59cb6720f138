"""Levels: the functions whose derivatives are being taken, and which values belong to which of them.

Each such function gets its arguments at places of their own in the graph. A value belongs to all functions whose places
it reaches along the graph, whenever it was recorded: what a pullback computes from a cotangent belongs to the function
that the cotangent comes from, even if the pullback is older. A place counts while its function runs. So what is handed
out by a transform stays on the tape exactly if gradients flow from it to a leaf, or to a place of a function that still
runs (`flows_out`). That is decided whenever something is handed out, and no order of recording is assumed.

Backward passes go by the tape, which `no_grad` turns off; tangents do not care for `no_grad`. While a function runs
that is differentiated forward, or a level of dual tensors is open, it notes what is recorded off the tape.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary, WeakValueDictionary

from weft._autograd.graph import VertexKey, key_of, leads_to
from weft._base.state import ambient
from weft._lazy.role import Interior, Leaf
from weft._lazy.value import Value, tick

Links = Mapping[Value, tuple[Value, ...]]
"""Values that were recorded off the tape, and the inputs of their applications."""

# no cell: calls within a level with tangents are not captured
_live: set[int] = set()  # the places of all functions that run; numbers are those of one process


class Level:
    """A function that is differentiated, or the time in which there are dual tensors.

    start    the number of the last recording before it
    places   the numbers of its places
    flowing  what was handed out to it and flows out, by number, so that loops do not visit all that came before
    links    what was recorded off the tape and may depend on the places, or was freed by a backward pass
    """

    __slots__ = ("flowing", "links", "places", "start")

    def __init__(self) -> None:
        self.start = tick()
        self.places: set[int] = set()
        self.flowing: WeakValueDictionary[VertexKey, Value] = WeakValueDictionary()
        self.links: WeakKeyDictionary[Value, tuple[Value, ...]] = WeakKeyDictionary()

    def add_place(self, place: Value) -> None:
        """Count what leads to `place` as belonging to the level, until it ends."""
        self.places.add(place.time)
        _live.add(place.time)
        if place.role is None:
            self.links[place] = ()

    def end(self) -> None:
        """Nothing belongs to the level any more."""
        _live.difference_update(self.places)

    def note(self, values: Sequence[Value], inputs: tuple[Value, ...]) -> None:
        """Keep the links of an application that was just recorded off the tape, if tangents may go through it."""
        for value in values:
            differentiable = value.origin is not None and value.origin.taped is not None
            if value.role is None and differentiable and any(map(self._may_depend, inputs)):
                self.links[value] = inputs

    def keep(self, values: Iterable[Value]) -> None:
        """Keep the links of values on the tape, which a backward pass is about to free."""
        for value in values:
            if value.inputs and self._may_depend(value):
                self.links.setdefault(value, value.inputs)

    def _may_depend(self, x: Value) -> bool:
        return x in self.links or (isinstance(x.role, Interior) and x.time > self.start)


# no cell: calls within a level with tangents are not captured
_OUTERMOST = Level()


def flows_out(value: Value) -> bool:
    """Whether gradients flow from a value to a leaf, or to a place that counts, so that it stays on the tape."""
    flowing = (ambient().context.transform or _OUTERMOST).flowing
    flows = leads_to(value, lambda key: isinstance(key, Leaf) or key in _live or key in flowing)
    if flows and isinstance(value.role, Interior):
        flowing[key_of(value)] = value
    return flows


def flows_past(value: Value, places: Container[VertexKey]) -> bool:
    """The same without counting some places."""
    return leads_to(value, lambda key: isinstance(key, Leaf) or (key in _live and key not in places))
