"""Weights of layers that follow each other, scaled so that their channels have equal ranges: one grid then fits all.

Section 4.1 of Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import ConvReLU1d, ConvReLU2d, LinearReLU
from weft.autograd.grad_mode import no_grad
from weft.errors import ArgumentError, ValueRangeError
from weft.nn._conv import Conv1d, Conv2d
from weft.nn._linear import Linear
from weft.nn._lookup import AnyModule
from weft.nn._module import Module
from weft.nn._parameter import Parameter

_M = TypeVar("_M", bound=Module)
_LAYERS = (Conv1d, Conv2d, Linear)
_FUSED = (ConvReLU1d, ConvReLU2d, LinearReLU)


def _layer(module: AnyModule) -> AnyModule:
    """The layer with the weights: a module itself, or the first part of a fused one; `ValueError` for others."""
    if type(module) in _FUSED:
        return module[0]
    if type(module) not in _LAYERS:
        names = ", ".join(kind.__name__ for kind in (*_LAYERS, *_FUSED))
        raise ValueRangeError(f"module type not supported: {type(module).__name__}; equalization is for {names}")
    return module


def channel_range(input: Tensor, axis: int = 0) -> Tensor:
    """The largest minus the smallest element at each index along `axis`."""
    others = [dim for dim in range(input.ndim) if dim != axis]
    return op.amax(input, others) - op.amin(input, others)


@no_grad()
def cross_layer_equalization(module1: Module, module2: Module, output_axis: int = 0, input_axis: int = 1) -> None:
    """Scale the outputs of a layer, and the inputs of the next one inversely, so that their ranges become equal.

    Results of both together stay the same, if what is between them commutes with a scale above 0, as ReLU does.
    A channel whose weights are all equal stays as it is.
    """
    first, second = _layer(module1), _layer(module2)
    outputs, inputs = first.weight.shape[output_axis], second.weight.shape[input_axis]
    if outputs != inputs:
        raise ArgumentError(
            f"Number of output channels of first arg do not match number input channels of second arg: {outputs} and "
            f"{inputs}; name layers that follow each other"
        )
    range1, range2 = channel_range(first.weight, output_axis), channel_range(second.weight, input_axis)
    factors = op.where(range1 > 0, op.sqrt(range1 / (range2 + 1e-9)), 1.0)
    first.weight = Parameter(first.weight / _along(factors, output_axis, first.weight.ndim))
    if first.bias is not None:
        first.bias = Parameter(first.bias / factors)
    second.weight = Parameter(second.weight * _along(factors, input_axis, second.weight.ndim))


def _along(factors: Tensor, axis: int, ndim: int) -> Tensor:
    return op.reshape(factors, tuple(-1 if dim == axis else 1 for dim in range(ndim)))


def converged(
    curr_modules: Mapping[str, AnyModule], prev_modules: Mapping[str, AnyModule], threshold: float = 1e-4
) -> bool:
    """Whether the norms of the changes of all weights sum to less than `threshold`; not if an earlier one is None."""
    if curr_modules.keys() != prev_modules.keys():
        raise ValueRangeError(
            f"converged() compares the same modules at two times, but got {sorted(curr_modules)} and "
            f"{sorted(prev_modules)}"
        )
    if None in prev_modules.values():
        return False
    changes = [_layer(now).weight - _layer(prev_modules[name]).weight for name, now in curr_modules.items()]
    return sum(change.norm().item() for change in changes) < threshold


def equalize(
    model: _M, paired_modules_list: Sequence[Sequence[Module | str]], threshold: float = 1e-4, inplace: bool = True
) -> _M:
    """The model (a copy if not `inplace`) after equalizing layers until their weights change by less than `threshold`.

    `paired_modules_list` has lists of layers that follow each other, as modules or by name, with nothing between them
    but functions such as ReLU, which commute with a scale above 0.
    """
    groups = [[_name(model, item) for item in group] for group in paired_modules_list]
    if any(len(group) < 2 for group in groups):
        raise ValueRangeError(f"Group must have at least two modules, but got {min(groups, key=len)}")
    model = model if inplace else copy.deepcopy(model)
    pairs = [pair for group in groups for pair in pairwise(group)]
    modules = {name: model.get_submodule(name) for pair in pairs for name in pair}
    earlier: dict[str, AnyModule] = dict.fromkeys(modules)
    while not converged(modules, earlier, threshold):
        for pair in pairs:
            earlier |= {name: copy.deepcopy(modules[name]) for name in pair}
            cross_layer_equalization(modules[pair[0]], modules[pair[1]])
    return model


def _name(model: Module, item: object) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, Module):
        raise ArgumentError(f"item must be a nn.Module or a string, but got a {type(item).__name__}")
    for name, module in model.named_modules():
        if module is item:
            return name
    raise ValueRangeError(f"module is not in the model: {type(item).__name__}")
