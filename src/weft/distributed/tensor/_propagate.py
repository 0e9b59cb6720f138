"""From an operator's dim rule to the placements of its inputs and outputs, along one dim of a mesh at a time.

A letter that may be split can be split over the mesh dim: tensors with it are sharded, the others are whole. If an
output lacks the letter, its parts are put together as the row says. Where the row is linear, partial sums may pass.
Among all these, and running on whole tensors, that is chosen for which least must be moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.distributed.tensor._placements import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    none_is_empty,
    parts_are_equal,
)
from weft.ops._dims import Factors, Sizes, shared_letter

WHOLE = Replicate()
_WORDS = {"prod": "product"}  # reductions of rows, as placements call them
_LATENCY = 1e-6  # of a transfer, in units of one that moves all bytes of all inputs; so ties go to fewer transfers


@dataclass(frozen=True)
class Strategy:
    """Placements, along one dim of a mesh, with which parts of an operator's inputs give parts of its outputs.

    spread   the inputs whose gradients are to be added up over the ranks: those that are whole where others are not
    split    the letters that are split
    """

    ins: Placements
    outs: Placements
    spread: tuple[int, ...] = ()
    split: tuple[object, ...] = ()

    @property
    def is_differentiable(self) -> bool:
        """Whether the derivative of a part is a part of the derivative."""
        return all(not isinstance(p, Partial) or p.reduce_op in ("sum", "avg") for p in self.outs)


@dataclass(frozen=True)
class Operand:
    """An input: its sizes, the bytes of all its elements, and whether sums of such tensors are meaningful."""

    shape: Sizes
    nbytes: int
    is_number: bool
    is_inexact: bool


@dataclass(frozen=True)
class Rule:
    """What an operator's row says of a call: its letters, where reductions may wait, and whether parts may be empty.

    addend   the position of the input that is added to the results, or None
    """

    factors: Factors
    partial: str
    linear: str
    takes_empty: bool
    addend: int | None = None


def strategies(
    rule: Rule, operands: Sequence[Operand], outs: Sequence[Sizes], count: int, before: Mapping[object, int]
) -> Iterator[Strategy]:
    """The ways to run an operator over a mesh dim of `count` devices.

    `before` has, for letters that other mesh dims split, the number of parts that this one splits further.
    """
    factors = rule.factors
    # Always possible, and first: among strategies that cost the same, `cheapest` takes the first.
    yield Strategy((WHOLE,) * len(operands), (WHOLE,) * len(outs))
    yield from _partial_sums(operands, len(outs), rule.linear)
    ins, results = ([tuple(map(shared_letter, dims)) for dims in side] for side in (factors.ins, factors.outs))
    for letter in dict.fromkeys(x for dims in ins for x in dims if x is not None):
        # A letter twice in one tensor is a diagonal: a process's parts of both dims would be a block on it.
        if letter in factors.whole or any(dims.count(letter) > 1 for dims in (*ins, *results)):
            continue
        sizes = _sizes(letter, ins, [o.shape for o in operands]) | _sizes(letter, results, outs)
        broadcasts = sizes - {1} if len(sizes) > 1 else set[int]()  # then dims of size 1 are whole
        sizes = broadcasts or sizes
        # Parts of dims with one letter have to match: where their sizes differ, as where a view joins dims, they do if
        # each is divided evenly. A part without elements has no maximum, and some bodies refuse one.
        parts = before.get(letter, 1) * count
        are_equal = all(parts_are_equal(size, parts) for size in sizes)
        none_empty = all(size and (are_equal or (parts == count and none_is_empty(size, count))) for size in sizes)
        if not sizes or (len(sizes) > 1 and not are_equal) or not (none_empty or rule.takes_empty):
            continue
        joined = WHOLE
        if any(letter not in dims for dims in results):  # put together at the end
            # Averages of parts of unequal sizes have no average, and of an empty part only the sum is a number.
            if (
                not rule.partial
                or (rule.partial == "avg" and not are_equal)
                or not (none_empty or rule.partial == "sum")
            ):
                continue
            joined = Partial(_WORDS.get(rule.partial, rule.partial))
        split = tuple(_split(letter, dims, o.shape, bool(broadcasts)) for dims, o in zip(ins, operands, strict=True))
        if all(p is WHOLE for p in split):  # only dims of size 1 have it: that is the first strategy again
            continue
        # A bias is to be added once, not by each rank to its partial sum: it has to be a pending sum as well.
        if joined == Partial() and rule.addend is not None and split[rule.addend] is WHOLE:
            split = (*split[: rule.addend], joined, *split[rule.addend + 1 :])
        # Each rank's gradient of what is whole comes from its own part of the others.
        whole = tuple(at for at, p in enumerate(split) if p is WHOLE and not operands[at].is_number)
        joins = tuple(Shard(d.index(letter)) if letter in d else joined for d in results)
        yield Strategy(split, joins, whole, (letter,))


def _sizes(letter: object, sides: Sequence[Sequence[object]], shapes: Sequence[Sizes]) -> set[int]:
    """The sizes of the dims with a letter."""
    return {
        size
        for dims, shape in zip(sides, shapes, strict=True)
        for own, size in zip(dims, shape, strict=True)
        if own == letter
    }


def _split(letter: object, dims: Sequence[object], shape: Sizes, broadcasts: bool) -> Placement:
    dim = dims.index(letter) if letter in dims else None
    return WHOLE if dim is None or (broadcasts and shape[dim] == 1) else Shard(dim)


def _partial_sums(operands: Sequence[Operand], outputs: int, linear: str) -> Iterator[Strategy]:
    # f(a) + f(b) = f(a + b) where the row is linear, so the sum can wait. Indices and masks are no sums of others.
    able = [at for at, o in enumerate(operands) if o.is_inexact and not o.is_number]
    for word in ("sum", "avg"):
        partial = Partial(word)
        outs = (partial,) * outputs
        if linear == "all" and len(able) == len(operands):
            yield Strategy((partial,) * len(operands), outs)
        elif linear == "each" or linear == "first":
            for at in able if linear == "each" else able[: able[:1] == [0]]:
                ins = tuple(partial if i == at else WHOLE for i in range(len(operands)))
                others = tuple(i for i, o in enumerate(operands) if i != at and not o.is_number)
                yield Strategy(ins, outs, others)


def chosen(
    rule: Rule,
    operands: Sequence[Operand],
    outs: Sequence[Sizes],
    now: Sequence[Placement],
    count: int,
    before: Mapping[object, int],
    *,
    grad: bool,
) -> Strategy:
    """The strategy for which least must be moved, along a mesh dim of `count` devices.

    `now` are the placements of the inputs; `before` is as in `strategies`. With `grad`, it is a differentiable one.
    """
    # Rows over many tensors, such as an optimizer's: inputs that share no letter choose by themselves, as otherwise one
    # parameter that is split would decide for all others.
    if not rule.factors.separate:
        return cheapest(list(strategies(rule, operands, outs, count, before)), now, operands, count, grad=grad)
    ins: list[Placement] = [WHOLE] * len(operands)
    results: list[Placement] = [WHOLE] * len(outs)
    spread: list[int] = []
    split: list[object] = []
    for members, products in _components(rule.factors):
        factors = Factors(
            tuple(rule.factors.ins[at] for at in members),
            tuple(rule.factors.outs[at] for at in products),
            rule.factors.whole,
        )
        part = chosen(
            replace(rule, factors=factors),
            [operands[at] for at in members],
            [outs[at] for at in products],
            [now[at] for at in members],
            count,
            before,
            grad=grad,
        )
        split += part.split
        spread += [members[at] for at in part.spread]
        for at, placement in zip(members, part.ins, strict=True):
            ins[at] = placement
        for at, placement in zip(products, part.outs, strict=True):
            results[at] = placement
    # Results without dims, such as whether any gradient is infinite, have something of every component.
    if rule.partial and any(p is not WHOLE for p in ins):
        results = [p if dims else Partial(rule.partial) for p, dims in zip(results, rule.factors.outs, strict=True)]
    return Strategy(tuple(ins), tuple(results), tuple(spread), tuple(split))


def _components(factors: Factors) -> list[tuple[list[int], list[int]]]:
    """The positions of inputs and outputs, those together that share letters; what has no dims is left out."""
    root: dict[object, object] = {}

    def find(letter: object) -> object:
        while root.setdefault(letter, letter) != letter:
            letter = root[letter]
        return letter

    for dims in (*factors.ins, *factors.outs):
        for letter in dims[1:]:
            root[find(shared_letter(letter))] = find(shared_letter(dims[0]))
    groups: dict[object, tuple[list[int], list[int]]] = {}
    for side, tensors in enumerate((factors.ins, factors.outs)):
        for at, dims in enumerate(tensors):
            if dims:
                groups.setdefault(find(shared_letter(dims[0])), ([], []))[side].append(at)
    return list(groups.values())


def cheapest(
    options: Sequence[Strategy], now: Sequence[Placement], operands: Sequence[Operand], count: int, *, grad: bool
) -> Strategy:
    """The strategy for which least must be moved, the first one among equals; with `grad`, a differentiable one."""
    # What this call moves. Gradients and later calls do not count: placements would depend on what is not recorded yet.
    total = sum(o.nbytes for o in operands) or 1

    def cost(strategy: Strategy) -> float:
        return sum(
            _cost(a, b, count) * o.nbytes / total + _LATENCY * (not _is_free(a, b))
            for a, b, o in zip(now, strategy.ins, operands, strict=True)
        )

    return min((s for s in options if s.is_differentiable or not grad), key=cost)


def _is_free(now: Placement, wanted: Placement) -> bool:
    return now == wanted or isinstance(now, Replicate)


def _cost(now: Placement, wanted: Placement, count: int) -> float:
    """The share of a tensor that a rank receives."""
    if _is_free(now, wanted):
        return 0.0
    moved = (count - 1) / count
    match now, wanted:
        case Shard(), Replicate():
            return moved
        case Shard(), Shard():
            return moved / count
        # An all-reduce receives the tensor twice. A reduce-scatter, which does so once, is not told apart from it.
        case Partial(), Replicate() | Shard():
            return 2 * moved
        case _:
            return float("inf")
