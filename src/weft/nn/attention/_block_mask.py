"""Masks of attention as functions of positions, and which blocks of them have something to compute."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from weft._base.device import DeviceLike
from weft._base.dtype import bool_, float32, int8, int32
from weft._base.guards import is_tuple
from weft._base.types import Arg
from weft._tensor.composite.create import arange, zeros, zeros_like
from weft._tensor.composite.neural import pad
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, SettingError, ValueRangeError

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A mask: (batch, head, position of the query, position of the key) -> whether the query sees the key."""

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""New scores, from the scores and what a mask gets."""

DEFAULT_SPARSE_BLOCK_SIZE = 128


def indices(
    batch: int, heads: int, queries: int, keys: int, device: DeviceLike | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The arguments of a mask: four int32 tensors that broadcast to (batch, heads, queries, keys)."""
    return (
        arange(batch, dtype=int32, device=device).reshape(-1, 1, 1, 1),
        arange(heads, dtype=int32, device=device).reshape(-1, 1, 1),
        arange(queries, dtype=int32, device=device).reshape(-1, 1),
        arange(keys, dtype=int32, device=device),
    )


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask with which every query sees every key."""
    return batch.new_ones((), dtype=bool_)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask with which a query sees a key where it does with all of these masks."""
    _check_callable(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        mask = b.new_ones((), dtype=bool_)
        for mask_mod in mask_mods:
            mask = mask & mask_mod(b, h, q_idx, kv_idx)
        return mask

    return and_mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask with which a query sees a key where it does with one of these masks."""
    _check_callable(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        mask = b.new_zeros((), dtype=bool_)
        for mask_mod in mask_mods:
            mask = mask | mask_mod(b, h, q_idx, kv_idx)
        return mask

    return or_mask


def _check_callable(mask_mods: tuple[object, ...]) -> None:
    if not all(map(callable, mask_mods)):
        raise SettingError(f"All inputs should be callable mask_mods: {mask_mods}")


def _takes_scores(mod_fn: Callable[..., object]) -> bool:
    """Whether a function changes scores, with five arguments, or is a mask, with four."""
    parameters = inspect.signature(mod_fn).parameters.values()
    count = sum(parameter.default is inspect.Parameter.empty for parameter in parameters)
    if count not in (4, 5):
        raise PreconditionError(f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def create_mask(
    mod_fn: ScoreMod | MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: DeviceLike | None = None,
) -> Tensor:
    """The bool tensor (B, H, Q_LEN, KV_LEN) of a mask; of a function of scores, where it does not give -inf."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    positions = indices(*sizes, device)
    mod: Any = mod_fn
    if _takes_scores(mod):
        scores = mod(zeros(sizes, dtype=float32, device=device), *positions)
        return ~scores.isneginf().expand(sizes)
    return mod(*positions).expand(sizes)


# --- blocks -----------------------------------------------------------------------------------------------------


Lists = tuple[Tensor, Tensor]
"""For each row of blocks the number of those that are set, and all columns, these first."""


def _ordered(blocks: Tensor) -> Lists:
    order = blocks.to(int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(int32), order.to(int32)


def _set_blocks(lists: Lists) -> Tensor:
    """The inverse of `_ordered`, as bool (..., rows, columns)."""
    counts, columns = lists
    is_set = arange(columns.shape[-1], device=columns.device) < counts.unsqueeze(-1)
    return zeros_like(columns).scatter_add(-1, columns.long(), is_set.to(columns.dtype)) > 0


class BlockMask:
    """A mask, and for each block of queries the blocks of keys with pairs that see each other.

    `kv_num_blocks` (batch, heads, rows) tells how many of `kv_indices` (batch, heads, rows, columns) these are, without
    those in which all pairs do, which `full_kv_num_blocks` and `full_kv_indices` list. `q_…` is the same by columns.
    `flex_attention` computes all blocks here: XLA has no sparse products.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        partial: Lists,
        full: Lists | None,
        BLOCK_SIZE: tuple[int, int],
        mask_mod: MaskMod,
    ) -> None:
        self.seq_lengths = seq_lengths
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod
        self._partial, self._full = partial, full
        self.kv_num_blocks, self.kv_indices = partial
        self.q_num_blocks, self.q_indices = _transposed(partial)
        self.full_kv_num_blocks, self.full_kv_indices = full or (None, None)
        self.full_q_num_blocks, self.full_q_indices = (None, None) if full is None else _transposed(full)

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
    ) -> BlockMask:
        """A mask from its lists of blocks. Without `mask_mod`, all pairs in the blocks see each other."""
        if kv_indices.ndim < 2:
            raise SettingError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise PreconditionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        lengths = seq_lengths or (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        full = None if full_kv_num_blocks is None or full_kv_indices is None else (full_kv_num_blocks, full_kv_indices)
        mask = cls(lengths, (kv_num_blocks, kv_indices), full, size, mask_mod or noop_mask)
        if mask_mod is None:
            mask.mask_mod = _in_blocks(mask.to_dense(), size)
        return mask

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, heads, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of pairs, in all batches and heads."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The percentage of pairs in blocks that are not listed."""
        covered = self.to_dense().sum().item() * math.prod(self.BLOCK_SIZE)
        return 100 * (1 - covered / self.numel())

    def to_dense(self) -> Tensor:
        """1 for the blocks that are listed, as int32 (batch, heads, rows, columns)."""
        blocks = _set_blocks(self._partial)
        return (blocks if self._full is None else blocks | _set_blocks(self._full)).to(int32)

    def to(self, device: DeviceLike) -> BlockMask:
        """The mask with its lists on a device. Tensors that `mask_mod` reads stay where they are."""
        return self._with(lambda lists: (lists[0].to(device), lists[1].to(device)), self.seq_lengths, self.mask_mod)

    def __getitem__(self, index: Arg) -> BlockMask:
        """The mask of some batches, heads and rows of blocks. Its `mask_mod` cannot be called any more."""
        padded = [*(index if is_tuple(index) else (index,)), *[slice(None)] * 3][:3]
        sizes = self.kv_num_blocks.shape[:3]
        at = tuple(slice(i % n, i % n + 1) if isinstance(i, int) else i for i, n in zip(padded, sizes, strict=True))
        return self._with(lambda lists: (lists[0][at], lists[1][at]), self.seq_lengths, sliced_mask_mod)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part of the mask, for shorter sequences."""
        lengths = (new_q_len, new_kv_len)
        rows, columns = (-(-length // size) for length, size in zip(lengths, self.BLOCK_SIZE, strict=True))
        return self._with(lambda lists: _ordered(_set_blocks(lists)[..., :rows, :columns]), lengths, self.mask_mod)

    def _with(self, change: Callable[[Lists], Lists], lengths: tuple[int, int], mask_mod: MaskMod) -> BlockMask:
        full = None if self._full is None else change(self._full)
        return BlockMask(lengths, change(self._partial), full, self.BLOCK_SIZE, mask_mod)

    def __repr__(self) -> str:
        name = getattr(self.mask_mod, "__name__", self.mask_mod)
        return (
            f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE}, sparsity={self.sparsity():.2f}%, "
            f"mask_mod={name})"
        )


def sliced_mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """What stands for the mask of a part of a `BlockMask`, whose positions are not known: raises `RuntimeError`."""
    raise SettingError("Cannot use mask_mod from a sliced BlockMask")


def _transposed(lists: Lists) -> Lists:
    return _ordered(_set_blocks(lists).transpose(-2, -1))


def _in_blocks(blocks: Tensor, size: tuple[int, int]) -> MaskMod:
    """The mask of the pairs in blocks (batch, heads, rows, columns) that are set; one batch or head holds for all."""

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        batch, head = (i if n > 1 else zeros_like(i) for i, n in zip((b, h), blocks.shape[:2], strict=True))
        return blocks[batch, head, q_idx // size[0], kv_idx // size[1]] > 0

    return mask_mod


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: DeviceLike | None = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The blocks of a mask of so many batches, heads, queries and keys; None stands for any number of batches or heads.

    The mask is called once, as `create_mask` does.
    """
    if _takes_scores(mask_mod):
        raise PreconditionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    if min(size) < 1:
        raise ValueRangeError(f"create_block_mask: BLOCK_SIZE must be positive, got {BLOCK_SIZE}")
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = pad(mask.to(int32), (0, -KV_LEN % size[1], 0, -Q_LEN % size[0]))
    counts = mask.unflatten(-1, (-1, size[1])).unflatten(-3, (-1, size[0])).sum((-1, -3))  # (B, H, rows, columns)
    full = counts == math.prod(size)
    partial = (counts > 0) & ~full if separate_full_blocks else counts > 0
    separate = _ordered(full) if separate_full_blocks else None
    return BlockMask((Q_LEN, KV_LEN), _ordered(partial), separate, size, mask_mod)
