"""Fits the coefficients of `src/weft/ops/_fits.py`: `python tools/fit_special.py` writes that file.

Every function is a quotient of two polynomials, or one polynomial, fitted to values of mpmath at Chebyshev points. The
weights are changed until the relative errors at all points are about equal (Loeb, 1957), which comes close to the best
approximation. The largest relative error is written beside each fit.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import mpmath as mp

_PATH = Path(__file__).resolve().parent.parent / "src" / "weft" / "ops" / "_fits.py"
_HEAD = '''"""Coefficients of quotients of polynomials, lowest power first; written by `tools/fit_special.py`."""

from __future__ import annotations

'''
_ROUNDS = 4

Function = Callable[[mp.mpf], mp.mpf]


def fit(
    function: Function, low: float, high: float, top: int, bottom: int
) -> tuple[list[mp.mpf], list[mp.mpf], mp.mpf]:
    """Numerator and denominator (which starts with 1) over an interval, and the largest relative error."""
    count = 3 * (top + bottom + 2)
    middle, half = mp.mpf(low + high) / 2, mp.mpf(high - low) / 2
    points = [middle - half * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    values = [function(x) for x in points]
    scale = [1 / abs(y) for y in values]
    weights = list(scale)
    p: list[mp.mpf] = []
    q: list[mp.mpf] = []
    for _ in range(_ROUNDS):
        system, right = mp.matrix(count, top + bottom + 1), mp.matrix(count, 1)
        for row, (x, y, w) in enumerate(zip(points, values, weights, strict=True)):
            for k in range(top + 1):
                system[row, k] = w * x**k
            for k in range(1, bottom + 1):
                system[row, top + k] = -w * y * x**k
            right[row] = w * y
        solved = list(mp.lu_solve(system, right))
        p, q = solved[: top + 1], [mp.mpf(1), *solved[top + 1 :]]
        weights = [s / abs(mp.polyval(q[::-1], x)) for s, x in zip(scale, points, strict=True)]
    errors = [abs(mp.polyval(p[::-1], x) / mp.polyval(q[::-1], x) / y - 1) for x, y in zip(points, values, strict=True)]
    return p, q, max(errors)


def _parts(order: int, x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Factors of cosine and sine in the expansion of Bessel functions for large x (DLMF 10.17.3)."""
    j, y = mp.besselj(order, x), mp.bessely(order, x)
    angle, norm = x - mp.pi / 4 - order * mp.pi / 2, mp.sqrt(mp.pi * x / 2)
    return norm * (j * mp.cos(angle) + y * mp.sin(angle)), norm * (y * mp.cos(angle) - j * mp.sin(angle))


def _cosine_part(order: int) -> Function:
    """`(P - 1) / t` of `t = 1 / x**2`."""
    return lambda t: (_parts(order, 1 / mp.sqrt(t))[0] - 1) / t


def _sine_part(order: int) -> Function:
    """`x Q` of `t = 1 / x**2`."""
    return lambda t: _parts(order, 1 / mp.sqrt(t))[1] / mp.sqrt(t)


def _airy_parts(slope: int, x: mp.mpf, zeta: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Factors of cosine and sine in the expansions of Ai(-x) and Ai'(-x) for large x (DLMF 9.7.9, 9.7.10)."""
    a, b = mp.airyai(-x, derivative=slope), mp.airybi(-x, derivative=slope)
    angle = zeta - mp.pi / 4
    if slope:
        norm = mp.sqrt(mp.pi) / x ** mp.mpf("0.25")
        return norm * (a * mp.sin(angle) + b * mp.cos(angle)), norm * (b * mp.sin(angle) - a * mp.cos(angle))
    norm = mp.sqrt(mp.pi) * x ** mp.mpf("0.25")
    return norm * (a * mp.cos(angle) - b * mp.sin(angle)), norm * (a * mp.sin(angle) + b * mp.cos(angle))


def _airy_cosine_part(slope: int) -> Function:
    """`(P - 1) / t` of `t = 1 / zeta**2`."""
    return lambda t: (_airy_parts(slope, _airy_point(1 / mp.sqrt(t)), 1 / mp.sqrt(t))[0] - 1) / t


def _airy_sine_part(slope: int) -> Function:
    """`zeta Q` of `t = 1 / zeta**2`."""
    return lambda t: _airy_parts(slope, _airy_point(1 / mp.sqrt(t)), 1 / mp.sqrt(t))[1] / mp.sqrt(t)


def _airy_point(zeta: mp.mpf) -> mp.mpf:
    """The x with `zeta = 2/3 x**(3/2)`."""
    return (3 * zeta / 2) ** (mp.mpf(2) / 3)


def _airy_far(slope: int) -> Function:
    """The factor of Ai or -Ai' for large x (DLMF 9.7.5, 9.7.6), of `1 / zeta`."""

    def function(t: mp.mpf) -> mp.mpf:
        x = _airy_point(1 / t)
        root = x ** mp.mpf("0.25")
        scaled = mp.airyai(x, derivative=slope) * 2 * mp.sqrt(mp.pi) * mp.exp(1 / t)
        return -scaled / root if slope else scaled * root

    return function


def _first_kind(order: int) -> Function:
    """J, divided by `x` for order 1, and by what vanishes at its first zero, of `t = x**2`."""
    zero = mp.besseljzero(order, 1)
    return lambda t: mp.besselj(order, mp.sqrt(t)) / mp.sqrt(t) ** order / (t - zero**2)


def _second_kind(order: int) -> Function:
    """What is left of Y without its logarithm, times `x` for order 1, and divided likewise, of `t = x**2`."""
    zero = mp.besselyzero(order, 1)

    def function(t: mp.mpf) -> mp.mpf:
        x = mp.sqrt(t)
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x / zero) * mp.besselj(order, x)
        return rest * x**order / (t - zero**2)

    return function


