"""Rows of optimizers: one application updates all parameters of a group, and their state.

The lists after `grads` are states and step counts, with the names that they have in PyTorch's state dicts; the others
are options of the group. `step` has one count for all parameters that are equally old, and `age[i]` is the place in it
for parameter `i`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.ops._dims import Factors, PartOf, Sizes
from weft.ops._kernels.optimizer import SGD
from weft.ops._kinds import Array, Arrays, Scalar
from weft.ops._table import INTERNAL, OWN_ARITHMETIC, defop
from weft.ops._updates import decayed, double, each, older, rounded, step_op, towards, whole_steps, wide


@step_op(native=[SGD])
def sgd_step(
    params: Arrays,
    grads: Arrays,
    momentum_buffer: Arrays,
    lr: Scalar,
    momentum: Scalar,
    dampening: Scalar,
    weight_decay: Scalar,
    *,
    nesterov: bool,
    maximize: bool,
) -> list[Array]:
    """The new parameters, then the new momentum buffers; an empty list of buffers means no momentum."""

    def rule(p: Array, g: Array, buffer: Array | None) -> tuple[Array | None, ...]:
        if buffer is not None:
            m = rounded(momentum, p)
            buffer = m * buffer + rounded(1 - double(dampening), p) * g
            g = g + m * buffer if nesterov else buffer
        return p - rounded(lr, p) * g, buffer

    return each(rule, params, grads, (momentum_buffer,), maximize=maximize, weight_decay=weight_decay)


@step_op()
def rmsprop_step(
    params: Arrays,
    grads: Arrays,
    square_avg: Arrays,
    momentum_buffer: Arrays,
    grad_avg: Arrays,
    step: Arrays,
    lr: Scalar,
    alpha: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    momentum: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Tieleman and Hinton, 2012; with `grad_avg`, the centered version of Graves, 2013."""
    del age

    def rule(p: Array, g: Array, square: Array, buffer: Array | None, mean: Array | None) -> tuple[Array | None, ...]:
        square = decayed(square, g * g, alpha)
        spread = square
        if mean is not None:
            mean = towards(mean, g, 1 - double(alpha))
            spread = square - mean * mean
        g = g / (jnp.sqrt(spread) + rounded(eps, p))
        if buffer is not None:
            g = buffer = rounded(momentum, p) * buffer + g
        return p - rounded(lr, p) * g, square, buffer, mean

    states = (square_avg, momentum_buffer, grad_avg)
    return each(rule, params, grads, states, maximize=maximize, weight_decay=weight_decay) + older(step)


