"""Placements: how a tensor lies along one dim of a device mesh."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from weft.errors import ArgumentError, ValueRangeError

REDUCTIONS = ("sum", "avg", "product", "max", "min")


class Placement:
    """How a tensor lies along one dim of a mesh: `Shard`, `Replicate` or `Partial`."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the parts of a dim, or of this dim, are spread over the mesh dim."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every device of the mesh dim has all of the tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the devices' tensors are still to be reduced, or to be reduced by this operation."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each device has a part along a dim, as `torch.chunk` divides it: the last parts may be smaller, or empty."""

    dim: int

    def __post_init__(self) -> None:
        if not hasattr(self.dim, "__index__"):
            raise ArgumentError(f"Shard takes the number of a dim, but got {self.dim!r}; names go in a dict")

    def __str__(self) -> str:
        return f"S({self.dim})"

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """The size of a part of a dim, and where it begins."""
        start, size = part(curr_local_size, num_chunks, rank)
        return size, start

    def _local_shard_size_and_offset(self, curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        return self.local_shard_size_and_offset(curr_local_size, num_chunks, rank)


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A `Shard` that splits the parts which later mesh dims have made of the same dim, instead of being split by them.

    Fully sharded parameters that are split for tensor parallelism lie so: each process has a part of its own part.
    `split_factor` is the number of parts that the later mesh dims make.
    """

    split_factor: int = field(default=1, kw_only=True)

    def is_shard(self, dim: int | None = None) -> bool:
        """False, as in PyTorch: the parts do not follow each other along the mesh dim."""
        del dim
        return False

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


StridedShard = _StridedShard  # for other modules: PyTorch has it as a private class


@dataclass(frozen=True)
class Replicate(Placement):
    """Each device has all of it."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each device has a tensor of the whole size; their sum, or another reduction of their elements, is the tensor."""

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        _require_name(self.reduce_op)

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def _require_name(reduce_op: object) -> None:
    if not isinstance(reduce_op, str):
        raise ArgumentError(f"Partial takes the name of a reduction, such as 'sum', but got {reduce_op!r}")


Placements = tuple[Placement, ...]

_TEXT = re.compile(r"(?P<whole>R)|P\((?P<partial>\w+)\)|S\((?P<dim>\d+)\)|_S\((?P<strided>\d+), (?P<factor>\d+)\)")


def placement_from(text: str) -> Placement:
    """The placement that `str` shows so; `ValueError` if none is."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueRangeError(f"{text!r} is no placement")
    if match["dim"]:
        return Shard(int(match["dim"]))
    if match["strided"]:
        return _StridedShard(int(match["strided"]), split_factor=int(match["factor"]))
    return Partial(match["partial"]) if match["partial"] else Replicate()


def split_order(placements: Sequence[Placement]) -> tuple[int, ...]:
    """The mesh dims in the order in which they split dims of the tensor."""
    return tuple(sorted(range(len(placements)), key=lambda at: isinstance(placements[at], _StridedShard)))


def without_stride(placement: Placement) -> Placement:
    """The placement along its own mesh dim, whatever other mesh dims split."""
    return Shard(placement.dim) if isinstance(placement, _StridedShard) else placement


def in_order(placements: Sequence[Placement], order: Sequence[int], counts: Sequence[int]) -> Placements:
    """Placements of which those that split after a later mesh dim, of `counts` devices each, say so."""
    result = list(placements)
    for position, at in enumerate(order):
        if isinstance(own := placements[at], Shard):
            before = [
                b for b in order[:position] if b > at and isinstance(p := placements[b], Shard) and p.dim == own.dim
            ]
            factor = prod(counts[b] for b in before)
            result[at] = own if factor == 1 else _StridedShard(own.dim, split_factor=factor)
    return tuple(result)


def part(size: int, count: int, at: int) -> tuple[int, int]:
    """Where part `at` of `count` begins in a dim, and its size."""
    step = -(-size // count)
    start = min(at * step, size)
    return start, min(start + step, size) - start


def parts_are_equal(size: int, count: int) -> bool:
    """Whether all parts of a dim have one size."""
    return size % count == 0


def none_is_empty(size: int, count: int) -> bool:
    """Whether all parts of a dim have elements."""
    return part(size, count, count - 1)[1] > 0


def require_reduction(reduce_op: str) -> None:
    """Raise `ValueError` for an operation that does not reduce."""
    if reduce_op not in REDUCTIONS:
        raise ValueRangeError(f"Unrecognized reduce_op: {reduce_op}; it is one of {', '.join(REDUCTIONS)}")
