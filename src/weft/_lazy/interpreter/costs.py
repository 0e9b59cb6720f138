"""Estimates of what a jaxpr costs: to compile once, and to interpret instead of running it compiled, for each run.

No clock is read, so that a program has the same costs in every process. The constants were measured once, for float32
on a CPU with AVX-512: those of compiling over the training steps of `bench`, those of elements over arrays of 4,096 and
a million of them, in programs of a few operators. Estimates are within a factor of two of what was measured there.
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
    interpreting  the time of each run that is interpreted
    running       the time of each run that is compiled, without the call of the program
    """

    compiling: float
    interpreting: float
    running: float = 0.0

    def __add__(self, other: Costs) -> Costs:  # pyright: ignore[reportIncompatibleMethodOverride]  not a longer tuple
        return Costs(*[a + b for a, b in zip(self, other, strict=True)])


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
_UNTILED = 2.0 if native is None else 1.0  # of the time for elements: the machine goes through them tile by tile
_CALLED = {
    "reduce", "reduce_precision", "while", "scan", "cond", "fft", "reduce_window", "select_and_scatter_add",
    "select_and_gather_add", "lu", "qr", "eigh", "svd", "cholesky", "triangular_solve", "lgamma", "digamma",
}  # fmt: skip
"""Primitives that the machine leaves to functions in Python."""
_NUMBER = {  # for each element of the equation's largest input or result
    "random_bits": 1.4e-8, "threefry2x32": 1.4e-8, "sort": 5e-8, "top_k": 4e-8, "gather": 3e-9, "scatter": 1e-8,
    "scatter-add": 1e-8, "scatter-sub": 1e-8, "scatter-mul": 1e-8, "scatter-min": 1e-8, "scatter-max": 1e-8,
    "exp": 7e-10, "exp2": 7e-10, "log": 7e-10, "log1p": 7e-10, "expm1": 7e-10, "tanh": 5e-10, "log2": 7e-10,
    "sin": 8e-10, "cos": 8e-10, "tan": 1.5e-9, "pow": 1.2e-9, "erf": 4e-10, "erfc": 1.3e-9, "erf_inv": 1e-8,
    "logistic": 6e-10, "rsqrt": 6e-10, "div": 4e-10, "rem": 5e-9, "atan2": 1e-8, "cumsum": 4e-9, "cumprod": 4e-9,
    "reduce_window": 1e-8, "reduce_window_sum": 1e-8, "reduce_window_max": 1e-8, "reduce_window_min": 1e-8,
    "select_and_scatter_add": 2e-8, "select_and_gather_add": 2e-8, "lgamma": 2.5e-8, "digamma": 2.5e-8,
    "while": 0.0, "scan": 0.0, "cond": 0.0, "lu": 0.0, "qr": 0.0, "eigh": 0.0, "svd": 0.0,
    "cholesky": 0.0, "triangular_solve": 0.0,
}  # fmt: skip
_NUMBER_ANY = 2.5e-10
_PRODUCT = {"conv_general_dilated": 3e-11, "dot_general": 1.3e-11}  # for each multiply-add, on one thread
_SHARED_PRODUCT = 8e-12  # for each of a product that several threads compute
_LEAST_SHARED = 8_000_000  # multiply-adds, from which on they do
_RUNNING_PRODUCT = {"conv_general_dilated": 1.2e-11, "dot_general": 8e-12}  # the same in a compiled program
_FUSED = 0.4  # what remains of the time for each element in a compiled program
_RUNNING_NUMBER = {  # for each element in a compiled program, where XLA is slower than NumPy
    "sort": 1.7e-7, "cumsum": 4.6e-9, "cumprod": 4.6e-9, "argmax": 2e-9, "argmin": 2e-9, "pow": 4e-9, "sin": 3.4e-9,
    "cos": 3.4e-9, "rsqrt": 1.8e-9,
}  # fmt: skip
_ROUNDS = 8  # iterations that are assumed for a loop of unknown length


def costs_of(flat: FlatTrace) -> Costs:
    """The estimated costs of all equations."""
    total = NOTHING
    by_parameters: dict[tuple[str, int], tuple[list[Type], Costs]] = {}  # what is inlined several times shares them
    for equation in flat.equations:
        types = flat.types_of((*equation.ins, *equation.outs))
        before = by_parameters.get((equation.name, id(equation.params)))
        if before is not None and before[0] == types:
            costs = before[1]
        else:
            costs = _equation(flat, equation)
            by_parameters[equation.name, id(equation.params)] = types, costs
        total += costs
    return total


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
    if name in _PRODUCT:
        multiplications = _multiplications(flat, equation)
        is_shared = name == "dot_general" and multiplications >= _LEAST_SHARED
        product = (_SHARED_PRODUCT if is_shared else _PRODUCT[name]) * multiplications
        return Costs(compiling, _STEP + product, _RUNNING_PRODUCT[name] * multiplications)
    numbers, size = _NUMBER.get(name, _NUMBER_ANY), _size(flat, equation)
    if name == "gather":  # parts, which are copied whole
        numbers = _NUMBER_ANY + numbers / max(1, prod(equation.params["slice_sizes"]))
    running = _RUNNING_NUMBER.get(name, _FUSED * numbers) * size
    if name in _CALLED:
        return Costs(compiling, _CALL + numbers * size, running)
    return Costs(compiling, _STEP + _UNTILED * numbers * size, running)


def _multiplications(flat: FlatTrace, equation: Equation) -> int:
    """The multiplications of a product or a convolution."""
    left, right = (flat.types[number].shape for number in equation.ins)
    results = prod(flat.types[equation.outs[0]].shape)
    if equation.name == "dot_general":
        contracted: tuple[int, ...] = equation.params["dimension_numbers"][0][0]
        return results * prod(left[dim] for dim in contracted)
    features: int = equation.params["dimension_numbers"].rhs_spec[0]
    return results * (prod(right) // max(1, right[features]))


_LOOPS = {"while", "scan", "cond"}


def _loop(equation: Equation) -> Costs:
    params = equation.params
    if equation.name == "cond":
        compiling, interpreting, running = zip(*[costs_of(flattened(b)) for b in params["branches"]], strict=True)
        return Costs(_COMPILING["cond"] + sum(compiling), _CALL + max(interpreting), max(running))
    body = sum((costs_of(flattened(body)) for body in _bodies(equation)), NOTHING)
    rounds = params.get("length", _ROUNDS)
    interpreting = _CALL + rounds * (_CALL + body.interpreting)
    return Costs(_COMPILING[equation.name] + body.compiling, interpreting, rounds * body.running)


def _bodies(equation: Equation) -> list[Arg]:
    """The jaxprs that a loop repeats."""
    keys = ("jaxpr",) if equation.name == "scan" else ("cond_jaxpr", "body_jaxpr")
    return [equation.params[key] for key in keys]