@step_op()
def adagrad_step(
    params: Arrays,
    grads: Arrays,
    sum: Arrays,
    step: Arrays,
    lr: Scalar,
    lr_decay: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Duchi, Hazan and Singer, 2011."""
    rates = [(double(lr) / (1 + double(count) * lr_decay),) for count in step]

    def rule(p: Array, g: Array, rate: Array, total: Array) -> tuple[Array | None, ...]:
        total = total + g * g
        return p - rounded(rate, p) * g / (jnp.sqrt(total) + rounded(eps, p)), total

    new = each(rule, params, grads, (sum,), maximize=maximize, weight_decay=weight_decay, facts=rates, age=age)
    return new + older(step)


@step_op()
def adadelta_step(
    params: Arrays,
    grads: Arrays,
    square_avg: Arrays,
    acc_delta: Arrays,
    step: Arrays,
    lr: Scalar,
    rho: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Zeiler, 2012."""
    del age

    def rule(p: Array, g: Array, square: Array, travelled: Array) -> tuple[Array | None, ...]:
        small = rounded(eps, p)
        square = decayed(square, g * g, rho)
        delta = jnp.sqrt(travelled + small) / jnp.sqrt(square + small) * g
        return p - rounded(lr, p) * delta, square, decayed(travelled, delta * delta, rho)

    states = (square_avg, acc_delta)
    return each(rule, params, grads, states, maximize=maximize, weight_decay=weight_decay) + older(step)


@step_op()
def rprop_step(
    params: Arrays,
    grads: Arrays,
    prev: Arrays,
    step_size: Arrays,
    step: Arrays,
    eta_minus: Scalar,
    eta_plus: Scalar,
    smallest: Scalar,
    largest: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Riedmiller and Braun, 1993. A gradient whose sign has changed counts as zero."""
    del age

    def rule(p: Array, g: Array, before: Array, size: Array) -> tuple[Array | None, ...]:
        agrees = g * before
        factor = jnp.where(agrees > 0, rounded(eta_plus, p), jnp.where(agrees < 0, rounded(eta_minus, p), 1))
        size = jnp.clip(size * factor, rounded(smallest, p), rounded(largest, p))
        g = jnp.where(agrees < 0, 0, g)
        return p - jnp.sign(g) * size, g, size

    return each(rule, params, grads, (prev, step_size), maximize=maximize) + older(step)


@step_op()
def asgd_step(
    params: Arrays,
    grads: Arrays,
    ax: Arrays,
    eta: Arrays,
    mu: Arrays,
    step: Arrays,
    lr: Scalar,
    lambd: Scalar,
    alpha: Scalar,
    t0: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Polyak and Juditsky, 1992; `ax` is the average of the parameters since step `t0`."""
    counts = older(step)

    def rule(p: Array, g: Array, rate: Array, share: Array, average: Array) -> tuple[Array | None, ...]:
        p = p * rounded(1 - double(lambd) * double(rate), p) - rounded(rate, p) * g
        return p, jnp.where(share == 1, p, towards(average, p, share))

    facts = tuple(zip(eta, mu, strict=True))
    new = each(rule, params, grads, (ax,), maximize=maximize, weight_decay=weight_decay, facts=facts, age=age)
    # For the next step, as in PyTorch: this one uses the rate that the last one has left.
    rates = [double(lr) / (1 + double(lambd) * lr * double(count)) ** double(alpha) for count in counts]
    shares = [1 / jnp.maximum(1, double(count) - t0) for count in counts]
    new += [rounded(x, old) for x, old in zip(rates, eta, strict=True)]
    return new + [rounded(x, old) for x, old in zip(shares, mu, strict=True)] + counts


@step_op(dims=whole_steps)
def adafactor_step(
    params: Arrays,
    grads: Arrays,
    row_var: Arrays,
    col_var: Arrays,
    variance: Arrays,
    step: Arrays,
    lr: Scalar,
    beta2_decay: Scalar,
    eps1: Scalar | None,
    eps2: Scalar,
    d: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Shazeer and Stern, 2018. For matrices the means of squares are kept for rows and columns, not for elements."""
    counts = older(step)
    facts = [(double(count) ** double(beta2_decay), jnp.minimum(double(lr), double(count) ** -0.5)) for count in counts]
    tiny = iter([jnp.finfo(param.dtype).eps if eps1 is None else eps1 for param in params])

    def rule(
        p: Array, g: Array, share: Array, rate: Array, rows: Array, columns: Array, squares: Array | None
    ) -> tuple[Array | None, ...]:
        least = rounded(next(tiny), p)
        length = jnp.maximum(rounded(eps2, p), _root_mean_square(p)) * rounded(rate, p)
        p = p * rounded(1 - double(lr) * weight_decay, p)
        if squares is None:
            rows = towards(rows, jnp.mean(g * g, -1, keepdims=True), share)
            columns = towards(columns, jnp.mean(g * g, -2, keepdims=True), share)
            estimate = rows * columns / jnp.maximum(jnp.mean(rows, -2, keepdims=True), least)
        else:
            estimate = squares = towards(squares, g * g, share)
        # The bound is squared here as PyTorch has it: `eps1` bounds the root.
        move = g / jnp.sqrt(jnp.maximum(estimate, least * least))
        p = p - length / jnp.maximum(1, _root_mean_square(move) / rounded(d, p)) * move
        return p, rows, columns, squares

    return each(rule, params, grads, (row_var, col_var, variance), maximize=maximize, facts=facts, age=age) + counts


def _root_mean_square(x: Array) -> Array:
    return jnp.sqrt(jnp.mean(x * x))


@step_op(dims=whole_steps)
def muon_step(
    params: Arrays,
    grads: Arrays,
    momentum_buffer: Arrays,
    lr: Scalar,
    weight_decay: Scalar,
    momentum: Scalar,
    a: Scalar,
    b: Scalar,
    c: Scalar,
    eps: Scalar,
    *,
    nesterov: bool,
    ns_steps: int,
    adjust_lr_fn: str | None,
) -> list[Array]:
    """Jordan et al., 2024: the momentum of a matrix, made nearly orthogonal by `ns_steps` Newton-Schulz iterations."""

    def rule(p: Array, g: Array, buffer: Array) -> tuple[Array | None, ...]:
        buffer = towards(buffer, g, 1 - double(momentum))
        move = towards(g, buffer, momentum) if nesterov else buffer
        move = _orthogonalized(move, (a, b, c), ns_steps, eps)
        rate = double(lr) * _muon_ratio(p.shape, adjust_lr_fn)
        return p - rounded(rate, p) * wide(move), buffer

    return each(rule, params, grads, (momentum_buffer,), maximize=False, weight_decay=weight_decay, shrink=lr)


def _muon_ratio(shape: tuple[int, ...], adjust: str | None) -> float:
    rows, columns = shape
    if adjust == "match_rms_adamw":
        return 0.2 * max(rows, columns) ** 0.5
    return max(1, rows / columns) ** 0.5


def _orthogonalized(x: Array, coefficients: tuple[Scalar, ...], steps: int, eps: Scalar) -> Array:
    """The nearest orthogonal matrix, in bfloat16 and approximately: its singular values are near one."""
    tall = x.shape[0] > x.shape[1]
    y = (x.T if tall else x).astype(jnp.bfloat16)
    y = y / jnp.maximum(jnp.linalg.norm(wide(y)), rounded(eps, wide(y))).astype(y.dtype)
    a, b, c = (rounded(number, wide(y)) for number in coefficients)
    for _ in range(steps):
        gram = _product(y, y.T).astype(y.dtype)
        change = (b * wide(gram) + c * _product(gram, gram)).astype(y.dtype)
        y = (a * wide(y) + _product(change, y)).astype(y.dtype)
    return y.T if tall else y


def _product(x: Array, y: Array) -> Array:
    return jnp.matmul(x, y, preferred_element_type=jnp.float32)


def _flat(shapes: Sequence[Sizes]) -> Factors:
    """For vectors of one length that hold all parameters: no part can be computed alone, and there are no names."""
    letters = tuple(tuple(PartOf(dim) for dim in range(len(shape))) for shape in shapes)
    return Factors(letters, (letters[0], ()), frozenset([0]))


@defop(types=OWN_ARITHMETIC, public=INTERNAL, dims=_flat)
def lbfgs_step(grad: Array, dirs: Arrays, steps: Arrays, ratios: Arrays, scale: Array) -> tuple[Array, Array]:
    """The direction of L-BFGS (Nocedal, 1980), and the directional derivative along it.

    `dirs` are changes of the gradient, `steps` changes of the point, and `ratios` the reciprocals of their products; a
    ratio of zero skips the pair. The first guess of the inverse Hessian is `scale` times the identity.
    """
    pairs = (jnp.stack(dirs), jnp.stack(steps), jnp.stack(ratios))

    def back(q: Array, pair: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        change, move, ratio = pair
        weight = jnp.sum(move * q) * ratio
        return q - weight * change, weight

    def forth(r: Array, pair: tuple[tuple[Array, Array, Array], Array]) -> tuple[Array, None]:
        (change, move, ratio), weight = pair
        return r + move * (weight - jnp.sum(change * r) * ratio), None

    # The two-loop recursion (Nocedal and Wright, algorithm 7.4), which never makes the matrix.
    q, weights = jax.lax.scan(back, -grad, pairs, reverse=True)
    direction, _ = jax.lax.scan(forth, q * scale, (pairs, weights))
    return direction, jnp.sum(grad * direction)
