"""The error function, its complement and its inverse, by the rational functions that XLA evaluates.

Activations and normally distributed random numbers need them. To import SciPy for them would take longer than to
compile them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._lazy.interpreter.elementwise import elementwise
from weft._lazy.interpreter.table import Array

# For float64, from Cephes (Moshier): erf is x T(x²) / U(x²) up to 1;
# erfc is exp(-x²) P(x) / Q(x) up to 8, and exp(-x²) R(x) / S(x) beyond
_P = (2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0, 4.86371970985681366614e1,
      1.96520832956077098242e2, 5.26445194995477358631e2, 9.34528527171957607540e2, 1.02755188689515710272e3,
      5.57535335369399327526e2)  # fmt: skip
_Q = (1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2,
      1.82390916687909736289e3, 2.24633760818710981792e3, 1.65666309194161350182e3,
      5.57535340817727675546e2)  # fmt: skip
_R = (5.64189583547755073984e-1, 1.27536670759978104416e0, 5.01905042251180477414e0, 6.16021097993053585195e0,
      7.40974269950448939160e0, 2.97886665372100240670e0)  # fmt: skip
_S = (1.0, 2.26052863220117276590e0, 9.39603524938001434673e0, 1.20489539808096656605e1, 1.70814450747565897222e1,
      9.60896809063285878198e0, 3.36907645100081516050e0)  # fmt: skip
_T = (9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3, 7.00332514112805075473e3,
      5.55923013010394962768e4)  # fmt: skip
_U = (1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3, 2.26290000613890934246e4,
      4.92673942608635921086e4)  # fmt: skip

# For float32: erf is x A(x²) / B(x²); erfc is exp(-x²) C(1 / x²) / x from 1 to 2, exp(-x²) D(1 / x²) / x beyond
_A = (0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861, 0.18520832239976145, 1.128379143519084)
_B = (-1.1791602954361697e-7, 0.000023547966471313185, 0.0010179625278914885, 0.014070470171167667,
      0.11098505178285362, 0.49746925110067538, 1.0)  # fmt: skip
_C = (2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1, 6.210004621745983e-1,
      -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1)  # fmt: skip
_D = (-1.047766399936249e1, 1.297719955372516e1, -7.495518717768503e0, 2.921019019210786e0, -1.015265279202700e0,
      4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1)  # fmt: skip
_ERF_IS_ONE = 3.7439211627767994

# Giles, 2012: with w = -log(1 - x²), the inverse is x E(w - middle) in the first range, and x E(sqrt(w) - middle) in
# the others; for each range (least w, middle, coefficients of E)
_INVERSE_32 = (
    (0, 2.5, (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941)),
    (5, 3.0, (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682)),
)  # fmt: skip
_INVERSE_64 = (
    (0, 3.125, (
        -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18, 1.115787767802518096e-17,
        -1.333171662854620906e-16, 2.0972767875968561637e-17, 6.6376381343583238325e-15, -4.0545662729752068639e-14,
        -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
        1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
        -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352, -0.00074070253416626697512,
        -0.0060336708714301490533, 0.24015818242558961693, 1.6536545626831027356)),
    (6.25, 3.25, (
        2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
        1.5027403968909827627e-06, -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
        -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
        0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066, -0.0037512085075692412107,
        0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635)),
    (16, 5.0, (
        -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
        7.6157012080783393804e-09, -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
        2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
        7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
        4.8499064014085844221)),
)  # fmt: skip


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """The value of a polynomial by Horner's scheme; the coefficient of the highest power comes first."""
    total = x * coefficients[0]
    total += coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total


@elementwise("erf", kernel="erf")
def _erf(x: Array) -> Array:
    if x.dtype != np.float32:
        return np.where(np.absolute(x) <= 1, _erf_inside(x), 1 - _erfc_outside(x))
    square = x * x
    return np.where(np.absolute(x) < _ERF_IS_ONE, x * _polynomial(square, _A) / _polynomial(square, _B), np.sign(x))


def _erf_inside(x: Array) -> Array:
    square = x * x
    return x * _polynomial(square, _T) / _polynomial(square, _U)


@elementwise("erfc", kernel="erfc")
def _erfc(x: Array) -> Array:
    inside = _erf(x) if x.dtype == np.float32 else _erf_inside(x)
    return np.where(np.absolute(x) <= 1, 1 - inside, _erfc_outside(x))


def _erfc_outside(x: Array) -> Array:
    """`erfc` for |x| > 1."""
    size = np.absolute(x)
    decay = np.exp(-x * x)
    if x.dtype == np.float32:
        square = 1 / (x * x)
        result = decay / size * np.where(size < 2, _polynomial(square, _C), _polynomial(square, _D))
    else:
        near = _polynomial(size, _P) / _polynomial(size, _Q)
        result = decay * np.where(size < 8, near, _polynomial(size, _R) / _polynomial(size, _S))
    result = np.where(decay == 0, decay, result)
    return np.where(x < 0, 2 - result, result)


@elementwise("erf_inv")
def _erf_inv(x: Array) -> Array:
    w = -np.log1p(-x * x)
    root = np.sqrt(w)
    (_, middle, coefficients), *further = _INVERSE_32 if x.dtype == np.float32 else _INVERSE_64
    factor = _polynomial(w - middle, coefficients)
    for start, middle, coefficients in further:
        factor = np.where(w < start, factor, _polynomial(root - middle, coefficients))
    return x * np.where(np.absolute(x) == 1, np.inf, factor).astype(x.dtype, copy=False)
