"""Numbers of several recordings as expressions of the named dims.

A number that is 3 for h=5, 4 for h=7 and 6 for h=11 is (h + 1) // 2. Expressions are polynomials with at most two terms
over the named dims, and over quotients of them that are rounded.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations, combinations_with_replacement
from math import prod
from typing import Any

from weft._base.types import Arg
from weft._lazy.trace import SIZE_FUNCTIONS

Expression = Callable[[Mapping[str, Any]], Any]
"""A number by the named sizes, or by the symbols for them."""

_DIVISORS = (*range(2, 33), 64, 128)
_SMALL_DIVISORS = (2, 3, 4)
_TRIALS = 300
_WIDEST = 512


class Expressions:
    """The expressions of the numbers in recordings with these sizes.

    Quotients in earlier results are kept, and their products are tried before other quotients, since two quotients
    can be equal in all recordings.
    """

    def __init__(self, probes: Sequence[dict[str, int]]) -> None:
        self._probes = probes
        self._names: list[tuple[Expression, list[int]]] = [
            (operator.itemgetter(name), [probe[name] for probe in probes]) for name in (probes[0] if probes else ())
        ]
        self._quotients: dict[tuple[int, ...], tuple[Expression, list[int]]] = {}
        self._expressions: dict[tuple[tuple[int, ...], str], Expression] = {}
        self._missing: dict[tuple[tuple[int, ...], str], int] = {}  # the number of quotients at that time
        random_sizes = random.Random(0)
        self._trials = [
            {name: random_sizes.randint(least, least + _WIDEST) for name, least in self._least().items()}
            for _ in range(_TRIALS)
        ]

    def _least(self) -> dict[str, int]:
        return {name: min(probe[name] for probe in self._probes) for name in (self._probes[0] if self._probes else ())}

    def of(self, values: tuple[int, ...], text: str = "") -> Expression | None:
        """The expression with these values in the first recordings, or None.

        `text` is an expression in the syntax of `jax.export.symbolic_shape` that it must equal for all sizes.
        """
        key = (values, text)
        # New quotients give new candidates; with the same ones the search would be in vain again.
        if self._missing.get(key) == len(self._quotients):
            return None
        if key not in self._expressions:
            fits = self._checked(text)
            for expression, quotient in self._candidates(values):
                if fits(expression):
                    self._expressions[key] = expression
                    if quotient is not None:
                        places = [quotient(probe) for probe in self._probes]
                        self._quotients.setdefault(tuple(places), (quotient, places))
                    break
            else:
                self._missing[key] = len(self._quotients)
        return self._expressions.get(key)

    def candidates(self, values: tuple[int, ...]) -> Iterator[Expression]:
        """All expressions with these values in the first recordings."""
        return (expression for expression, _ in self._candidates(values))

    def products(self) -> Iterator[Expression]:
        """Products of the named dims and of the quotients in earlier results, the shortest first."""
        terms = [*self._names, *self._quotients.values()]
        return (term for term, _ in _products(terms, 4))

    def _candidates(self, values: tuple[int, ...]) -> Iterator[tuple[Expression, Expression | None]]:
        """The expressions, each with the new quotient in it, if any."""
        count = len(values)
        names = [(term, at[:count]) for term, at in self._names]
        quotients = [(term, at[:count]) for term, at in self._quotients.values()]
        terms = _products(names, 3)
        more = _products([*names, *quotients], 3) if quotients else []
        yield from ((line, None) for line in chain(_lines(values, terms), _lines(values, more), _planes(values, terms)))
        for name, at in names:
            yield from _quotients(values, name, at)
        if quotients:
            yield from ((plane, None) for plane in _planes(values, _products([*names, *quotients], 2)))
        for term in [*names, *quotients]:
            yield from _rounded_multiples(values, term)

    def _checked(self, text: str) -> Callable[[Expression], bool]:
        """A test whether an expression equals the one in `text`, also for sizes that were not recorded."""
        if not text:
            return lambda _: True
        code = compile(text.replace("^", "**"), "<size>", "eval")
        # jax has no public way to evaluate it
        wanted = [eval(code, {**SIZE_FUNCTIONS, **sizes}) for sizes in self._trials]
        return lambda expression: [expression(sizes) for sizes in self._trials] == wanted


def _products(terms: Sequence[tuple[Expression, list[int]]], degree: int) -> list[tuple[Expression, list[int]]]:
    """All products of up to `degree` of the terms, with their values."""
    return [
        (
            _product([term for term, _ in chosen]),
            [prod(values) for values in zip(*[at for _, at in chosen], strict=True)],
        )
        for size in range(1, degree + 1)
        for chosen in combinations_with_replacement(terms, size)
    ]


def _product(terms: Sequence[Expression]) -> Expression:
    return lambda sizes: prod([term(sizes) for term in terms])


def _lines(values: Sequence[int], terms: Sequence[tuple[Expression, list[int]]]) -> Iterator[Expression]:
    """The expressions a * term + c with these values."""
    for term, at in terms:
        if line := _line(values, at):
            yield lambda sizes, term=term, line=line: term(sizes) * line[0] + line[1]


def _planes(values: Sequence[int], terms: Sequence[tuple[Expression, list[int]]]) -> Iterator[Expression]:
    """The expressions a * term + b * other + c with these values."""
    for (one, at), (other, there) in combinations(terms, 2):
        if plane := _plane(values, at, there):
            yield lambda sizes, one=one, other=other, p=plane: one(sizes) * p[0] + other(sizes) * p[1] + p[2]


def _quotients(values: Sequence[int], name: Expression, at: Sequence[int]) -> Iterator[tuple[Expression, Expression]]:
    """The expressions a * q + c with these values, each with its quotient q: first those that round down or up."""
    for quotient, places in _rounded(name, at, _DIVISORS):
        if line := _line(values, places):
            yield lambda sizes, line=line, q=quotient: q(sizes) * line[0] + line[1], quotient


def _rounded_multiples(
    values: Sequence[int], term: tuple[Expression, list[int]]
) -> Iterator[tuple[Expression, Expression]]:
    """The expressions a * size + b * q + c with these values, such as size * 3 // 2 and size % 2, with quotients q."""
    for quotient, places in _rounded(*term, _SMALL_DIVISORS):
        yield from ((plane, quotient) for plane in _planes(values, [term, (quotient, places)]))


