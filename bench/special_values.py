"""Special functions with points of their domains, and what mpmath makes of these: how many ulp a framework is off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np

DIGITS = 40
Array = np.ndarray


@dataclass(frozen=True)
class Function:
    """A function of `special`, by points for each of its arguments.

    call    (module `special`, tensors) -> tensor; by default the function of that name
    exact   mpmath's numbers -> mpmath's number
    points  an array for each argument, all of one length
    """

    name: str
    exact: Callable[..., Any]
    points: tuple[Array, ...]
    call: Callable[..., Any] | None = field(default=None)

    def __call__(self, special: Any, *tensors: Any) -> Any:
        return getattr(special, self.name)(*tensors) if self.call is None else self.call(special, *tensors)

    def thinned(self, step: int) -> Function:
        """The function with fewer points."""
        return replace(self, points=tuple(x[::step] for x in self.points))

    def inputs(self, dtype: str, count: int | None = None) -> tuple[Array, ...]:
        """The points in a type; `count` of them at random places, if given."""
        points = [x.astype(dtype) for x in self.points]
        if count is None:
            return tuple(points)
        chosen = np.random.default_rng(0).integers(0, len(points[0]), count)
        return tuple(x[chosen] for x in points)


def errors(function: Function, dtype: str, values: Array) -> Array:
    """How far values at the points are from the exact ones, in ulp of these; NaN where there is no normal number."""
    mp.mp.dps = DIGITS
    found = np.full(len(values), np.nan)
    for at, (value, *point) in enumerate(zip(values, *function.inputs(dtype), strict=True)):
        exact = function.exact(*(mp.mpf(float(x)) for x in point))
        if mp.isfinite(exact) and abs(exact) <= float(np.finfo(dtype).max):
            ulp = float(np.spacing(np.abs(np.asarray(float(exact), dtype))))
            if abs(exact) >= float(np.finfo(dtype).tiny):
                found[at] = float(abs(mp.mpf(float(value)) - exact) / ulp) if np.isfinite(value) else np.inf
    return found


def _line(low: float, high: float, count: int = 61) -> Array:
    """Points between two bounds, none of which is a round number."""
    return np.linspace(low, high, count) + (high - low) * 1e-3 * np.sin(np.arange(count))


def _scale(low: float, high: float, count: int = 40) -> Array:
    return np.geomspace(low, high, count)


def _both(x: Array) -> Array:
    return np.concatenate([x, -x])


def _pairs(first: Array, second: Array) -> tuple[Array, ...]:
    grid = np.meshgrid(first, second)
    return tuple(x.ravel() for x in grid)


_POSITIVE = np.concatenate([_scale(1e-6, 1), _line(0.5, 30), _scale(20, 200, 20)])
_REAL = np.concatenate([_both(_scale(1e-6, 1)), _line(-8, 8), _both(_scale(5, 30, 20))])
_SHARE = np.concatenate([_scale(1e-7, 0.5), 1 - _scale(1e-4, 0.5), _line(0.01, 0.98)])
_GAMMA = np.concatenate([_scale(1e-6, 1), _line(0.4, 4.1), _line(-9.7, -0.1), _scale(3, 1e5, 30)])
_SQUARE = _line(-1.5, 1.5, 31)
_DEGREES = np.arange(13.0)


def _unary(name: str, exact: Callable[[Any], Any], points: Array) -> Function:
    return Function(name, exact, (points,))


def _polynomial(name: str, exact: Callable[[int, Any], Any], points: Array = _SQUARE) -> Function:
    return Function(name, lambda x, n: exact(int(n), x), _pairs(points, _DEGREES))


def _chebyshev(kind: str, n: int, x: Any) -> Any:
    """The third and fourth kind are sums and differences of the second (DLMF 18.7.5 and 18.7.6)."""
    if kind in "tu":
        return (mp.chebyt if kind == "t" else mp.chebyu)(n, x)
    before = mp.chebyu(n - 1, x) if n else mp.mpf(0)
    return mp.chebyu(n, x) - before if kind == "v" else mp.chebyu(n, x) + before


def _shifted(kind: str, n: int, x: Any) -> Any:
    return _chebyshev(kind, n, 2 * x - 1)


def _xlog(log: Callable[[Any], Any], x: Any, y: Any) -> Any:
    return x * log(y) if x else mp.mpf(0)


def _log_ndtr(x: Any) -> Any:
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2) if x < 5 else mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)


def _zeta(x: Any, q: Any) -> Any:
    """With more digits, since mpmath's are counted from 1 on, and the function may be small."""
    with mp.workdps(3 * DIGITS):
        return mp.zeta(x, q)


def _multigammaln(x: Any) -> Any:
    return mp.log(mp.pi) / 2 + mp.log(abs(mp.gamma(x))) + mp.log(abs(mp.gamma(x - mp.mpf(1) / 2)))


def _of_two(name: str) -> Callable[..., Any]:
    """A function along a dim, of rows of two numbers; the first result."""

    def call(special: Any, a: Any, b: Any) -> Any:
        rows = a.new_zeros((*a.shape, 2))
        rows[:, 0], rows[:, 1] = a, b
        result = getattr(special, name)(rows, -1)
        return result if name == "logsumexp" else result[:, 0]

    return call


