"""The choice of boxes that overlap little."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import jax.numpy as jnp

from weft._base.types import AnyCallable
from weft._interop.from_jax import from_jax
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.ops._jax import fori_loop

if TYPE_CHECKING:
    import jax


def nms(
    boxes: Tensor, scores: Tensor, score_threshold: Tensor | float, iou_threshold: Tensor | float, output_size: int
) -> tuple[Tensor, Tensor]:
    """Choose boxes by their scores, without those that overlap a better one: (indices of `output_size` boxes, count).

    boxes           (n, 4), as (y0, x0, y1, x1)
    scores          (n,)
    score_threshold the least score of a box that is chosen
    iou_threshold   how much of the union of two boxes their intersection may be

    The indices are in order of scores; after the first `count` they are 0.
    """
    if not 0 <= output_size <= boxes.shape[0]:
        raise ValueRangeError(
            f"nms: output_size must be from 0 to {boxes.shape[0]}, the number of boxes, got {output_size}"
        )
    return _operator(output_size)(boxes.detach(), scores.detach(), score_threshold, iou_threshold)


@lru_cache(maxsize=64)  # key: the number of boxes to choose
def _operator(size: int) -> AnyCallable:
    def nms(
        boxes: jax.Array, scores: jax.Array, score_threshold: float, iou_threshold: float
    ) -> tuple[jax.Array, jax.Array]:
        order = jnp.argsort(-scores, stable=True)
        sorted_boxes = boxes[order]
        too_close = jnp.tril(_overlaps(sorted_boxes) > iou_threshold, -1)

        def decide(at: jax.Array, chosen: jax.Array) -> jax.Array:
            return chosen.at[at].set(chosen[at] & ~jnp.any(too_close[at] & chosen))

        chosen = fori_loop(0, len(scores), decide, scores[order] >= score_threshold)
        count = jnp.minimum(jnp.sum(chosen), size)
        places = jnp.nonzero(chosen, size=size, fill_value=0)[0]
        return jnp.where(jnp.arange(size) < count, order[places], 0).astype(jnp.int32), count.astype(jnp.int32)

    return from_jax(nms)


def _overlaps(boxes: jax.Array) -> jax.Array:
    """The intersection of each pair of boxes as a part of their union."""
    low, high = jnp.minimum(boxes[:, :2], boxes[:, 2:]), jnp.maximum(boxes[:, :2], boxes[:, 2:])
    areas = jnp.prod(high - low, -1)
    sides = jnp.minimum(high[:, None], high) - jnp.maximum(low[:, None], low)
    shared = jnp.prod(jnp.maximum(sides, 0), -1)
    union = areas[:, None] + areas - shared
    return jnp.where(union > 0, shared / union, 0)
