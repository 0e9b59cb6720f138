"""Special functions that SciPy computes."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from weft._lazy.interpreter.elementwise import elementwise
from weft._lazy.interpreter.table import Array, library

_special = partial(library, "scipy.special")
_DIGAMMA_OF_ZERO = -np.inf if jax.__version_info__ >= (0, 11) else np.nan


def _enter(name: str, of_scipy: str) -> None:
    """Register a function of `scipy.special`, which is only imported when it is called."""

    @elementwise(name)
    def function(*arrays: Array) -> Array:
        return getattr(_special(), of_scipy)(*arrays)


for _name, _of_scipy in {
    "bessel_i0e": "i0e",
    "igamma": "gammainc",
    "igammac": "gammaincc",
    "regularized_incomplete_beta": "betainc",
    "zeta": "zeta",
}.items():
    _enter(_name, _of_scipy)


@elementwise("bessel_i1e")
def _bessel_i1e(x: Array) -> Array:
    return np.copysign(_special().i1e(x), x)


@elementwise("lgamma")
def _lgamma(x: Array) -> Array:
    return np.where(np.isinf(x), np.absolute(x), _special().gammaln(x))


@elementwise("digamma")
def _digamma(x: Array) -> Array:
    """SciPy's function, except at 0 and -0: SciPy gives -inf and inf, jax gives NaN, and -inf from 0.11 on."""
    return np.where(x == 0, np.full((), _DIGAMMA_OF_ZERO, x.dtype), _special().psi(x))


@elementwise("polygamma")
def _polygamma(order: Array, x: Array) -> Array:
    special = _special()
    sign = np.where(order % 2 == 0, -1, 1).astype(x.dtype)
    higher = sign * np.exp(special.gammaln(order + 1)) * special.zeta(order + 1, x)
    return np.where(order == 0, _digamma(x), higher).astype(x.dtype)
