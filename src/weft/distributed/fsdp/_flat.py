"""Flat buffers: the parts of several parameters as one vector, so that one collective moves all of them.

In the buffer of a rank, its part of each parameter follows that of the one before, row by row. Smaller parts are
filled up with zeros, so that all ranks have buffers of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import zeros
from weft._tensor.tensor import Tensor
from weft.distributed.tensor._placements import part


@dataclass(frozen=True)
class FlatSlot:
    """How a tensor of a shape is divided into `parts` along a dim; this rank has the one at `index`."""

    shape: tuple[int, ...]
    dim: int
    parts: int
    index: int

    @property
    def step(self) -> int:
        """The size of the dim in each part, with what fills it up."""
        return -(-self.shape[self.dim] // self.parts)

    @property
    def own(self) -> tuple[int, int]:
        """Where this rank's part begins along the dim, and its size."""
        return part(self.shape[self.dim], self.parts, self.index)

    def with_size(self, size: int) -> tuple[int, ...]:
        """The shape with another size of the dim."""
        return (*self.shape[: self.dim], size, *self.shape[self.dim + 1 :])

    @property
    def numel(self) -> int:
        """The number of elements of a part, with what fills it up."""
        return prod(self.with_size(self.step))


def joined_parts(parts: Sequence[Tensor], slots: Sequence[FlatSlot]) -> Tensor:
    """This rank's buffer: its parts."""
    return rows.cat([_padded(x, slot.dim, slot.step).reshape(-1) for x, slot in zip(parts, slots, strict=True)])


def wholes_of(flat: Tensor, slots: Sequence[FlatSlot]) -> list[Tensor]:
    """The whole tensors, from the buffers of all ranks."""
    count = slots[0].parts
    by_rank = flat.reshape(count, -1)
    results: list[Tensor] = []
    offset = 0
    for slot in slots:
        parts = by_rank.narrow(1, offset, slot.numel).reshape(count, *slot.with_size(slot.step))
        whole = parts.movedim([0], [slot.dim]).reshape(slot.with_size(count * slot.step))
        results.append(_cut(whole, slot.dim, slot.shape[slot.dim]))
        offset += slot.numel
    return results


def joined_wholes(wholes: Sequence[Tensor], slots: Sequence[FlatSlot]) -> Tensor:
    """The buffers of all ranks, from whole tensors."""
    pieces: list[Tensor] = []
    for x, slot in zip(wholes, slots, strict=True):
        count, dim = slot.parts, slot.dim
        parts = _padded(x, dim, count * slot.step).reshape(*slot.shape[:dim], count, slot.step, *slot.shape[dim + 1 :])
        pieces.append(parts.movedim([dim], [0]).reshape(count, slot.numel))
    return rows.cat(pieces, 1).reshape(-1)


def parts_of(flat: Tensor, slots: Sequence[FlatSlot]) -> list[Tensor]:
    """This rank's parts, from its buffer."""
    results: list[Tensor] = []
    offset = 0
    for slot in slots:
        padded = flat.narrow(0, offset, slot.numel).reshape(slot.with_size(slot.step))
        results.append(_cut(padded, slot.dim, slot.own[1]))
        offset += slot.numel
    return results


def own_part(whole: Tensor, slot: FlatSlot) -> Tensor:
    """This rank's part of a whole tensor."""
    return whole.narrow(slot.dim, *slot.own).clone()


def _cut(x: Tensor, dim: int, size: int) -> Tensor:
    return x.narrow(dim, 0, size).clone()


def _padded(x: Tensor, dim: int, size: int) -> Tensor:
    missing = size - x.shape[dim]
    if not missing:
        return x
    shape = [*x.shape]
    shape[dim] = missing
    return rows.cat([x, zeros(shape, dtype=x.dtype, device=x.device)], dim)
