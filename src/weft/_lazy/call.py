"""Operators with their static arguments."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from weft._base.device import device
from weft._base.types import Arg, Args
from weft.ops._dims import Sizes
from weft.ops._kinds import Kind, Many
from weft.ops._table import OpDef


class Exact:
    """In a call's static part: a Python number whose type matters, although `2 == 2.0` and their hashes are equal."""

    __slots__ = ("value",)

    def __init__(self, value: int | float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __repr__(self) -> str:
        return repr(self.value)


def plain(entry: object) -> Arg:
    """A static argument as the caller gave it."""
    return entry.value if isinstance(entry, Exact) else entry


# no cell: a cache, keyed by all that its entries depend on
_many: dict[int, Many] = {}


def many(count: int) -> Many:
    """The unique marker for `count` inputs."""
    return _many.setdefault(count, Many(count))


class PartOfDraw(Many):
    """In a call's static part: a random key that draws a part of an array of these sizes.

    It takes three inputs: the two of every key, and the position of the part's first element in the array.
    """

    __slots__ = ("sizes",)

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(3)
        self.sizes = sizes


@lru_cache(65_536)
def part_of_draw(sizes: Sizes) -> PartOfDraw:
    """The unique marker for keys of parts of such arrays."""
    return PartOfDraw(sizes)


ONE = many(1)
"""In a call's static part: this parameter takes the next input."""


class BoundOp:
    """An operator with its static arguments: one entry per parameter, in order; and, for factories, the device.

    An entry is a `Many` for parameters that take inputs, else the value itself.
    """

    __slots__ = ("device", "op", "static")

    def __init__(self, op: OpDef, static: Args, device: device | None) -> None:
        self.op = op
        self.static = static
        self.device = device

    def __repr__(self) -> str:
        arguments = (
            f"{p.name}={s!r}" for p, s in zip(self.op.params, self.static, strict=True) if not isinstance(s, Many)
        )
        return f"{self.op.name}({', '.join(arguments)})"


def arguments_of(call: BoundOp, inputs: Iterable[Arg]) -> list[Arg]:
    """The arguments of a call, in the order of the row's parameters, with these in the places of its inputs."""
    rest = iter(inputs)
    args: list[Arg] = []
    for param, entry in zip(call.op.params, call.static, strict=True):
        if isinstance(entry, Many):
            several = list(islice(rest, entry.count))
            args.append(several[0] if entry.count == 1 and param.kind is not Kind.ARRAYS else several)
        else:
            args.append(plain(entry))
    return args


def kinds_of(call: BoundOp) -> list[Kind]:
    """The kind of each flat input."""
    kinds: list[Kind] = []
    for param, entry in zip(call.op.params, call.static, strict=True):
        if isinstance(entry, Many):
            kinds.extend([param.kind] * entry.count)
    return kinds
