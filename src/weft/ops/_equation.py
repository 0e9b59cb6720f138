"""Parses the equations of `einsum` into letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from weft.errors import ShapeError
from weft.ops._dims import Sizes

LETTERS = ascii_uppercase + ascii_lowercase  # sorted; an equation without a result has its letters in this order
_DOTS = -1  # stands for an ellipsis until the number of dims is known


@dataclass(frozen=True, slots=True)
class Terms:
    """The letters, as numbers, of each operand's and of the result's dims, and the size of each letter.

    0 to 51 are the places in `LETTERS`; the dims that an ellipsis stands for count from 52.
    """

    ins: tuple[tuple[int, ...], ...]
    out: tuple[int, ...]
    sizes: dict[int, int]


_OUTPUT = "output"


def _read(text: str, offset: int, location: str) -> list[int]:
    """The letters of one term. `offset` is where the term starts in the equation, for error messages."""
    term: list[int] = []
    i = 0
    while i < len(text):
        if text[i] == ".":
            if _DOTS in term:
                twice = "but an ellipsis (...)" if location == _OUTPUT else "for which an ellipsis"
                raise ShapeError(f"einsum(): found '.' for {location} {twice} was already found")
            if text[i : i + 3] != "...":
                suffix = " (...)" if location == _OUTPUT else ""
                raise ShapeError(f"einsum(): found '.' for {location} that is not part of any ellipsis{suffix}")
            term.append(_DOTS)
            i += 2
        elif text[i] in LETTERS:
            term.append(LETTERS.index(text[i]))
        elif text[i] != " ":
            raise ShapeError(
                f"einsum(): invalid subscript given at index {offset + i} in the equation string, "
                "subscripts must be in [a-zA-Z]"
            )
        i += 1
    return term


def _read_inputs(left: str, count: int) -> list[list[int]]:
    texts = left.split(",")
    offsets = [sum(len(t) + 1 for t in texts[:n]) for n in range(len(texts))]
    terms = [_read(t, o, f"operand {n}") for n, (t, o) in enumerate(zip(texts, offsets, strict=True))]
    if len(terms) != count:
        more = "more" if count > len(terms) else "fewer"
        raise ShapeError(f"einsum(): {more} operands were provided than specified in the equation")
    return terms


def _spread(term: list[int], ndim: int, operand: int) -> tuple[int, ...]:
    """The term with one letter for each dim. The last dim under an ellipsis is 52, so ellipses align at the right."""
    named = len(term) - (_DOTS in term)
    if named > ndim or (named < ndim and _DOTS not in term):
        rule, why = "does not match", " and no ellipsis was given"
        if _DOTS in term:
            rule, why = "is more than", ""
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({named}) {rule} the number of "
            f"dimensions ({ndim}) for operand {operand}{why}"
        )
    return _replace_dots(term, ndim - named)


def _replace_dots(term: Sequence[int], count: int) -> tuple[int, ...]:
    dots = [len(LETTERS) + i for i in reversed(range(count))]
    return tuple(x for letter in term for x in (dots if letter == _DOTS else [letter]))


def _read_output(text: str | None, offset: int, ins: Sequence[Sequence[int]]) -> list[int]:
    """The result's term. If the equation has none: the ellipsis, then the letters that occur once, sorted."""
    letters = [letter for term in ins for letter in term if letter < len(LETTERS)]
    if text is None:
        return [_DOTS, *sorted(x for x in letters if letters.count(x) == 1)]
    out = _read(text, offset, _OUTPUT)
    for letter in out:
        if out.count(letter) > 1:
            raise ShapeError(f"einsum(): output subscript {LETTERS[letter]} appears more than once in the output")
        if letter != _DOTS and letter not in letters:
            raise ShapeError(
                f"einsum(): output subscript {LETTERS[letter]} does not appear in the equation for any input operand"
            )
    return out


def _measure(ins: Sequence[Sequence[int]], shapes: Sequence[Sizes]) -> dict[int, int]:
    """The size of each letter; dims of size one broadcast between operands."""
    sizes: dict[int, int] = {}
    for n, (term, shape) in enumerate(zip(ins, shapes, strict=True)):
        own: dict[int, int] = {}
        for letter, size in zip(term, shape, strict=True):
            word = LETTERS[letter] if letter < len(LETTERS) else "..."
            if own.setdefault(letter, size) != size:
                raise ShapeError(
                    f"einsum(): subscript {word} is repeated for operand {n} but the sizes don't match, "
                    f"{size} != {own[letter]}"
                )
            seen = sizes.get(letter, 1)
            if 1 not in (seen, size) and seen != size:
                raise ShapeError(
                    f"einsum(): subscript {word} has size {size} for operand {n} which does not broadcast "
                    f"with previously seen size {seen}"
                )
            sizes[letter] = size if seen == 1 else seen
    return sizes


def parse(equation: str, shapes: Sequence[Sizes]) -> Terms:
    """The letters of an equation such as `"...ij, jk -> ...ik"` for operands of these shapes."""
    left, arrow, right = equation.partition("->")
    read = _read_inputs(left, len(shapes))
    ins = tuple(_spread(t, len(s), n) for n, (t, s) in enumerate(zip(read, shapes, strict=True)))
    out = _read_output(right if arrow else None, len(left) + 2, ins)
    dots = max((len([x for x in term if x >= len(LETTERS)]) for term in ins), default=0)
    return Terms(ins, _replace_dots(out, dots), _measure(ins, shapes))
