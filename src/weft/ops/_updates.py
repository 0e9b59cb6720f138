"""Helpers of optimizer rows: the type in which steps are computed, and the loop over the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import jax.numpy as jnp

from weft.ops._dims import Factors, PartOf, Sizes, Static, shared_letter
from weft.ops._jax import jit
from weft.ops._kinds import Array, Arrays, Many, Scalar
from weft.ops._table import INTERNAL, OWN_ARITHMETIC, defop


def steps(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For optimizer rows: lists of parameters, their gradients, and their states; new parameters and states come out.

    A state of the shape of its parameter is split with it. States have no names; gradients have those of parameters.
    """
    rest = iter(shapes)
    groups: list[list[Sizes]] = []
    for entry in static.values():
        if isinstance(entry, Many):
            groups.append(list(islice(rest, entry.count)))
    params, grads, *states = groups
    letters = [tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate(params)]
    # Adafactor keeps rows and columns, which have other shapes than their parameter and stay as they are.
    of_states = [
        tuple(PartOf((at, dim) if [shape] == params[at : at + 1] else (group, at, dim)) for dim in range(len(shape)))
        for group, state in enumerate(states)
        for at, shape in enumerate(state)
    ]
    ins = (*letters, *letters[: len(grads)], *of_states)
    return Factors(ins, (*letters, *of_states), separate=True)


def whole_steps(shapes: Sequence[Sizes], static: Static) -> Factors:
    """As `steps`, for rows that look at all elements of a parameter together."""
    factors = steps(shapes, static)
    return replace(factors, whole=frozenset(map(shared_letter, chain(*factors.ins))))


def row_steps(shapes: Sequence[Sizes], static: Static) -> Factors:
    """As `steps`, for rows that look at all elements of a row (along dim 0) of a parameter together."""
    factors = steps(shapes, static)
    return replace(factors, whole=frozenset(shared_letter(letter) for dims in factors.ins for letter in dims[1:]))


step_op = partial(defop, types=OWN_ARITHMETIC, public=INTERNAL, dims=steps)
"""A row that takes one step of an optimizer, for each element by itself unless `dims` says otherwise."""


def wide(x: Array) -> Array:
    """The array in the type in which steps are computed: at least 32 bits; complex numbers become pairs of reals."""
    if jnp.iscomplexobj(x):
        return jnp.stack([x.real, x.imag], -1)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def narrow(x: Array, like: Array) -> Array:
    """The array in the type of `like` again."""
    return (x[..., 0] + 1j * x[..., 1] if jnp.iscomplexobj(like) else x).astype(like.dtype)


def double(number: Scalar) -> Array:
    """A number in float64. Differences are computed there and rounded once: in float32, 1 - 0.999 is not 0.001."""
    return jnp.asarray(number).astype(jnp.float64)


def rounded(number: Scalar, x: Array) -> Array:
    """A number in the type of `x`."""
    return double(number).astype(x.dtype)


def towards(old: Array, new: Array, share: Scalar) -> Array:
    """`old + share * (new - old)`."""
    return old + rounded(share, old) * (new - old)


def decayed(old: Array, new: Array, keep: Scalar) -> Array:
    """A running mean that keeps a share of its old value."""
    return rounded(keep, old) * old + rounded(1 - double(keep), old) * new


def each(
    rule: Callable[..., Sequence[Array | None]],
    params: Arrays,
    grads: Arrays,
    states: Sequence[Arrays],
    *,
    maximize: bool,
    weight_decay: Scalar = 0.0,
    shrink: Scalar | None = None,
    facts: Sequence[Arrays] = ((),),
    age: Sequence[int] = (),
) -> list[Array]:
    """The new parameters, then the new states, one list after the other.

    `rule(p, g, *facts, *state)` returns a new parameter and its new state, all in the wide type; an empty list of
    states is given as None. `facts[age[i]]` are the values that depend on the step count of parameter `i`.
    `weight_decay` adds the gradient of an L2 penalty; with a `shrink` it instead multiplies the parameter by
    `1 - shrink * weight_decay`.
    """

    @jit  # parameters of one type and shape share one trace
    def update(grad: Array, of_age: Arrays, *old: Array | None) -> list[Array | None]:
        p, *state = [None if x is None else wide(x) for x in old]
        assert p is not None, "there is a parameter for every gradient"
        # 16-bit parameters are stepped in float32 and rounded once: a small step would otherwise be lost in each of its
        # roundings.
        g = wide(grad).astype(p.dtype)
        g = -g if maximize else g
        if shrink is None:
            g = g + rounded(weight_decay, p) * p
        else:
            p = p * rounded(1 - double(shrink) * weight_decay, p)
        results = rule(p, g, *of_age, *state)
        return [None if x is None or was is None else narrow(x, was) for x, was in zip(results, old, strict=True)]

    columns = (params, *states)
    new: list[list[Array]] = [[] for _ in columns]
    for at, grad in enumerate(grads):
        results = update(grad, facts[age[at] if age else 0], *[column[at] if column else None for column in columns])
        for column, x in zip(new, results, strict=True):
            if x is not None:
                column.append(x)
    return [x for column in new for x in column]


def older(step: Arrays) -> list[Array]:
    """The step counts, with this step included."""
    return [count + 1 for count in step]


def bias_left(beta: Scalar, count: Array) -> Array:
    """`1 - beta ** count`: the divisor that corrects the bias of a running mean that started at zero."""
    return 1 - double(beta) ** double(count)
