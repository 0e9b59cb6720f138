"""Dimension rules: where each output dim comes from.

A rule gives every dim a letter. Dims with equal letters carry one name, and may be split together over a mesh axis; so
names and shardings follow from it. Where only one of the two is true, the letter is wrapped: in `NameOf` or `PartOf`.
The rule also checks that shapes fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias, cast

from weft.errors import DimError, ShapeError
from weft.ops._kinds import Dims

Sizes = tuple[int, ...]
Static: TypeAlias = Mapping[str, Any]
"""The static arguments of a call, by name: each row knows the types of its own."""
Letter = Hashable
Letters = tuple[Letter, ...]
Names = tuple[str | None, ...]
"""The names of the dims of a tensor."""


@dataclass(frozen=True, slots=True)
class NameOf:
    """A dim that carries the name of the dims with this letter, but is not split when they are."""

    letter: Letter


@dataclass(frozen=True, slots=True)
class PartOf:
    """A dim that is split with the dims with this letter, but does not carry their name."""

    letter: Letter


@dataclass(frozen=True, slots=True)
class Called:
    """A dim of the output with this name, whatever the names of the inputs; split with the dims with this letter."""

    letter: Letter
    name: str | None


@dataclass(frozen=True, slots=True)
class Else:
    """A dim with the name of the dims with this letter or, if that has none, of `other`; split with the former."""

    letter: Letter
    other: Letter


@dataclass(frozen=True, slots=True)
class Factors:
    """Letters of the dims of each input and output. `whole` letters may not be split over a mesh axis.

    If `separate`, an output with dims depends only on inputs that share a letter with it, directly or through others.

    Where two dims of a result would have one name, the one that comes from the first input keeps it, else the first;
    for `product`, that is an error.
    """

    ins: tuple[Letters, ...]
    outs: tuple[Letters, ...]
    whole: frozenset[Letter] = frozenset()
    product: bool = False
    separate: bool = False


# (shapes of the tensor inputs, static arguments by name) -> letters
Rule = Callable[[Sequence[Sizes], Static], Factors]
OfShapes = Callable[[Sequence[Sizes]], Factors]
"""A rule that needs no static arguments."""


def rule_of(dims: Rule | OfShapes) -> Rule:
    """The rule that is given static arguments too, whether or not it needs them."""
    if len(inspect.signature(dims).parameters) == 2:
        return cast(Rule, dims)
    of_shapes = cast(OfShapes, dims)
    return lambda shapes, static: of_shapes(shapes)


def broadcast_shapes(*shapes: Sizes) -> Sizes:
    """The shape that all of these broadcast to. Raises `RuntimeError` in PyTorch's words when there is none."""
    out: list[int] = []
    for shape in shapes:
        merged: list[int] = []
        ndim = max(len(out), len(shape))
        for back, (a, b) in enumerate(zip_longest(reversed(out), reversed(shape), fillvalue=1)):
            if a != b and a != 1 and b != 1:
                raise ShapeError(
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) "
                    f"at non-singleton dimension {ndim - 1 - back}"
                )
            merged.append(b if a == 1 else a)
        out = merged[::-1]
    return tuple(out)


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    """The number of elements of a diagonal of a matrix."""
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


def wrap_dim(dim: int, ndim: int) -> int:
    """A dim counted from the front; `IndexError` in PyTorch's words if there is none such. No dims count as one."""
    span = max(ndim, 1)
    if not -span <= dim < span:
        raise DimError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim % span


def shared_letter(letter: Letter) -> Letter:
    """The letter that dims which are split together have in common; None for a dim that is split by itself alone."""
    if isinstance(letter, PartOf | Called | Else):
        return letter.letter
    return None if isinstance(letter, NameOf) else letter


def name_letter(letter: Letter) -> Letter:
    """The letter that dims with one name have in common; None for a dim whose name is nobody else's, and for `Else`."""
    if isinstance(letter, NameOf):
        return letter.letter
    return None if isinstance(letter, PartOf | Called | Else) else letter


def require_sizes(sizes: Sequence[int]) -> None:
    """Raise `RuntimeError` if a size is negative."""
    if any(size < 0 for size in sizes):
        raise ShapeError(f"Trying to create tensor with negative dimension {min(sizes)}: {list(sizes)}")


def pointwise(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For inputs that broadcast: an output dim has the letter of the input dims that are aligned with it."""
    del static
    ndim = len(broadcast_shapes(*shapes))
    return Factors(tuple(tuple(range(ndim - len(s), ndim)) for s in shapes), (tuple(range(ndim)),))


def _dims_of(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The dims that a `dim` argument names; None and () mean all."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    return tuple(wrap_dim(d, ndim) for d in dims)


def reduces(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For reductions: the dims in `dim` disappear, or under `keepdim` have size one and keep their names."""
    ndim = len(shapes[0])
    gone = _dims_of(static.get("dim"), ndim)
    keep = static.get("keepdim", False)
    out = tuple((NameOf(d) if d in gone else d) for d in range(ndim) if keep or d not in gone)
    return Factors((tuple(range(ndim)),), (out,))


def along(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For rows that work along `dim`: all dims stay, and `dim` must be whole."""
    ndim = len(shapes[0])
    letters = tuple(range(ndim))
    return Factors((letters,), (letters,), frozenset(_dims_of(static.get("dim"), ndim)))


def given_names(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For the row that names dims: those of the result have the names in the argument `names`."""
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (tuple(map(Called, letters, static["names"])),))


def from_size(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For rows without tensor inputs: no output dim comes from an input dim."""
    del shapes
    size = static.get("size", ())
    require_sizes(size)
    return Factors((), (tuple(f"new:{i}" for i in range(len(size))),))


def einsum(equation: str, *, product: bool = False) -> OfShapes:
    """The rule that an equation such as `"... m k, ... k n -> ... m n"` states; `...` broadcasts.

    Names of contracted dims are not compared. `product` is as in `Factors`.
    """
    left, right = equation.split("->")
    in_terms = [term.split() for term in left.split(",")]
    out_terms = [term.split() for term in right.split(",")]
    kept = {letter for term in out_terms for letter in term}

    def rule(shapes: Sequence[Sizes]) -> Factors:
        batch = [s[: len(s) - (len(t) - 1)] if "..." in t else () for s, t in zip(shapes, in_terms, strict=False)]
        ndim = len(broadcast_shapes(*batch))

        def spell(term: list[str], lead: int) -> Letters:
            letters: list[Letter] = []
            for letter in term:
                if letter == "...":
                    letters.extend(range(ndim - lead, ndim))
                else:
                    letters.append(letter if letter in kept else PartOf(letter))
            return tuple(letters)

        ins = tuple(spell(t, len(b)) for t, b in zip(in_terms, batch, strict=False))
        return Factors(ins, tuple(spell(t, ndim) for t in out_terms), product=product)

    return rule