def _rounded(name: Expression, at: Sequence[int], divisors: Sequence[int]) -> Iterator[tuple[Expression, list[int]]]:
    """The quotients (size + shift) // divisor with their values: by each divisor, first those that round down or up."""
    for divisor in divisors:
        for shift in (0, divisor - 1, *range(1, divisor - 1)):

            def quotient(sizes: Mapping[str, object], shift: int = shift, divisor: int = divisor) -> Arg:
                return (name(sizes) + shift) // divisor

            yield quotient, [(size + shift) // divisor for size in at]


def _line(values: Sequence[int], at: Sequence[int]) -> tuple[int, int] | None:
    """(a, c) with value = a * at + c."""
    pair = next(((i, j) for i, j in combinations(range(len(at)), 2) if at[i] != at[j]), None)
    if pair is None:
        return None
    a, rest = divmod(values[pair[0]] - values[pair[1]], at[pair[0]] - at[pair[1]])
    c = values[0] - a * at[0]
    return (a, c) if a and not rest and all(a * x + c == v for x, v in zip(at, values, strict=True)) else None


def _plane(values: Sequence[int], at: Sequence[int], there: Sequence[int]) -> tuple[int, int, int] | None:
    """(a, b, c) with value = a * at + b * there + c, where four recordings agree at least."""
    x1, x2, y1, y2 = at[1] - at[0], at[2] - at[0], there[1] - there[0], there[2] - there[0]
    v1, v2 = values[1] - values[0], values[2] - values[0]
    determinant = x1 * y2 - x2 * y1
    if not determinant or len(values) < 4:
        return None
    a, b = Fraction(v1 * y2 - v2 * y1, determinant), Fraction(x1 * v2 - x2 * v1, determinant)
    if a.denominator != 1 or b.denominator != 1:
        return None
    c = values[0] - int(a) * at[0] - int(b) * there[0]
    fits = all(int(a) * x + int(b) * y + c == v for x, y, v in zip(at, there, values, strict=True))
    return (int(a), int(b), c) if fits else None