def _modified_first(order: int) -> Function:
    """I, divided by `x` for order 1, of `t = x**2`."""
    return lambda t: mp.besseli(order, mp.sqrt(t)) / mp.sqrt(t) ** order


def _modified_second(order: int) -> Function:
    """What is left of K without its logarithm, of `t = x**2`; for order 1 without `1 / x`, and divided by `x`."""

    def function(t: mp.mpf) -> mp.mpf:
        x = mp.sqrt(t)
        logarithm = (-1) ** order * mp.log(x / 2) * mp.besseli(order, x)
        return (mp.besselk(order, x) + logarithm - order / x) / x**order

    return function


def _modified_first_far(order: int) -> Function:
    """`exp(-x) sqrt(x) I` of `16 / x - 1` (DLMF 10.40.1)."""
    return lambda t: mp.exp(-16 / (t + 1)) * mp.sqrt(16 / (t + 1)) * mp.besseli(order, 16 / (t + 1))


def _log_gamma(x: mp.mpf) -> mp.mpf:
    """`log(gamma(x))` without its zeros at 1 and 2, and less by 1/2."""
    return mp.loggamma(x) / ((x - 1) * (x - 2)) - mp.mpf("0.5")


def _stirling(t: mp.mpf) -> mp.mpf:
    """`x` times what Stirling's formula lacks to `log(gamma(x))`, of `t = 1 / x**2` (DLMF 5.11.1)."""
    x = 1 / mp.sqrt(t)
    return x * (mp.loggamma(x) - ((x - mp.mpf("0.5")) * mp.log(x) - x + mp.log(2 * mp.pi) / 2))


def _gamma_zeros(end: int) -> list[list[mp.mpf]]:
    """Zeros x of `log(|gamma|)`, one in each half of a unit from -2 down.

    The rows are two numbers whose sum it is, `cot(pi x)`, `log(1 - x)`.
    """
    rows: list[list[mp.mpf]] = []
    for k in range(4, 2 * end):
        low, high = -mp.mpf(k + 1) / 2, -mp.mpf(k) / 2
        away = mp.mpf(10) ** -20
        zero = mp.findroot(lambda x: mp.log(abs(mp.gamma(x))), (low + away, high - away), solver="anderson", tol=1e-40)
        first = mp.mpf(float(zero))
        rows.append([first, zero - first, mp.cot(mp.pi * zero), mp.log(1 - zero)])
    return [list(row) for row in zip(*rows, strict=True)]


def _digamma(x: mp.mpf) -> mp.mpf:
    """`digamma(x)` without its positive zero."""
    return mp.digamma(x) / (x - mp.findroot(mp.digamma, 1.46))


def _modified_far(order: int) -> Function:
    """`exp(x) sqrt(x) K` of `1 / x` (DLMF 10.40.2)."""
    return lambda t: mp.exp(1 / t) * mp.sqrt(1 / t) * mp.besselk(order, 1 / t)


def _erfcx(t: mp.mpf) -> mp.mpf:
    """`((1 + 2 x) erfcx(x) - 1) / (1 + t)` of `t = (x - 3.5) / (x + 3.5)` (after Shepherd and Laframboise, 1981)."""
    x = mp.mpf("3.5") * (1 + t) / (1 - t)
    return ((1 + 2 * x) * mp.exp(x * x) * mp.erfc(x) - 1) / (1 + t)


def _exp(r: mp.mpf) -> mp.mpf:
    """`(exp(r) - 1 - r) / r**2`."""
    return (mp.expm1(r) - r) / r**2


