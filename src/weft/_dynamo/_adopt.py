"""Tensors that take the place of others, which the program holds already."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence

from weft._tensor.base import VALUE_SLOT, Alias, value_of
from weft._tensor.tensor import Tensor
from weft._tensor.view import attach


def adopt(old: Sequence[Tensor], new: Sequence[Tensor], kept: Collection[Tensor]) -> None:
    """Give each of some tensors what another one is: its value, its place in the graph, and what it is a view of.

    Tensors in `kept`, which others hold, and those that are given twice, are replaced by views of themselves.
    """
    occupied = {id(x) for x in kept}
    sources: list[Tensor] = []
    for x in new:
        sources.append(x.view_as(x) if id(x) in occupied else x)
        occupied.add(id(x))
    place_of = {id(source): target for target, source in zip(old, sources, strict=True)}
    for target, source in zip(old, sources, strict=True):
        VALUE_SLOT.__set__(target, value_of(source))
        target._alias, target._views, target._role = None, None, source._role
        if source._role is not None and source._role.owner is not None:
            source._role.owner = weakref.ref(target)
    for target, source in zip(old, sources, strict=True):
        alias = source._alias
        if alias is not None:
            base = place_of.get(id(alias.base), alias.base)
            moved = Alias(base, alias.steps, alias.tracked, hidden=alias.hidden)
            moved.place = alias.place
            attach(target, moved)
