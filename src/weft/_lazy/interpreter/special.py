"""Special functions, which SciPy has."""

from __future__ import annotations

from functools import partial

import numpy as np

from weft._lazy.interpreter.elementwise import elementwise
from weft._lazy.interpreter.table import Array, library

_special = partial(library, "scipy.special")


def _enter(name: str, of_scipy: str) -> None:
    """Enter a function of SciPy, which is only loaded when it is called."""

    @elementwise(name)
    def function(*arrays: Array) -> Array:
        return getattr(_special(), of_scipy)(*arrays)


for _name, _of_scipy in {
    "bessel_i0e": "i0e", "bessel_i1e": "i1e", "digamma": "psi", "erf": "erf", "erf_inv": "erfinv", "erfc": "erfc",
    "igamma": "gammainc", "igammac": "gammaincc", "lgamma": "gammaln", "regularized_incomplete_beta": "betainc",
    "zeta": "zeta",
}.items():  # fmt: skip
    _enter(_name, _of_scipy)


@elementwise("polygamma")
def _polygamma(order: Array, x: Array) -> Array:
    special = _special()
    sign = np.where(order % 2 == 0, -1, 1).astype(x.dtype)
    higher = sign * np.exp(special.gammaln(order + 1)) * special.zeta(order + 1, x)
    return np.where(order == 0, special.psi(x), higher).astype(x.dtype)
