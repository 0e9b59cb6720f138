"""Dimension rules of the operators that move elements without computing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from weft.errors import ShapeError
from weft.ops._dims import Factors, Letter, NameOf, OfShapes, PartOf, Sizes


def regrouped(old: Sizes, new: Sizes, kept: Mapping[int, int] | None = None) -> Factors:
    """Letters of a reshape.

    Each group of old dims that becomes a group of new dims passes on the letter of its outermost dim. Blocks of that
    dim stay contiguous, so the letter may be split wherever both sizes can be divided.

    A new dim has the name of the old dim that it has in `kept`. By default these are the groups of one dim, and the
    first and the last dims as long as their sizes stay.
    """
    groups = list(_groups(old, new))
    letters: list[Letter] = [f"new:{j}" for j in range(len(new))]
    for sources, targets in groups:
        letters[targets[0]] = PartOf(sources[0])
    if kept is None:
        kept = _ends(old, new) | {j: i for (i, *more), (j, *others) in groups if not more and not others}
    for target, source in kept.items():
        letters[target] = source if letters[target] == PartOf(source) else NameOf(source)
    return Factors((tuple(range(len(old))),), (tuple(letters),))


def _groups(old: Sizes, new: Sizes) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of old dims that become groups of new dims, without dims of size one."""
    sources = [i for i, size in enumerate(old) if size != 1]
    targets = [j for j, size in enumerate(new) if size != 1]
    while sources and targets and prod(old):
        group = [sources.pop(0)], [targets.pop(0)]
        a, b = old[group[0][0]], new[group[1][0]]
        while a != b:
            if a < b:
                group[0].append(sources.pop(0))
                a *= old[group[0][-1]]
            else:
                group[1].append(targets.pop(0))
                b *= new[group[1][-1]]
        yield group


def _ends(old: Sizes, new: Sizes) -> dict[int, int]:
    """For new dims, the old ones at their place from the front or the back, as long as all sizes up to there agree."""
    back = [a == b for a, b in zip(reversed(old), reversed(new), strict=False)]
    front = [a == b for a, b in zip(old, new, strict=False)]
    last = (*back, False).index(False)
    first = (*front, False).index(False)
    return {len(new) - 1 - k: len(old) - 1 - k for k in range(last)} | {k: k for k in range(first)}


def same(shapes: Sequence[Sizes]) -> Factors:
    """Every dim stays and none may be split, because positions along them matter."""
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters,), frozenset(letters))


def square(shapes: Sequence[Sizes]) -> Factors:
    """Every dim stays; the last two must be whole."""
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters,), frozenset(letters[-2:]))


def fresh(ndim: int) -> OfShapes:
    """None of the `ndim` output dims comes from an input dim."""

    def rule(shapes: Sequence[Sizes]) -> Factors:
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