def _log(z: mp.mpf) -> mp.mpf:
    """`(log((1 + s) / (1 - s)) / s - 2) / z` of `z = s**2`."""
    return (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z


def _erf(t: mp.mpf) -> mp.mpf:
    """`erf(x) / x - 1` of `t = x**2`."""
    return mp.erf(mp.sqrt(t)) / mp.sqrt(t) - 1


def _erfinv(t: mp.mpf) -> mp.mpf:
    """`erfinv(p) / p - 1` of `t = p**2`."""
    return mp.erfinv(mp.sqrt(t)) / mp.sqrt(t) - 1


def _erfinv_far(s: mp.mpf) -> mp.mpf:
    """`erfinv(p) / s - 1` of `s = sqrt(-log(1 - p**2))` (after Giles, 2012)."""
    square = mp.exp(-s * s)
    q = square / (1 + mp.sqrt(1 - square))  # 1 - p
    start = mp.sqrt(-mp.log(q)) if q < 0.1 else mp.mpf("0.5")
    return mp.findroot(lambda y: mp.log(mp.erfc(y)) - mp.log(q), start) / s - 1


def _fits() -> dict[str, tuple[Function, float, float, int, int]]:
    """By name: a function, the interval, and the degrees."""
    none, far, wave = 1e-12, 1 / 25, 9 / 32
    orders = (
        {
            f"J{n}": (_first_kind(n), none, 25, 6, 6),
            f"Y{n}": (_second_kind(n), none, 25, 7, 5),
            f"COSINE_PART{n}": (_cosine_part(n), none, far, 6, 6),
            f"SINE_PART{n}": (_sine_part(n), none, far, 6, 6),
            f"I{n}": (_modified_first(n), none, 64, 10, 4),
            f"I{n}_FAR": (_modified_first_far(n), -1 + 1e-9, 1, 22, 0),
            f"K{n}": (_modified_second(n), none, 1, 7, 0),
            f"K{n}_FAR": (_modified_far(n), none, 1, 8, 8),
            f"AIRY{n}_FAR": (_airy_far(n), none, 1.5, 9, 9),
            f"AIRY{n}_COSINE_PART": (_airy_cosine_part(n), none, wave, 11, 11),
            f"AIRY{n}_SINE_PART": (_airy_sine_part(n), none, wave, 9, 9),
        }
        for n in (0, 1)
    )
    shared = {
        "AIRY": (mp.airyai, -2, 1, 22, 0),
        "ERFCX": (_erfcx, -1 + 1e-9, 1 - 1e-9, 12, 10),
        "ERFC": (_erfcx, -0.628, 0.775, 20, 0),
        "ERFC_SHORT": (_erfcx, -1 + 1e-9, 0.5, 11, 0),
        "EXP": (_exp, -0.34658, 0.34657, 10, 0),
        "EXP_SHORT": (_exp, -0.34658, 0.34657, 5, 0),
        "LOG": (_log, none, 0.02944, 6, 0),
        "LOG_SHORT": (lambda f: mp.log1p(f) / f, -0.2929, 0.41422, 11, 0),
        "ERF": (_erf, none, 1, 12, 0),
        "ERFINV": (_erfinv, none, 0.37, 6, 6),
        "ERFINV_SHORT": (_erfinv, none, 0.37, 3, 3),
        "ERFINV_MIDDLE": (lambda u: _erfinv_far(u + mp.mpf("1.6")), -0.95, 0.9, 9, 9),
        "ERFINV_FAR": (lambda u: _erfinv_far(u + mp.mpf("2.5")), none, 3.6, 10, 10),
        "ERFINV_FAR_SHORT": (_erfinv_far, 0.65, 4.1, 6, 6),
        "STIRLING": (_stirling, 1e-4, 1 / 9, 10, 0),
        "SINE_OF_PI": (lambda z: mp.sinpi(mp.sqrt(z)) / mp.sqrt(z), none, 0.2501, 8, 0),
        "LOG_GAMMA": (_log_gamma, 0.5, 2.5, 9, 9),
        "DIGAMMA": (_digamma, 1, 2, 6, 5),
    }
    return {name: fit for fits in (*orders, shared) for name, fit in fits.items()}


def _wrapped(text: str) -> str:
    return "\n     ".join(textwrap.wrap(text, 110))


def main() -> None:
    mp.mp.dps = 60
    lines = [_HEAD]
    for name, (function, *how) in _fits().items():
        p, q, error = fit(function, *how)
        print(name, mp.nstr(error, 3))
        lines.append(f"# {name}: relative error {mp.nstr(error, 2)}\n")
        top, bottom = (_wrapped(", ".join(repr(float(c)) for c in part)) for part in (p, q))
        lines.append(f"{name} = (\n    ({top},),\n    ({bottom},),\n)  # fmt: skip\n")
    rows = (_wrapped(", ".join(repr(float(x)) for x in row)) for row in _gamma_zeros(10))
    lines.append("LOG_GAMMA_ZEROS = (\n" + "".join(f"    ({row},),\n" for row in rows) + ")  # fmt: skip\n")
    lines.append(
        '"""From -2 down, one in each half of a unit: two numbers whose sum it is, `cot(pi x)`, `log(1 - x)`."""\n'
    )
    _PATH.write_text("".join(lines))


if __name__ == "__main__":
    main()
