"""What rows of optimizers share: the type that steps are computed in, and the walk over the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from weft.ops._jax import jit
from weft.ops._table import Array, Arrays, Scalar


def wide(x: Array) -> Array:
    """The array in the type that steps are computed in: reals of at least 32 bits, complex parts side by side."""
    if jnp.iscomplexobj(x):
        return jnp.stack([x.real, x.imag], -1)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def narrow(x: Array, like: Array) -> Array:
    """Back to the type of `like`."""
    return (x[..., 0] + 1j * x[..., 1] if jnp.iscomplexobj(like) else x).astype(like.dtype)


def double(number: Scalar) -> Array:
    """A number in float64, to be rounded once, as Python numbers are: in float32, 1 - 0.999 is not 0.001."""
    return jnp.asarray(number).astype(jnp.float64)


def rounded(number: Scalar, x: Array) -> Array:
    """A number in the type of `x`."""
    return double(number).astype(x.dtype)


def towards(old: Array, new: Array, share: Scalar) -> Array:
    """`old`, moved by a share of the way to `new`."""
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
    shrink_rate: Scalar | None = None,
    facts: Sequence[Sequence[Any]] = ((),),
    age: Sequence[int] = (),
) -> list[Array]:
    """New parameters, then the new states, list after list.

    `rule(p, g, *facts, *state)` gives a parameter and its state, all in the wide type; a state whose list is empty
    is None. `facts[age[i]]` is what the age of parameter `i` says. `weight_decay` adds the gradient of an L2 penalty,
    or, with a `shrink_rate`, shrinks the parameter by the product of both.
    """

    @jit  # traced once for parameters of one type
    def update(grad: Array, of_age: Sequence[Any], *old: Array | None) -> list[Array | None]:
        p, *state = [None if x is None else wide(x) for x in old]
        assert p is not None, "there is a parameter for every gradient"
        g = wide(grad).astype(p.dtype)
        g = -g if maximize else g
        if shrink_rate is None:
            g = g + rounded(weight_decay, p) * p
        else:
            p = p * rounded(1 - double(shrink_rate) * weight_decay, p)
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
    """The counts of steps, this one included."""
    return [count + 1 for count in step]


def bias_left(beta: Scalar, count: Array) -> Array:
    """What a running mean that started at zero has taken in so far, as a share of one."""
    return 1 - double(beta) ** double(count)
