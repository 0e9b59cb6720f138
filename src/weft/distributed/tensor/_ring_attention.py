"""Ring attention: attention within sequences of which each rank of a mesh has a part.

Queries stay where they are. Keys and values go around: each rank computes blocks of attention to the part that it has,
and merges their results by the logarithms of their sums (https://arxiv.org/abs/2310.01889). The backward pass computes
the blocks again, and sends the gradients of keys and values around with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weft._tensor.autocast import casting
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import zeros
from weft._tensor.dim_names import names_of, unnamed, with_names
from weft._tensor.tensor import Tensor, operand, wrap
from weft.autograd._context import Ctx
from weft.autograd.function import Function, once_differentiable
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._placements import Shard
from weft.distributed.tensor._transfers import Transfer, gather, rotate, transferred
from weft.errors import DistError, UnsupportedError
from weft.ops._autocast import Cast


@dataclass(frozen=True)
class AttentionBlock:
    """Which of this rank's queries, from the position `start` on, attend to how many of a part's keys."""

    start: int
    keys: int
    is_causal: bool


@dataclass(frozen=True)
class AttentionRing:
    """Attention over parts of sequences, in place of `scaled_dot_product_attention`.

    mesh        one dim of ranks, each with an equal part
    balances    whether each rank has, of two chunks for each rank, one from either end of a sequence. Then causal
                attention is equal work for all. Where the length does not allow it, a rank has its part in order.
    gathers     whether all keys and values are gathered at once, rather than sent from rank to rank
    """

    mesh: DeviceMesh
    balances: bool
    gathers: bool

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None,
        dropout_p: float,
        is_causal: bool,
        scale: float | None,
        enable_gqa: bool,
    ) -> Tensor:
        """This rank's part of the result, for its parts of (..., time, features). All ranks must call it."""
        if attn_mask is not None or dropout_p:
            what = "an attn_mask" if attn_mask is not None else f"dropout_p = {dropout_p}"
            raise UnsupportedError(
                f"scaled_dot_product_attention: within context_parallel, {what} is not supported yet; use is_causal, "
                "and dropout after the attention"
            )
        if is_causal and query.shape[-2] != key.shape[-2]:
            raise UnsupportedError(
                "is_causal requires the same query and context sequence lengths, but this rank's parts have "
                f"{query.shape[-2]} and {key.shape[-2]}"
            )
        query, key, value = (self._own(x) for x in (query, key, value))
        result = _attention(self, is_causal, scale, enable_gqa, unnamed(query), unnamed(key), unnamed(value))
        return with_names(result, (*names_of(query)[:-1], names_of(value)[-1]))

    def _own(self, x: Tensor) -> Tensor:
        """This rank's part, which may be given as a distributed tensor that is split along the sequence."""
        if not isinstance(x, DTensor):
            return x
        if x.device_mesh != self.mesh or x.placements != (Shard(x.ndim - 2),):
            raise DistError(
                f"within context_parallel, attention takes this rank's parts, or DTensors with (Shard({x.ndim - 2}),) "
                f"on its mesh, but got one with {x.placements} on {x.device_mesh}; call to_local() before"
            )
        return x.to_local()

    def around(self, *own: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
        """Each rank's tensors, with the rank, beginning with one's own and then those of the rank before.

        Unless all are gathered, two ranks' tensors are in memory at a time.
        """
        count, rank = self.mesh.size(), self.mesh.get_local_rank()
        parts = list(own)
        yield rank, parts
        if self.gathers and count > 1:
            whole = [_moved(x, gather(self.mesh, 0, 0, x.shape[0] * count)).chunk(count) for x in own]
            yield from (((rank - step) % count, [x[rank - step] for x in whole]) for step in range(1, count))
            return
        for step in range(1, count):
            parts = self.sent_on(*parts)
            yield (rank - step) % count, parts

    def sent_on(self, *tensors: Tensor) -> list[Tensor]:
        """What the rank before has given, having sent these to the rank behind."""
        return [_moved(x, rotate(self.mesh, 0)) for x in tensors]

    def block(self, source: int, length: int, keys: int, is_causal: bool) -> AttentionBlock | None:
        """What this rank's queries have to do with the keys of a rank; None if they come before all of them."""
        rank = self.mesh.get_local_rank()
        if not is_causal or source == rank:
            return AttentionBlock(0, keys, is_causal)
        if self.balances and not length % 2:
            return AttentionBlock(0, keys // 2, False) if source < rank else AttentionBlock(length // 2, keys, False)
        return AttentionBlock(0, keys, False) if source < rank else None


def _moved(x: Tensor, transfer: Transfer) -> Tensor:
    return wrap(transferred(operand(x), transfer))


def _from(x: Tensor, start: int) -> Tensor:
    """The positions from `start` on."""
    return x.narrow(-2, start, x.shape[-2] - start)


def _first(x: Tensor, length: int) -> Tensor:
    """The first `length` positions."""
    return x.narrow(-2, 0, length)


Options: TypeAlias = tuple[float | None, bool]
"""The scale of products, and whether heads are grouped."""


class _RingAttention(Function):
    @staticmethod
    def forward(
        ctx: Ctx, ring: AttentionRing, is_causal: bool, options: Options, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        output: Tensor | None = None
        logsumexp: Tensor | None = None
        for source, (k, v) in ring.around(key, value):
            block = ring.block(source, query.shape[-2], key.shape[-2], is_causal)
            # Causal: all keys of this source come after all queries here.
            if block is None:
                continue
            part = rows.attention_block(
                _from(query, block.start), _first(k, block.keys), _first(v, block.keys), block.is_causal, *options
            )
            if output is None or logsumexp is None:
                output, logsumexp = part
            else:
                # By the logarithms of the sums: blocks are normalised each by itself, and only these tell their
                # weights.
                _merge(_from(output, block.start), _from(logsumexp, block.start), *part)
        assert output is not None, "a rank's queries attend to its own keys"
        result = output.to(query.dtype)
        ctx.ring, ctx.is_causal, ctx.options = ring, is_causal, options
        ctx.save_for_backward(query, key, value, result, logsumexp)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ring: AttentionRing = ctx.ring
        query, key, value, output, logsumexp = ctx.saved_tensors
        of_queries = (grads[0], output, logsumexp, query)
        grad_query, *sums = (zeros(x.shape, dtype=logsumexp.dtype, device=x.device) for x in (query, key, value))
        for source, parts in ring.around(key, value):
            if source != ring.mesh.get_local_rank():
                sums = ring.sent_on(*sums)  # they go around with the keys and values whose gradients they are
            block = ring.block(source, query.shape[-2], key.shape[-2], ctx.is_causal)
            if block is not None:
                _add_gradients(grad_query, sums, block, of_queries, parts, ctx.options)
        if ring.mesh.size() > 1:
            sums = ring.sent_on(*sums)
        return None, None, None, grad_query, *sums


def _merge(output: Tensor, logsumexp: Tensor, more: Tensor, more_logsumexp: Tensor) -> None:
    """Add the attention to further keys, in place."""
    total = rows.logaddexp(logsumexp, more_logsumexp)
    output.copy_(output * rows.exp(logsumexp - total) + more * rows.exp(more_logsumexp - total))
    logsumexp.copy_(total)


def _add_gradients(
    grad_query: Tensor,
    sums: Sequence[Tensor],
    block: AttentionBlock,
    of_queries: Sequence[Tensor],
    parts: Sequence[Tensor],
    options: Options,
) -> None:
    """Add a block's gradients to those of the queries, and to the sums for its keys and values, in place."""
    inputs = [_from(x, block.start) for x in of_queries]
    keys = [_first(x, block.keys) for x in parts]
    gradients = rows.attention_block_backward(*inputs, *keys, block.is_causal, *options)
    targets = (_from(grad_query, block.start), *(_first(x, block.keys) for x in sums))
    for target, gradient in zip(targets, gradients, strict=True):
        target.add_(gradient)


def _on_parts(
    ring: AttentionRing, is_causal: bool, scale: float | None, gqa: bool, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    return _RingAttention.apply(ring, is_causal, (scale, gqa), q, k, v)


_attention = casting(_on_parts, Cast.LOWER)
