"""Placements: how a tensor lies along one dim of a device mesh."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import ShapeError

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

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each device has all of it."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each device has a tensor of the whole size; their sum, or another reduction of their elements, is the tensor."""

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


Placements = tuple[Placement, ...]


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
    """Raise `RuntimeError` for an operation that does not reduce."""
    if reduce_op not in REDUCTIONS:
        raise ShapeError(f"Unrecognized reduce_op: {reduce_op}")
