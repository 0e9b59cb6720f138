"""Rows of optimizers: one application updates all parameters of a group, and their state."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from weft.ops._table import Array, Arrays, Scalar, defop


def _wide(x: Array) -> Array:
    """The array in the type that steps are computed in: reals of at least 32 bits, complex parts side by side."""
    if jnp.iscomplexobj(x):
        return jnp.stack([x.real, x.imag], -1)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _narrow(x: Array, like: Array) -> Array:
    """Back to the type of `like`."""
    return (x[..., 0] + 1j * x[..., 1] if jnp.iscomplexobj(like) else x).astype(like.dtype)


def _gradient(param: Array, grad: Array, maximize: bool, decay: Any) -> tuple[Array, Array]:
    """Parameter and gradient to compute with; `decay` adds the gradient of an L2 penalty."""
    p, g = _wide(param), _wide(grad).astype(_wide(param).dtype)
    if maximize:
        g = -g
    return p, g + _like(decay, p) * p


def _like(number: Scalar, x: Array) -> Array:
    return _double(number).astype(x.dtype)


def _double(number: Scalar) -> Array:
    """A number in float64, to be rounded once, as Python numbers are: in float32, 1 - 0.999 is not 0.001."""
    return jnp.asarray(number).astype(jnp.float64)


@defop(function=False, method=False, differentiable=False)
def sgd_step(
    params: Arrays, grads: Arrays, buffers: Arrays, lr: Scalar, momentum: Scalar, dampening: Scalar,
    weight_decay: Scalar, *, nesterov: bool, maximize: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """New parameters, then new momentum buffers; without buffers there is no momentum."""
    new_params, new_buffers = [], []
    for at, (param, grad) in enumerate(zip(params, grads, strict=True)):
        p, g = _gradient(param, grad, maximize, weight_decay)
        if buffers:
            m = _like(momentum, p)
            buffer = m * _wide(buffers[at]) + _like(1 - _double(dampening), p) * g
            new_buffers.append(_narrow(buffer, buffers[at]))
            g = g + m * buffer if nesterov else buffer
        new_params.append(_narrow(p - _like(lr, p) * g, param))
    return (*new_params, *new_buffers)


@defop(function=False, method=False, differentiable=False)
def adam_step(
    params: Arrays, grads: Arrays, means: Arrays, squares: Arrays, peaks: Arrays, steps: Arrays, lr: Scalar,
    beta1: Scalar, beta2: Scalar, eps: Scalar, weight_decay: Scalar, *, decoupled: bool, maximize: bool,
    step_of: tuple[int, ...],
) -> tuple[Array, ...]:  # fmt: skip
    """New parameters, means, squares, peaks (with AMSGrad) and steps.

    Kingma and Ba, 2015; decoupled weight decay is Loshchilov and Hutter's, 2019. `step_of` says for each parameter
    which of the steps is its own: parameters of one age share one.
    """
    counts = [step + 1 for step in steps]
    corrections = [[1 - _double(beta) ** count.astype(jnp.float64) for beta in (beta1, beta2)] for count in counts]
    new: list[list[Array]] = [[], [], [], []]
    for at, (param, grad) in enumerate(zip(params, grads, strict=True)):
        p, g = _gradient(param, grad, maximize, 0.0 if decoupled else weight_decay)
        first, second = corrections[step_of[at]]
        if decoupled:
            p = p * _like(1 - _double(lr) * weight_decay, p)
        mean = _wide(means[at])
        mean = mean + _like(1 - _double(beta1), p) * (g - mean)
        square = _like(beta2, p) * _wide(squares[at]) + _like(1 - _double(beta2), p) * g * g
        largest = square
        if peaks:
            largest = jnp.maximum(_wide(peaks[at]), square)
            new[3].append(_narrow(largest, peaks[at]))
        spread = jnp.sqrt(largest) / _like(jnp.sqrt(second), p) + _like(eps, p)
        p = p - _like(_double(lr) / first, p) * mean / spread
        for listed, x, old in zip(new, (p, mean, square), (param, means[at], squares[at]), strict=False):
            listed.append(_narrow(x, old))
    return (*new[0], *new[1], *new[2], *new[3], *counts)
