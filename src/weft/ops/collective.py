"""Collectives between replicas, as rows: they are part of a recorded program, which all replicas run together.

`groups` are tuples of ordinals of `size` members each, or None for one group of all replicas. Where there is one
replica, nothing moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax

from weft.errors import GradientError, ShapeError
from weft.ops._dims import Factors, NameOf, Rule, Sizes, Static, pointwise
from weft.ops._kinds import Array, Dim, Groups
from weft.ops._replicas import AXIS, broadcast, reduced, runs_alone
from weft.ops._table import INTERNAL, NO_ARITHMETIC, OWN_ARITHMETIC, Derivative, defop


def _resized(*names: str) -> Rule:
    """The rule of what changes the sizes of these dims."""

    def rule(shapes: Sequence[Sizes], static: Static) -> Factors:
        letters = tuple(range(len(shapes[0])))
        changed = frozenset(static[name] for name in names)
        return Factors((letters,), (tuple(NameOf(d) if d in changed else d for d in letters),), changed)

    return rule


def _require_parts(name: str, input: Array, dim: int, count: int) -> None:
    if input.shape[dim] % count:
        raise ShapeError(
            f"{name}: dim {dim} of a tensor of size {list(input.shape)} cannot be split into {count} equal parts"
        )


def _require_derivative(name: str, reduce_type: str) -> None:
    if reduce_type not in ("sum", "avg"):
        raise GradientError(
            f"{name}: backward() has come to a reduction {reduce_type!r} over replicas. Only sums and averages have a "
            "derivative: for the others, a replica would need the elements of all. Detach the input, as in "
            f"{name}(..., x.detach(), ...); for the gradient of this replica's own loss, there is "
            "weft.xla.core.functions.all_reduce"
        )


def _reduce_vjp(g: Array, reduce_type: str, groups: Groups) -> list[Array]:
    _require_derivative("all_reduce", reduce_type)
    return [g if runs_alone() else reduced(g, reduce_type, groups)]


@defop(dims=pointwise, types=OWN_ARITHMETIC, public=INTERNAL, derivative=Derivative(vjp=_reduce_vjp))
def all_reduce(input: Array, reduce_type: str, groups: Groups = None) -> Array:
    """The reduction ("sum", "prod", "min", "max", "band", "bor", "bxor", "avg") of the tensors of a group."""
    return input if runs_alone() else reduced(input, reduce_type, groups)


def _gather_vjp(g: Array, dim: Dim, size: int, groups: Groups) -> list[Array]:
    return [g if runs_alone() else _scattered(g, "sum", dim, size, groups)]


@defop(dims=_resized("dim"), types=NO_ARITHMETIC, public=INTERNAL, derivative=Derivative(vjp=_gather_vjp))
def all_gather(input: Array, dim: Dim, size: int, groups: Groups = None) -> Array:
    """The tensors of a group, joined along a dim: (…, n, …) -> (…, size * n, …)."""
    del size
    return input if runs_alone() else lax.all_gather(input, AXIS, axis=dim, axis_index_groups=groups, tiled=True)


def _scatter_vjp(g: Array, reduce_type: str, dim: Dim, size: int, groups: Groups) -> list[Array]:
    _require_derivative("reduce_scatter", reduce_type)
    if runs_alone():
        return [g]
    whole = lax.all_gather(g, AXIS, axis=dim, axis_index_groups=groups, tiled=True)
    return [whole / size if reduce_type == "avg" else whole]


@defop(dims=_resized("dim"), types=OWN_ARITHMETIC, public=INTERNAL, derivative=Derivative(vjp=_scatter_vjp))
def reduce_scatter(input: Array, reduce_type: str, dim: Dim, size: int, groups: Groups = None) -> Array:
    """The reduction of the tensors of a group, of which each replica gets a part: (…, size * n, …) -> (…, n, …)."""
    _require_parts("reduce_scatter", input, dim, size)
    return input if runs_alone() else _scattered(input, reduce_type, dim, size, groups)


def _scattered(input: Array, reduce_type: str, dim: Dim, size: int, groups: Groups) -> Array:
    if reduce_type == "sum" and input.dtype.itemsize > 2:
        return lax.psum_scatter(input, AXIS, scatter_dimension=dim, axis_index_groups=groups, tiled=True)
    whole = reduced(input, reduce_type, groups)
    part = input.shape[dim] // size
    ordinal = lax.axis_index(AXIS)
    if groups is None:
        place = ordinal
    else:
        places = [group.index(n) for n in range(lax.axis_size(AXIS)) for group in groups if n in group]
        place = jnp.asarray(places)[ordinal]
    return lax.dynamic_slice_in_dim(whole, place * part, part, dim)


@defop(dims=_resized("split_dim", "concat_dim"), types=NO_ARITHMETIC, public=INTERNAL)
def all_to_all(input: Array, split_dim: Dim, concat_dim: Dim, size: int, groups: Groups = None) -> Array:
    """Part i along `split_dim` goes to member i of the group; received parts are joined along `concat_dim`."""
    _require_parts("all_to_all", input, split_dim, size)
    if runs_alone():
        return input
    return lax.all_to_all(input, AXIS, split_dim, concat_dim, axis_index_groups=groups, tiled=True)


@defop(dims=pointwise, types=NO_ARITHMETIC, public=INTERNAL)
def collective_permute(input: Array, pairs: tuple[tuple[int, int], ...]) -> Array:
    """The tensor of the source of a pair (source, target); zeros on replicas that are no target."""
    if runs_alone():
        return input if pairs else jnp.zeros_like(input)
    return lax.ppermute(input, AXIS, pairs)


def _broadcast_vjp(g: Array, root: int, groups: Groups) -> list[Array]:
    if runs_alone():
        return [g]
    total = reduced(g, "sum", groups)
    return [jnp.where(lax.axis_index(AXIS) == root, total, jnp.zeros_like(total))]


@defop(dims=pointwise, types=NO_ARITHMETIC, public=INTERNAL, derivative=Derivative(vjp=_broadcast_vjp))
def collective_broadcast(input: Array, root: int, groups: Groups = None) -> Array:
    """The tensor of one replica; zeros in groups without it."""
    return input if runs_alone() else broadcast(input, root, groups)
