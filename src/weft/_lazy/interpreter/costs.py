"""Estimates of what a jaxpr costs: to compile once, and to interpret instead of running it compiled, for each run.

No clock is read, so that a program has the same costs in every process. The constants were measured once, on a 2 GHz
core, over the training steps of `bench` and over single operators; estimates for whole programs are within a factor of
two of what XLA takes. Only the ratio of the two costs matters. The machine takes a tenth of what the functions in
Python take for small arrays, and half for large ones, which it goes through tile by tile.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from weft._base.types import Arg
from weft._lazy.interpreter.flatten import Equation, FlatTrace, flattened
from weft._lazy.interpreter.table import PRIMITIVES, Type
from weft._lazy.native import native


class Costs(NamedTuple):
    """The costs of a program, in seconds.

    compiling     the time that XLA takes to compile it
    interpreting  the additional time of each run that is interpreted instead of compiled
    """

    compiling: float
    interpreting: float

    def __add__(self, other: Costs) -> Costs:  # pyright: ignore[reportIncompatibleMethodOverride]  not a longer tuple
        return Costs(self.compiling + other.compiling, self.interpreting + other.interpreting)


NOTHING = Costs(0.0, 0.0)

_COMPILING = {
    "dot_general": 5e-3, "conv_general_dilated": 0.06, "reduce_window_sum": 0.05, "reduce_window_max": 0.05,
    "select_and_scatter_add": 0.1, "select_and_gather_add": 0.1, "random_bits": 0.06, "threefry2x32": 0.06,
    "sort": 0.03, "top_k": 0.02, "cumsum": 0.05, "cumprod": 0.05, "cummax": 0.05, "cummin": 0.05, "cumlogsumexp": 0.05,
    "gather": 5e-3, "scatter": 8e-3, "scatter-add": 8e-3, "scatter-sub": 8e-3, "scatter-mul": 8e-3, "scatter-min": 8e-3,
    "scatter-max": 8e-3, "reduce_window": 0.05, "reduce_window_min": 0.05, "reduce_precision": 1e-3, "while": 0.03,
    "scan": 0.03, "cond": 0.03, "lu": 0.05, "qr": 0.05, "eigh": 0.1, "svd": 0.1, "digamma": 0.05, "lgamma": 0.05,
    "erf_inv": 0.01,
}  # fmt: skip
_COMPILING_REDUCTION = 4e-3
_COMPILING_ANY = 1e-3

_CALL = 2e-6  # for each equation that a function in Python computes
_STEP = _CALL if native is None else 0.15e-6  # for each equation, whatever it computes
_VIEW = 0.7e-6 if native is None else 0.0  # for each equation that only makes a view
_TILED = 1.0 if native is None else 0.5  # of the time for elements
_CALLED = {
    "reduce", "reduce_precision", "while", "scan", "cond", "fft", "reduce_window", "select_and_scatter_add",
    "select_and_gather_add", "lu", "qr", "eigh", "svd", "cholesky", "triangular_solve", "lgamma", "digamma",
}  # fmt: skip
"""Primitives that the machine leaves to functions in Python."""
_NUMBER = {  # for each element of the equation's largest input or result
    "random_bits": 4e-8, "threefry2x32": 4e-8, "sort": 8e-8, "top_k": 8e-8, "gather": 1e-8, "scatter": 2e-8,
    "scatter-add": 2e-8, "scatter-sub": 2e-8, "scatter-mul": 2e-8, "scatter-min": 2e-8, "scatter-max": 2e-8,
    "exp": 5e-9, "exp2": 5e-9, "log": 5e-9, "log1p": 1e-8, "expm1": 1e-8, "tanh": 5e-9, "log2": 5e-9, "sin": 1e-8,
    "cos": 1e-8, "tan": 1e-8, "pow": 2e-8, "erf": 1e-8, "erfc": 1e-8, "erf_inv": 2e-8, "logistic": 1e-8, "rem": 1e-8,
    "reduce_window": 2e-8, "reduce_window_sum": 2e-8, "reduce_window_max": 2e-8, "reduce_window_min": 2e-8,
    "select_and_scatter_add": 4e-8, "select_and_gather_add": 4e-8, "lgamma": 5e-8, "digamma": 5e-8, "atan2": 2e-8,
    "while": 0.0, "scan": 0.0, "cond": 0.0, "lu": 0.0, "qr": 0.0, "eigh": 0.0, "svd": 0.0,
    "cholesky": 0.0, "triangular_solve": 0.0,
}  # fmt: skip
_NUMBER_ANY = 1e-9
_PRODUCT = {"conv_general_dilated": 3e-11, "dot_general": 1e-11}  # for each multiply-add
_RUNNING_PRODUCT = 1.2e-11  # for each multiply-add, in a compiled program
_FUSED = 0.1  # what remains of the time for each element in a compiled program
_ROUNDS = 8  # iterations that are assumed for a loop of unknown length


def costs_of(flat: FlatTrace) -> Costs:
    """The estimated costs of all equations."""
    compiling = interpreting = 0.0
    by_parameters: dict[tuple[str, int], tuple[list[Type], Costs]] = {}  # what is inlined several times shares them
    for equation in flat.equations:
        types = flat.types_of((*equation.ins, *equation.outs))
        before = by_parameters.get((equation.name, id(equation.params)))
        if before is not None and before[0] == types:
            costs = before[1]
        else:
            costs = _equation(flat, equation)
            by_parameters[equation.name, id(equation.params)] = types, costs
        compiling += costs.compiling
        interpreting += costs.interpreting
    return Costs(compiling, interpreting)


def running_of(flat: FlatTrace) -> float:
    """The estimated seconds of all equations in a compiled program, where what is no product is fused."""
    return sum(_running(flat, equation) for equation in flat.equations)


def _running(flat: FlatTrace, equation: Equation) -> float:
    name = equation.name
    if name == "cond":
        return max(running_of(flattened(branch)) for branch in equation.params["branches"])
    if name in _LOOPS:
        return equation.params.get("length", _ROUNDS) * sum(running_of(flattened(body)) for body in _bodies(equation))
    entry = PRIMITIVES.get(name)
    if entry is not None and entry.view:
        return 0.0
    if name in _PRODUCT:
        return _RUNNING_PRODUCT * prod(flat.types[equation.outs[0]].shape) * _terms(flat, equation)
    return _FUSED * _NUMBER.get(name, _NUMBER_ANY) * _size(flat, equation)


def _size(flat: FlatTrace, equation: Equation) -> int:
    """The elements of an equation's largest input or result."""
    types = flat.types
    return max([prod(types[number].shape) for number in (*equation.ins, *equation.outs)])


