"""Floating-point operations of an application, counted in its trace.

Whatever a row computes, its products are contractions of dims in the end: so one rule holds for operators, their
derivatives, captured functions and checkpoints, in any tier. A multiplication and an addition are two operations, as in
PyTorch; element-wise work is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from weft._base.types import Arg
from weft._lazy.interpreter.flatten import Equation, FlatTrace, flattened
from weft._lazy.signature import Signature


@lru_cache(maxsize=4096)  # key: the signature, which has the operator, its static arguments and the types of its inputs
def flops_of(signature: Signature) -> int:
    """The floating-point operations of an application in matrix products and convolutions.

    Loops of a known length count as often as they run, others once; of several branches the most expensive one counts.
    """
    return _flops(flattened(signature.trace))


def _flops(flat: FlatTrace) -> int:
    return sum([_of_equation(flat, equation) for equation in flat.equations])


def _of_equation(flat: FlatTrace, equation: Equation) -> int:
    name, params = equation.name, equation.params
    if name == "dot_general":
        return 2 * _products(flat, equation)
    if name == "conv_general_dilated":
        return 2 * _products_of_convolution(flat, equation)
    if name == "scan":
        return params["length"] * _flops(flattened(params["jaxpr"]))
    if name == "while":
        return _flops(flattened(params["body_jaxpr"]))
    if name == "cond":
        return max([_flops(flattened(branch)) for branch in params["branches"]])
    return 0


def _products(flat: FlatTrace, equation: Equation) -> int:
    """The elements of the result, times the sizes of the contracted dims; none where nothing is added up."""
    contracted: tuple[int, ...] = equation.params["dimension_numbers"][0][0]
    terms = prod([flat.types[equation.ins[0]].shape[d] for d in contracted])
    return prod(flat.types[equation.outs[0]].shape) * terms if contracted else 0


def _products_of_convolution(flat: FlatTrace, equation: Equation) -> int:
    """For each pair of channels, every place of the weight at every place of the smaller image.

    In a gradient, dilation and padding put zeros between and around the elements of an image. So the larger image has
    places at which nothing is computed.
    """
    numbers: Arg = equation.params["dimension_numbers"]
    left, right = (flat.types[number].shape for number in equation.ins)
    left, right = _in_order(left, numbers.lhs_spec), _in_order(right, numbers.rhs_spec)
    out = _in_order(flat.types[equation.outs[0]].shape, numbers.out_spec)
    pairs = out[0] * out[1] * right[1]
    image, kernel, result = prod(left[2:]), prod(right[2:]), prod(out[2:])
    is_of_weight = numbers.lhs_spec[0] != 0  # a weight's gradient adds up over the batch, as over channels otherwise
    weight, other = (result, kernel) if is_of_weight else (kernel, result)
    return pairs * weight * min(image, other)


def _in_order(shape: tuple[int, ...], spec: Sequence[int]) -> list[int]:
    """The sizes of an image's batch, channels and space, or of a weight's outputs, inputs and space."""
    return [shape[dim] for dim in spec]
