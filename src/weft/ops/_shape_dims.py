"""Dimension rules of the operators that move elements without computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from weft.errors import ShapeError
from weft.ops._dims import Factors, Rule, Sizes


def regrouped(old: Sizes, new: Sizes) -> Factors:
    """Letters of a reshape.

    Each group of old dims that becomes a group of new dims passes on the letter of its outermost dim. Blocks of that
    dim stay contiguous, so the letter may be split wherever both sizes can be divided.
    """
    letters: list[Any] = [f"new:{j}" for j in range(len(new))]
    sources = [i for i, size in enumerate(old) if size != 1]
    targets = [j for j, size in enumerate(new) if size != 1]
    while sources and targets and prod(old):
        source, target = sources.pop(0), targets.pop(0)
        letters[target] = source
        a, b = old[source], new[target]
        while a != b:
            if a < b:
                a *= old[sources.pop(0)]
            else:
                b *= new[targets.pop(0)]
    return Factors((tuple(range(len(old))),), (tuple(letters),))


def same(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
    """Every dim stays and none may be split, because positions along them matter."""
    del static
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters,), frozenset(letters))


def square(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
    """Every dim stays; the last two must be whole."""
    del static
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters,), frozenset(letters[-2:]))


def fresh(ndim: int) -> Rule:
    """None of the `ndim` output dims comes from an input dim."""

    def rule(shapes: Sequence[Sizes], static: Mapping[str, Any]) -> Factors:
        del static
        ins = tuple(tuple(f"in:{n}:{i}" for i in range(len(s))) for n, s in enumerate(shapes))
        return Factors(ins, (tuple(f"new:{i}" for i in range(ndim)),), frozenset(x for t in ins for x in t))

    return rule


def permuted(order: Sequence[int]) -> Factors:
    """Letters when output dim `i` is input dim `order[i]`."""
    return Factors((tuple(range(len(order))),), (tuple(order),))


def once(dims: Sequence[int]) -> None:
    """Raise `RuntimeError` when a dim is listed twice."""
    for dim in dims:
        if dims.count(dim) > 1:
            raise ShapeError(f"dim {dim} appears multiple times in the list of dims")
