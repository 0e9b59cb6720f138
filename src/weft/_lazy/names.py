"""Names of dims: which an operator's results have, by the letters of its dim rule, and which do not fit together."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

from weft._base.types import Arg
from weft.errors import DimNameError
from weft.ops._dims import Called, Else, Factors, Letters, Names, Sizes, name_letter, pointwise
from weft.ops._table import OpDef


def output_names(
    op: OpDef, shapes: Sequence[Sizes], static: Mapping[str, object], names: Sequence[Names]
) -> list[Names]:
    """The names of the results on tensors with these shapes and names; `DimNameError` where names do not fit."""
    if op.dims is None:
        rule = "Please give it one by `custom_op(..., dims=...)`, or" if "::" in op.name else "Please"
        raise DimNameError(
            f"{op.name}() has no rule for names of dims. {rule} drop the names via `tensor = tensor.rename(None)`, "
            "call it with an unnamed tensor, and set names on the result."
        )
    if op.dims is pointwise:  # names are compared before sizes
        shapes = [(1,) * len(shape) for shape in shapes]
    factors = op.dims(shapes, static)
    carried = _carried(op, factors, names)
    results = [tuple(_name(letter, carried) for letter in letters) for letters in factors.outs]
    if factors.product:
        for result in results:
            _require_distinct(result, names)
    return [_kept(factors, letters, result) for letters, result in zip(factors.outs, results, strict=True)]


def _name(letter: object, carried: Mapping[Arg, str]) -> str | None:
    if isinstance(letter, Called):
        return letter.name
    return carried.get(name_letter(letter)) if not isinstance(letter, Else) else carried.get(_chosen(letter, carried))


def _chosen(letter: Else, carried: Mapping[Arg, str]) -> Hashable:
    return letter.letter if letter.letter in carried else letter.other


def _kept(factors: Factors, letters: Letters, result: Names) -> Names:
    """The names, each only once: where it comes from the first input, else where it comes first."""
    if distinct(result) == result:
        return result
    first = {name_letter(letter) for letter in factors.ins[0]} - {None}
    own = {name for letter, name in zip(letters, result, strict=True) if name_letter(letter) in first}
    return distinct(
        tuple(
            None if name in own and name_letter(letter) not in first else name
            for letter, name in zip(letters, result, strict=True)
        )
    )


def _carried(op: OpDef, factors: Factors, names: Sequence[Names]) -> dict[Hashable, str]:
    """The name of each letter that has one."""
    carried: dict[Hashable, str] = {}
    sources: dict[Hashable, int] = {}  # the input that each of them comes from
    for at, (letters, own) in enumerate(zip(factors.ins, names, strict=True)):
        for dim in reversed(range(len(own))):
            letter, name = name_letter(letters[dim]), own[dim]
            if letter is None or name is None:
                continue
            if carried.setdefault(letter, name) != name:
                first = sources[letter]
                place = [name_letter(x) for x in factors.ins[first]].index(letter)
                raise _mismatch(op, names[first], place, own, dim)
            sources.setdefault(letter, at)
    _require_choices(op, factors, names, carried, sources)
    _require_aligned(op, factors, names)
    return carried


def _require_choices(
    op: OpDef, factors: Factors, names: Sequence[Names], carried: Mapping[Arg, str], sources: Mapping[Arg, int]
) -> None:
    """Raises where a dim with the letter `Else` has another name than what it chooses."""
    for letters, own in zip(factors.ins, names, strict=True):
        for dim, (letter, name) in enumerate(zip(letters, own, strict=True)):
            if not isinstance(letter, Else) or name is None:
                continue
            chosen = _chosen(letter, carried)
            if carried.get(chosen, name) != name:
                first = sources[chosen]
                place = [name_letter(x) for x in factors.ins[first]].index(chosen)
                raise _mismatch(op, names[first], place, own, dim)


_PARTS = re.compile(r"_(train|eval|layer|losses|values|with_indices|dims?|to|src|from|all|number|step|loss)$")


def _public_name(op: OpDef) -> str:
    """What errors call a row: one that is a part of a function, by that function."""
    if op.name.startswith("attention"):
        return "scaled_dot_product_attention"
    is_public = op.public.function or op.public.method or op.public.also
    return op.name if is_public else _PARTS.sub("", op.name)


def _mismatch(op: OpDef, names: Names, dim: int, others: Names, other_dim: int) -> DimNameError:
    a, b = names[dim], others[other_dim]
    if op.dims is pointwise:
        return DimNameError(
            f"Error when attempting to broadcast dims {list(names)} and dims {list(others)}: dim {a!r} and dim "
            f"{b!r} are at the same position from the right but do not match."
        )
    return DimNameError(
        f"{_public_name(op)}: Expected {a!r} (index {dim} of {list(names)}) to match {b!r} (index {other_dim} of "
        f"{list(others)}) but they do not match."
    )


def _require_aligned(op: OpDef, factors: Factors, names: Sequence[Names]) -> None:
    """Raises where two inputs that are lined up by position have one name at two positions."""
    if len(names) < 2:
        return
    action = "broadcast" if op.dims is pointwise else _public_name(op)
    positions: dict[str, tuple[int, int]] = {}  # by name, its position and the input that has it
    for at, (letters, own) in enumerate(zip(factors.ins, names, strict=True)):
        for letter, name in zip(letters, own, strict=True):
            if name is None or not isinstance(letter, int):
                continue
            position, first = positions.setdefault(name, (letter, at))
            if position != letter:
                raise DimNameError(
                    f"Misaligned dims when attempting to {action} dims {list(own)} and dims {list(names[first])}: "
                    f"dim {name!r} appears in a different position from the right across both lists."
                )


def distinct(result: Names) -> Names:
    """The names, each only where it comes first."""
    return tuple(None if name in result[:dim] else name for dim, name in enumerate(result))


def _require_distinct(result: Names, names: Sequence[Names]) -> None:
    if distinct(result) == result:
        return
    operands = " with ".join(f"Tensor{list(own)}" for own in names)
    raise DimNameError(
        f"Matrix multiplying {operands} would produce output tensor with duplicate names {list(result)}. Please rename "
        "the input tensors with `Tensor.rename` to prevent this."
    )