def _equation(flat: FlatTrace, equation: Equation) -> Costs:
    name = equation.name
    if name in _LOOPS:
        return _loop(equation)
    entry = PRIMITIVES.get(name)
    compiling = _COMPILING.get(name, _COMPILING_REDUCTION if name.startswith(("reduce_", "arg")) else _COMPILING_ANY)
    if entry is not None and entry.view:
        return Costs(compiling, _VIEW)
    per_element = _NUMBER.get(name, _NUMBER_ANY)
    if name in _CALLED:
        interpreting = _CALL + per_element * _size(flat, equation)
    else:
        interpreting = _STEP + _TILED * per_element * _size(flat, equation)
    if name in _PRODUCT:
        interpreting += _PRODUCT[name] * prod(flat.types[equation.outs[0]].shape) * _terms(flat, equation)
    return Costs(compiling, interpreting)


def _terms(flat: FlatTrace, equation: Equation) -> int:
    """How many products are added for an element of a product or a convolution."""
    left, right = (flat.types[number].shape for number in equation.ins)
    if equation.name == "dot_general":
        contracted: tuple[int, ...] = equation.params["dimension_numbers"][0][0]
        return prod(left[dim] for dim in contracted)
    features: int = equation.params["dimension_numbers"].rhs_spec[0]
    return prod(right) // max(1, right[features])


_LOOPS = {"while", "scan", "cond"}


def _loop(equation: Equation) -> Costs:
    params = equation.params
    if equation.name == "cond":
        branches = [costs_of(flattened(branch)) for branch in params["branches"]]
        body = Costs(sum(b.compiling for b in branches), max(b.interpreting for b in branches))
        return Costs(_COMPILING["cond"] + body.compiling, _CALL + body.interpreting)
    body = sum((costs_of(flattened(body)) for body in _bodies(equation)), NOTHING)
    rounds = params.get("length", _ROUNDS)
    return Costs(_COMPILING[equation.name] + body.compiling, _CALL + rounds * (_CALL + body.interpreting))


def _bodies(equation: Equation) -> list[Arg]:
    """The jaxprs that a loop repeats."""
    keys = ("jaxpr",) if equation.name == "scan" else ("cond_jaxpr", "body_jaxpr")
    return [equation.params[key] for key in keys]
