"""Collectives between replicas as functions of jax arrays, under a mesh axis with one device for each replica.

A body that calls them is run by `jax.shard_map`, and sees the arrays of its own replica. `groups` are lists of ordinals
of equal length, each ordinal in one of them; None means one group of all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from weft._base.collector import collector_paused
from weft._base.interrupts import uninterrupted
from weft._base.types import AnyCallable, Arg, PyTree
from weft.errors import DistBackendError
from weft.ops._jax import all_gather, equations_of, eval_shape, make_jaxpr, pmax, pmin, psum
from weft.ops._kinds import Groups

AXIS = "replicas"
"""The axis of the mesh."""


# no cell: set once, when the process joins a job
class _Job:
    """The number of replicas with which this process runs programs."""

    size = 1


def set_replica_count(size: int) -> None:
    """Trace bodies for this number of replicas from now on."""
    _Job.size = size


def is_replicated() -> bool:
    """Whether programs run on several replicas."""
    return _Job.size > 1


def jaxpr_of(function: AnyCallable, *structs: jax.ShapeDtypeStruct) -> ClosedJaxpr:
    """The function's closed jaxpr for inputs of these types, traced as by one of the replicas."""
    with uninterrupted, collector_paused:  # an exception from outside would leave jax in the middle of a trace
        return make_jaxpr(function, axis_env=_axis_env())(*structs)


def result_types(function: AnyCallable, *structs: jax.ShapeDtypeStruct) -> PyTree:
    """`jax.eval_shape`, for one of the replicas."""
    with uninterrupted, collector_paused:
        if _Job.size == 1:
            return eval_shape(function, *structs)
        return make_jaxpr(function, axis_env=_axis_env(), return_shape=True)(*structs)[1]


def has_collectives(closed: ClosedJaxpr) -> bool:
    """Whether a closed jaxpr has to run on all replicas together."""
    return _Job.size > 1 and any(_primitives_of_replicas(closed))


def exchange_count(closed: ClosedJaxpr) -> int:
    """The number of equations of a closed jaxpr that exchange data between replicas."""
    return sum([name != "axis_index" for name in _primitives_of_replicas(closed)])


def _primitives_of_replicas(closed: ClosedJaxpr) -> Iterator[str]:
    """The names of the primitives that work along the axis of replicas, those of functions within included."""
    for equation in equations_of(closed):
        params = equation.params
        if AXIS in (*params.get("axes", ()), *np.atleast_1d(params.get("axis_name", ()))):
            yield equation.primitive.name


def _axis_env() -> list[tuple[str, int]] | None:
    return [(AXIS, _Job.size)] if _Job.size > 1 else None


def runs_alone() -> bool:
    """Whether there is one replica, so that collectives move nothing. Outside of a mesh, a job's bodies are refused."""
    if _Job.size == 1:
        return True
    try:
        lax.axis_size(AXIS)
    except NameError:
        raise DistBackendError(
            f"a collective of {_Job.size} replicas was traced outside of their program; call it on tensors, and not in "
            "a function that jax runs by itself (to_jax, vmap, callbacks)"
        ) from None
    return False


def reduced(x: jax.Array, word: str, groups: Groups = None) -> jax.Array:
    """The reduction over all replicas of a group. 16-bit floats are added in float32."""
    if x.dtype != jnp.bool_ and word in _NATIVE:
        return _finished(_NATIVE[word](_wide(x, word), AXIS, axis_index_groups=groups), x, word, groups)
    return folded(all_gather(x, AXIS, axis_index_groups=groups), word, groups)


def folded(parts: jax.Array, word: str, groups: Groups = None) -> jax.Array:
    """(replicas, …) -> (…), reduced in the order of ordinals."""
    return _finished(reduce(_PAIRWISE[word], list(_wide(parts, word))), parts, word, groups)


def broadcast(x: jax.Array, root: int, groups: Groups = None) -> jax.Array:
    """The root's array, and zeros in groups without it.

    It is a sum of bit patterns that are all zero but one, since XLA:CPU has no broadcast.
    """
    bits = _bits(x)
    chosen = psum(jnp.where(lax.axis_index(AXIS) == root, bits, jnp.zeros_like(bits)), AXIS, axis_index_groups=groups)
    if x.dtype == jnp.bool_:
        return chosen.astype(jnp.bool_)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        real, imaginary = lax.bitcast_convert_type(chosen, x.real.dtype)
        return lax.complex(real, imaginary)
    return lax.bitcast_convert_type(chosen, x.dtype)


def _bits(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return _bits(jnp.stack([x.real, x.imag]))
    return lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")


def _wide(x: jax.Array, word: str) -> jax.Array:
    """The array in float32 if it has 16 bits and is added or multiplied."""
    short = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize <= 2 and word not in {"min", "max"}
    return x.astype(jnp.float32) if short else x


def _finished(total: jax.Array, like: jax.Array, word: str, groups: Groups) -> jax.Array:
    if word == "avg" and like.dtype != jnp.bool_:
        count = lax.axis_size(AXIS) if groups is None else len(groups[0])
        total = lax.div(total, jnp.asarray(count, total.dtype))  # for integers, towards zero
    return total.astype(like.dtype)


def _extreme(collective: Callable[..., jax.Array], nan: int, x: jax.Array, *args: Arg, **groups: Arg) -> jax.Array:
    """`pmax` or `pmin`, of floats as integers in the same order: XLA:CPU drops NaN where it reduces floats.

    nan   the sign of the integer that stands for NaN: 1 for the largest, -1 for the least
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return collective(x, *args, **groups)
    bits = lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")
    most = np.iinfo(bits.dtype).max

    def ordered(bits: jax.Array) -> jax.Array:  # its own inverse
        return jnp.where(bits < 0, bits ^ most, bits)

    best = collective(jnp.where(x != x, most if nan > 0 else ~most, ordered(bits)), *args, **groups)
    return lax.bitcast_convert_type(ordered(best), x.dtype)


_NATIVE: dict[str, Callable[..., jax.Array]] = {
    "sum": psum,
    "avg": psum,
    "premul_sum": psum,
    "min": partial(_extreme, pmin, -1),
    "max": partial(_extreme, pmax, 1),
}
_PAIRWISE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "sum": jnp.add,
    "avg": jnp.add,
    "premul_sum": jnp.add,
    "prod": jnp.multiply,
    "min": jnp.minimum,
    "max": jnp.maximum,
    "band": jnp.bitwise_and,
    "bor": jnp.bitwise_or,
    "bxor": jnp.bitwise_xor,
}
