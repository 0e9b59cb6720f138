"""Rows of Adam and its relatives. `optimizer.py` explains the parameters."""

from __future__ import annotations

import jax.numpy as jnp

from weft.ops._kernels.optimizer import ADAM
from weft.ops._kinds import Array, Arrays, Scalar
from weft.ops._updates import bias_left, decayed, double, each, older, rounded, row_steps, step_op, towards


@step_op(native=[ADAM])
def adam_step(
    params: Arrays,
    grads: Arrays,
    exp_avg: Arrays,
    exp_avg_sq: Arrays,
    max_exp_avg_sq: Arrays,
    step: Arrays,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    decoupled_weight_decay: bool,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Kingma and Ba, 2015. `max_exp_avg_sq` is AMSGrad's; decoupled decay is by Loshchilov and Hutter, 2019."""
    counts = older(step)
    # Once for each age and not for each parameter, and in float64: in float32, 1 - 0.999 is off by 1.3e-5 of itself.
    facts = [(double(lr) / bias_left(beta1, n), jnp.sqrt(bias_left(beta2, n))) for n in counts]

    def rule(
        p: Array, g: Array, rate: Array, scale: Array, mean: Array, square: Array, peak: Array | None
    ) -> tuple[Array | None, ...]:
        mean = towards(mean, g, 1 - double(beta1))
        square = decayed(square, g * g, beta2)
        peak = None if peak is None else jnp.maximum(peak, square)
        # In PyTorch's order: eps is added after the correction of the bias, not before it.
        spread = jnp.sqrt(square if peak is None else peak) / rounded(scale, p) + rounded(eps, p)
        return p - rounded(rate, p) * mean / spread, mean, square, peak

    states = (exp_avg, exp_avg_sq, max_exp_avg_sq)
    shrink = lr if decoupled_weight_decay else None
    new = each(
        rule, params, grads, states, maximize=maximize, weight_decay=weight_decay, shrink=shrink, facts=facts, age=age
    )
    return new + counts


@step_op()
def adamax_step(
    params: Arrays,
    grads: Arrays,
    exp_avg: Arrays,
    exp_inf: Arrays,
    step: Arrays,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Kingma and Ba, 2015, section 7.1: a decaying maximum of gradients in place of the mean of squares."""
    counts = older(step)
    facts = [(double(lr) / bias_left(beta1, n),) for n in counts]

    def rule(p: Array, g: Array, rate: Array, mean: Array, norm: Array) -> tuple[Array | None, ...]:
        mean = towards(mean, g, 1 - double(beta1))
        norm = jnp.maximum(rounded(beta2, p) * norm, jnp.abs(g) + rounded(eps, p))
        return p - rounded(rate, p) * mean / norm, mean, norm

    states = (exp_avg, exp_inf)
    new = each(rule, params, grads, states, maximize=maximize, weight_decay=weight_decay, facts=facts, age=age)
    return new + counts


@step_op()
def nadam_step(
    params: Arrays,
    grads: Arrays,
    exp_avg: Arrays,
    exp_avg_sq: Arrays,
    mu_product: Arrays,
    step: Arrays,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    momentum_decay: Scalar,
    *,
    decoupled_weight_decay: bool,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Dozat, 2016: Adam with Nesterov's momentum, which grows towards `beta1`."""
    counts = older(step)
    momenta = [_momentum(beta1, momentum_decay, count) for count in counts]
    products = [product * rounded(now, product) for product, (now, _) in zip(mu_product, momenta, strict=True)]
    facts = [
        (
            double(lr) * (1 - now) / (1 - double(product)),
            double(lr) * after / (1 - double(product) * after),
            bias_left(beta2, count),
        )
        for count, (now, after), product in zip(counts, momenta, products, strict=True)
    ]

    def rule(
        p: Array, g: Array, rate: Array, mean_rate: Array, seen: Array, mean: Array, square: Array
    ) -> tuple[Array | None, ...]:
        mean = towards(mean, g, 1 - double(beta1))
        square = decayed(square, g * g, beta2)
        spread = jnp.sqrt(square / rounded(seen, p)) + rounded(eps, p)
        move = (rounded(rate, p) * g + rounded(mean_rate, p) * mean) / spread
        return p - move, mean, square

    states = (exp_avg, exp_avg_sq)
    shrink = lr if decoupled_weight_decay else None
    new = each(
        rule, params, grads, states, maximize=maximize, weight_decay=weight_decay, shrink=shrink, facts=facts, age=age
    )
    return new + products + counts


def _momentum(beta1: Scalar, decay: Scalar, count: Array) -> tuple[Array, Array]:
    """The momentum of this step and of the next."""
    now, after = (double(beta1) * (1 - 0.5 * 0.96 ** (n * double(decay))) for n in (double(count), double(count) + 1))
    return now, after


@step_op()
def radam_step(
    params: Arrays,
    grads: Arrays,
    exp_avg: Arrays,
    exp_avg_sq: Arrays,
    step: Arrays,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    decoupled_weight_decay: bool,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Liu et al., 2020: divides by the root mean square only once the variance of this rate is tractable."""
    counts = older(step)
    facts = [(double(lr) / bias_left(beta1, n), *_rectification(beta2, double(n))) for n in counts]

    def rule(
        p: Array, g: Array, rate: Array, factor: Array, tractable: Array, mean: Array, square: Array
    ) -> tuple[Array | None, ...]:
        mean = towards(mean, g, 1 - double(beta1))
        square = decayed(square, g * g, beta2)
        adapted = jnp.where(tractable, rounded(factor, p) / (jnp.sqrt(square) + rounded(eps, p)), 1)
        return p - rounded(rate, p) * mean * adapted, mean, square

    states = (exp_avg, exp_avg_sq)
    shrink = lr if decoupled_weight_decay else None
    new = each(
        rule, params, grads, states, maximize=maximize, weight_decay=weight_decay, shrink=shrink, facts=facts, age=age
    )
    return new + counts


def _rectification(beta2: Scalar, count: Array) -> tuple[Array, Array]:
    """The numerator of the adaptive rate, and whether the variance of that rate is tractable."""
    seen = bias_left(beta2, count)
    limit = 2 / (1 - double(beta2)) - 1
    length = limit - 2 * count * double(beta2) ** count / seen
    tractable = length > 5
    rect = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)
    return jnp.sqrt(seen * jnp.where(tractable, rect, 1)), tractable


@step_op(dims=row_steps)
def sparse_adam_step(
    params: Arrays,
    grads: Arrays,
    exp_avg: Arrays,
    exp_avg_sq: Arrays,
    step: Arrays,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    *,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    """Adam as it is for rows (along dim 0) of parameters, which may have been gathered."""
    counts = older(step)
    facts = [(double(lr) * jnp.sqrt(bias_left(beta2, n)) / bias_left(beta1, n),) for n in counts]

    def rule(p: Array, g: Array, rate: Array, mean: Array, square: Array) -> tuple[Array | None, ...]:
        mean, square = towards(mean, g, 1 - double(beta1)), towards(square, g * g, 1 - double(beta2))
        move = rounded(rate, p) * mean / (jnp.sqrt(square) + rounded(eps, p))
        return p - move, mean, square

    return each(rule, params, grads, (exp_avg, exp_avg_sq), maximize=maximize, facts=facts, age=age) + counts
