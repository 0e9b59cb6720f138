"""Rows of gradient scaling, which need no value on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import jax.numpy as jnp

from weft.ops._dims import Factors, Sizes
from weft.ops._kinds import Array, Arrays, Scalar
from weft.ops._table import INTERNAL, NO_DERIVATIVE, OWN_ARITHMETIC, Shards, defop
from weft.ops._updates import double


def _unscaled_dims(shapes: Sequence[Sizes]) -> Factors:
    """Gradients keep their dims; the two numbers after them have none."""
    letters = _dims_of(shapes[:-2])
    return Factors((*letters, (), ()), (*letters, ()), separate=True)


def _kept_dims(shapes: Sequence[Sizes]) -> Factors:
    """A number, then old and new arrays of the same dims."""
    letters = _dims_of(shapes[1 : 1 + len(shapes) // 2])
    return Factors(((), *letters, *letters), letters, separate=True)


def _scale_dims(shapes: Sequence[Sizes]) -> Factors:
    """Numbers only."""
    return Factors(((),) * len(shapes), ((), ()))


def _dims_of(shapes: Sequence[Sizes]) -> tuple[tuple[tuple[int, int], ...], ...]:
    return tuple(tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate(shapes))


@defop(
    types=OWN_ARITHMETIC, dims=_unscaled_dims, shards=Shards(partial="max"), derivative=NO_DERIVATIVE, public=INTERNAL
)
def unscale_gradients(grads: Arrays, found_inf: Array, scale: Array) -> list[Array]:
    """Gradients over the scale, then `found_inf`, or 1 where any of them is infinite or NaN."""
    inverse = (1 / double(scale)).astype(jnp.float32)
    finite = reduce(jnp.logical_and, [jnp.all(jnp.isfinite(g)) for g in grads], jnp.asarray(True))
    scaled = [(g.astype(jnp.promote_types(g.dtype, jnp.float32)) * inverse).astype(g.dtype) for g in grads]
    return [*scaled, jnp.where(finite, found_inf, 1)]


@defop(types=OWN_ARITHMETIC, dims=_kept_dims, public=INTERNAL)
def kept_where(found_inf: Array, old: Arrays, new: Arrays) -> list[Array]:
    """The old arrays where an infinity was found, else the new ones."""
    return [jnp.where(found_inf != 0, before, after) for before, after in zip(old, new, strict=True)]


@defop(types=OWN_ARITHMETIC, dims=_scale_dims, derivative=NO_DERIVATIVE, public=INTERNAL)
def updated_scale(
    scale: Array,
    growth_tracker: Array,
    found_inf: Array,
    growth_factor: Scalar,
    backoff_factor: Scalar,
    growth_interval: Scalar,
) -> list[Array]:
    """The scale of the next step, and how many steps in a row were not skipped.

    A skipped step shrinks the scale; `growth_interval` others in a row make it grow, unless that is infinite.
    """
    steps = growth_tracker + 1
    grows = steps == growth_interval
    grown = (double(scale) * double(growth_factor)).astype(scale.dtype)
    shrunk = (double(scale) * double(backoff_factor)).astype(scale.dtype)
    next_scale = jnp.where(found_inf != 0, shrunk, jnp.where(grows & jnp.isfinite(grown), grown, scale))
    next_tracker = jnp.where((found_inf != 0) | grows, 0, steps).astype(growth_tracker.dtype)
    return [next_scale, next_tracker]