_TWO = _pairs(_line(-9, 9, 19), _line(-7, 7, 17))
_ORDERS = _pairs(_scale(0.05, 40, 13), _scale(0.01, 90, 15))

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        _unary("airy_ai", mp.airyai, np.concatenate([_line(-25, 5, 121), _line(2, 20)])),
        *(
            _unary(
                f"bessel_j{n}", partial(mp.besselj, n), np.concatenate([_both(_scale(1e-6, 1)), _line(-60, 60, 181)])
            )
            for n in (0, 1)
        ),
        *(
            _unary(f"bessel_y{n}", partial(mp.bessely, n), np.concatenate([_scale(1e-6, 1), _line(0.2, 60, 121)]))
            for n in (0, 1)
        ),
        *(_polynomial(f"chebyshev_polynomial_{kind}", partial(_chebyshev, kind)) for kind in "tuvw"),
        _unary("digamma", mp.digamma, _GAMMA),
        _unary("entr", lambda x: -x * mp.log(x), _POSITIVE),
        _unary("erf", mp.erf, _REAL),
        _unary("erfc", mp.erfc, np.concatenate([_REAL, _line(0, 9)])),
        _unary("erfcx", lambda x: mp.exp(x * x) * mp.erfc(x), np.concatenate([_REAL[_REAL > -9], _scale(1, 1e4)])),
        _unary("erfinv", mp.erfinv, np.concatenate([_both(_scale(1e-6, 0.99)), 1 - _scale(1e-4, 0.5)])),
        _unary("exp2", lambda x: mp.mpf(2) ** x, _REAL),
        _unary("expit", lambda x: 1 / (1 + mp.exp(-x)), _REAL),
        _unary("expm1", mp.expm1, _REAL),
        Function("gammainc", lambda a, x: mp.gammainc(a, 0, x, regularized=True), _ORDERS),
        Function("gammaincc", lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), _ORDERS),
        _unary("gammaln", lambda x: mp.log(abs(mp.gamma(x))), _GAMMA),
        _polynomial("hermite_polynomial_h", mp.hermite),
        _polynomial(
            "hermite_polynomial_he", lambda n, x: mp.mpf(2) ** (-mp.mpf(n) / 2) * mp.hermite(n, x / mp.sqrt(2))
        ),
        _unary("i0", partial(mp.besseli, 0), _REAL),
        _unary("i0e", lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), _REAL),
        _unary("i1", partial(mp.besseli, 1), _REAL),
        _unary("i1e", lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), _REAL),
        _polynomial("laguerre_polynomial_l", lambda n, x: mp.laguerre(n, 0, x), _line(-2, 20, 31)),
        _polynomial("legendre_polynomial_p", mp.legendre),
        _unary("log1p", mp.log1p, np.concatenate([_POSITIVE, -_SHARE])),
        _unary("log_ndtr", _log_ndtr, _REAL),
        Function("log_softmax", lambda a, b: -mp.log1p(mp.exp(b - a)), _TWO, _of_two("log_softmax")),
        _unary("logit", lambda x: mp.log(x / (1 - x)), _SHARE),
        Function("logsumexp", lambda a, b: mp.log(mp.exp(a) + mp.exp(b)), _TWO, _of_two("logsumexp")),
        _unary("modified_bessel_i0", partial(mp.besseli, 0), _REAL),
        _unary("modified_bessel_i1", partial(mp.besseli, 1), _REAL),
        _unary("modified_bessel_k0", partial(mp.besselk, 0), _POSITIVE),
        _unary("modified_bessel_k1", partial(mp.besselk, 1), _POSITIVE),
        Function("multigammaln", _multigammaln, (_scale(0.6, 1e3, 90),), lambda special, x: special.multigammaln(x, 2)),
        _unary("ndtr", mp.ncdf, _REAL),
        _unary("ndtri", lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), _SHARE),
        Function("polygamma", partial(mp.polygamma, 2), (_GAMMA,), lambda special, x: special.polygamma(2, x)),
        _unary("psi", mp.digamma, _GAMMA),
        _unary("round", mp.nint, np.concatenate([_REAL, np.arange(-4, 5) / 2])),
        *(
            _polynomial(f"shifted_chebyshev_polynomial_{kind}", partial(_shifted, kind), _line(-0.25, 1.25, 31))
            for kind in "tuvw"
        ),
        _unary("scaled_modified_bessel_k0", lambda x: mp.exp(x) * mp.besselk(0, x), _POSITIVE),
        _unary("scaled_modified_bessel_k1", lambda x: mp.exp(x) * mp.besselk(1, x), _POSITIVE),
        _unary("sinc", mp.sincpi, _REAL),
        Function("softmax", lambda a, b: 1 / (1 + mp.exp(b - a)), _TWO, _of_two("softmax")),
        _unary("spherical_bessel_j0", mp.sinc, _REAL),
        Function("xlog1py", partial(_xlog, mp.log1p), _pairs(_line(-5, 5, 11), _scale(1e-5, 50, 21) - 0.5)),
        Function("xlogy", partial(_xlog, mp.log), _pairs(_line(-5, 5, 11), _scale(1e-5, 50, 21))),
        Function("zeta", _zeta, _pairs(1 + _scale(0.05, 30, 15), _scale(0.05, 60, 17))),
    )
}
"""By name, every function of `torch.special`; functions along a dim have rows of two numbers."""


def worst(function: Function, dtype: str, special: Any, tensor: Callable[[Array], Any]) -> float:
    """The largest error of a framework's function, whose tensors are made of arrays by `tensor`."""
    inputs: Sequence[Any] = [tensor(x) for x in function.inputs(dtype)]
    values = np.asarray(function(special, *inputs).detach().numpy())
    return float(np.nanmax(errors(function, dtype, values)))
