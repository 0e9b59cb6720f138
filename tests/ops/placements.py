"""From a row's dim rule to runs over parts: how inputs may be split in two, and how the results are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from weft.ops._dims import Factors, shared_letter

Part = Callable[[jax.Array], list[jax.Array]]


@dataclass(frozen=True)
class Placement:
    """One way to run an operator on two parts: what each gets of each input, and how each output is joined."""

    name: str
    parts: tuple[Part, ...]
    joins: tuple[Callable[[list[jax.Array]], jax.Array], ...]


def whole(x: jax.Array) -> list[jax.Array]:
    """Each part gets all of it."""
    return [x, x]


def halves(dim: int) -> Part:
    """Each part gets a half along a dim."""
    return lambda x: jnp.split(x, 2, dim)


def addends(x: jax.Array) -> list[jax.Array]:
    """Two arrays that add up to it."""
    return [x * 0.25, x * 0.75]


_COMBINE: dict[str, Callable[[list[jax.Array]], jax.Array]] = {
    "sum": lambda parts: parts[0] + parts[1],
    "prod": lambda parts: parts[0] * parts[1],
    "max": lambda parts: jnp.maximum(*parts),
    "min": lambda parts: jnp.minimum(*parts),
}


def split(factors: Factors, shapes: Sequence[tuple[int, ...]], partial: str) -> Iterator[Placement]:
    """A placement for each letter that may be split, and whose dims are even."""
    ins, outs = ([tuple(map(shared_letter, dims)) for dims in side] for side in (factors.ins, factors.outs))
    for letter in dict.fromkeys(x for dims in ins for x in dims if x is not None):
        found = [(dims.index(letter), shape) for dims, shape in zip(ins, shapes, strict=True) if letter in dims]
        sizes = {shape[dim] for dim, shape in found} - {1}
        lost = any(letter not in dims for dims in outs)
        if letter in factors.whole or len(sizes) != 1 or sizes.pop() % 2 or (lost and not partial):
            continue
        parts = [
            halves(dims.index(letter)) if letter in dims and shape[dims.index(letter)] > 1 else whole
            for dims, shape in zip(ins, shapes, strict=True)
        ]
        joins = [_along(dims.index(letter)) if letter in dims else _COMBINE[partial] for dims in outs]
        yield Placement(f"letter {letter!r} split", tuple(parts), tuple(joins))


def _along(dim: int) -> Callable[[list[jax.Array]], jax.Array]:
    return lambda parts: jnp.concatenate(parts, dim)


def pending_sums(inputs: Sequence[Any], outputs: int, linear: str) -> Iterator[Placement]:
    """Placements in which one input (`each`) or all of them (`all`) are sums that nobody has added up yet."""
    joins = (_COMBINE["sum"],) * outputs
    smooth = [jnp.issubdtype(x.dtype, jnp.inexact) for x in inputs]
    if linear == "all":
        yield Placement("all partial", tuple(addends if s else whole for s in smooth), joins)
    if linear == "each":
        for at in (i for i, s in enumerate(smooth) if s):
            parts = tuple(addends if i == at else whole for i in range(len(smooth)))
            yield Placement(f"input {at} partial", parts, joins)
