"""Draws of gamma and Dirichlet distributions, with their derivatives with respect to the parameters.

A draw x of a distribution function F(x; a) moves by `-(dF/da) / (dF/dx)` when the parameter does and F(x; a) stays
(Figurnov, Mohamed and Mnih, "Implicit Reparameterization Gradients", 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma

from weft._base.dtype import FLOAT
from weft.ops._dims import Factors, Sizes, pointwise
from weft.ops._kinds import Array, Arrays, Key
from weft.ops._rows import require
from weft.ops._table import NO_METHOD, OWN_ARITHMETIC, Derivative, Public, defop


def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the double exponential formula for integrands that fall like exp(-u) on (0, inf).

    Takahasi and Mori, "Double exponential formulas for numerical integration", 1974. With 97 nodes, the derivatives
    below have a relative error of about 1e-9.
    """
    s = np.linspace(-3.5, 8, 97)
    u = np.exp(s - np.exp(-s))
    return u, u * (1 + np.exp(-s)) * (s[1] - s[0])


_NODES, _WEIGHTS = _nodes()


def _integral(integrand: Callable[[Array], Array], left: Array, scale: Array) -> Array:
    """The integral over d from minus infinity to 0 where `left`, else minus that from 0 to infinity.

    The integral over all d must be 0, so that the two are equal; one of them is computed without cancellation.
    """
    column = (-1, *(1,) * left.ndim)
    nodes, weights = (jnp.asarray(x, scale.dtype).reshape(column) for x in (_NODES, _WEIGHTS))
    sign = jnp.where(left, -1, 1).astype(scale.dtype)
    return -sign * scale * (weights * integrand(sign * scale * nodes)).sum(0)


def gamma_slope(a: Array, x: Array) -> Array:
    """The derivative of a gamma draw, by the density `exp(a z - e**z)` of its logarithm z; d is z - log x.

    To the right, the density falls like `exp(-v)` with v = x expm1(d), over which the integral is taken there. A draw
    of 0, which stands for all that are too small, does not move.
    """
    inside = x > 0
    x = jnp.where(inside, x, 1)
    left = x <= a
    width = jnp.abs(a - x) + jnp.sqrt(x)
    scale = jnp.where(left, 1 / width, jnp.maximum(x, 1) / (width + 1))

    def integrand(step: Array) -> Array:
        back, ahead = jnp.where(left, step, 0), jnp.where(left, 0, step)  # so that no derivative overflows
        d = back + jnp.log1p(ahead / x)
        v = x * jnp.expm1(back) + ahead
        return jnp.exp(a * d - v) * (d + jnp.log(x) - digamma(a)) / jnp.where(left, 1, x + v)

    return jnp.where(inside, -x * _integral(integrand, left, scale), 0)


def _beta_slope(x: Array, a: Array, b: Array) -> Array:
    """The derivative of a beta draw with respect to a, divided by 1 - x.

    It uses the density `s(z)**a s(-z)**b` of z = logit(x), where s is the logistic function; d is z - logit(x). The
    integral is taken on the side of the mean of log(s) on which log(x) is, where the integrand has one sign; or on the
    left, where the density is as good as `exp(a d)` for small x.
    """
    log_x, log_rest = jnp.log(x), jnp.log1p(-x)
    up, down, mean = a * (1 - x), b * x, digamma(a) - digamma(a + b)
    left = (log_x < mean) | (x * jnp.maximum(b, 1) <= up)
    scale = 1 / (jnp.abs(up - down) + jnp.sqrt((a + b) * x * (1 - x)))

    def integrand(d: Array) -> Array:
        log_s, log_rest_s = -jnp.logaddexp(log_x, log_rest - d), -jnp.logaddexp(log_x + d, log_rest)
        return jnp.exp(a * log_s + b * log_rest_s) * (log_s + log_x - mean)

    return -x * _integral(integrand, left, scale)


@defop("_standard_gamma_grad", dims=pointwise, public=NO_METHOD)
def standard_gamma_grad(input: Array, output: Array) -> Array:
    """The derivatives of gamma draws `output` with respect to their shape parameters `input`."""
    require(input, "_standard_gamma_grad_cpu", FLOAT)
    return gamma_slope(input, output)


@jax.custom_jvp
def _gamma_draws(a: Array, key: Array) -> Array:
    return jax.random.gamma(key, a, dtype=a.dtype)


@_gamma_draws.defjvp
def _gamma_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    draws = _gamma_draws(*primals)
    return draws, gamma_slope(primals[0], draws) * tangents[0]


def _standard_gamma_vjp(g: Array, out: Array, input: Array) -> tuple[Array]:
    """As that of the body, without a second draw."""
    return (g * gamma_slope(input, out),)


@defop(
    "_standard_gamma",
    types=OWN_ARITHMETIC,
    dims=pointwise,
    public=NO_METHOD,
    derivative=Derivative(vjp=_standard_gamma_vjp),
)
def standard_gamma(input: Array, *, key: Key) -> Array:
    """Gamma numbers with the shape parameters in `input` and scale 1; differentiable with respect to them."""
    require(input, "gamma_cpu", FLOAT)
    return _gamma_draws(input, key)


@defop("_dirichlet_grad", dims=pointwise, public=Public(function=True, method=""))
def dirichlet_grad(x: Array, alpha: Array, total: Array) -> Array:
    """The derivatives of Dirichlet draws `x`, each with respect to its own parameter `alpha`, divided by 1 - x.

    `total` is the sum of the parameters of a draw: each element of a draw is a beta number.
    """
    require(x, "_dirichlet_grad_cpu", FLOAT)
    return _beta_slope(x, alpha, total - alpha)


def _vectors(shapes: Sequence[Sizes]) -> Factors:
    """The last dim holds one draw."""
    letters = (*range(len(shapes[0]) - 1), "element")
    return Factors((letters,), (letters,), frozenset({"element"}))


def _element_slopes(a: Array, draws: Array) -> Array:
    """The derivative of each element with respect to its own parameter, divided by the rest, 1 - x."""
    return _beta_slope(draws, a, a.sum(-1, keepdims=True) - a)


@jax.custom_jvp
def _dirichlet_draws(a: Array, key: Array) -> Array:
    limits = jnp.finfo(a.dtype)
    draws = jax.nn.softmax(jax.random.loggamma(key, a, dtype=a.dtype))
    return jnp.clip(draws, limits.tiny, 1 - limits.epsneg)


@_dirichlet_draws.defjvp
def _dirichlet_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    """When one element of a draw moves, the others keep their ratios."""
    draws = _dirichlet_draws(*primals)
    moves = _element_slopes(primals[0], draws) * tangents[0]
    return draws, moves - draws * moves.sum(-1, keepdims=True)


def _dirichlet_vjp(g: Array, out: Array, input: Array) -> tuple[Array]:
    """As that of the body, without a second draw."""
    return (_element_slopes(input, out) * (g - (out * g).sum(-1, keepdims=True)),)


@defop(
    "_sample_dirichlet",
    types=OWN_ARITHMETIC,
    dims=_vectors,
    public=NO_METHOD,
    derivative=Derivative(vjp=_dirichlet_vjp),
)
def sample_dirichlet(input: Array, *, key: Key) -> Array:
    """Draws of Dirichlet distributions, whose parameters stand in the last dim; differentiable with respect to them."""
    require(input, "dirichlet", FLOAT)
    return _dirichlet_draws(input, key)
