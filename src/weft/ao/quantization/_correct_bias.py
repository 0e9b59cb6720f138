"""Biases of quantized layers, shifted by what quantization changes of the means of their results.

Section 4.2 of Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from weft._base.types import Arg, AttributeValue, PyTree
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantized._module import WeightedQuantizedModule
from weft.ao.nn.quantized.modules.conv import Conv2d as QuantizedConv2d
from weft.ao.nn.quantized.modules.linear import Linear as QuantizedLinear
from weft.ao.ns._numeric_suite import Logger, Shadow, prepare_model_with_stubs
from weft.autograd.grad_mode import no_grad
from weft.nn._conv import Conv2d
from weft.nn._linear import Linear
from weft.nn._module import Module

_supported_modules = {Linear, Conv2d}
_supported_modules_quantized = {QuantizedLinear, QuantizedConv2d}


def get_module(model: Module, name: str) -> Module:
    """The module at a path."""
    return model.get_submodule(name)


def parent_child_names(name: str) -> tuple[str, str]:
    """The path of the module above, and the last name."""
    parent, _, child = name.rpartition(".")
    return parent, child


def get_param(module: Module, attr: str) -> AttributeValue:
    """A parameter, which is an attribute of float modules and a method of quantized ones; None if there is none."""
    entry = getattr(module, attr, None)
    return entry() if callable(entry) else entry


class MeanShadowLogger(Logger):
    """Records the means over all calls of the results of a quantized module, and of its float shadow."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def forward(self, x: Tensor, *more: Tensor) -> None:
        """Record results: of the quantized module, and of the float one."""
        self.count += 1
        for name, result in zip(("quantized", "float"), (x, *more), strict=True):
            numbers, mean = result.dequantize(), self.stats[name]
            self.stats[name] = numbers if mean is None else mean + (numbers - mean) / self.count

    def clear(self) -> None:
        """Forget what was recorded."""
        self.stats: dict[str, PyTree] = {"float": None, "quantized": None}
        self.count = 0


@no_grad()
def bias_correction(
    float_model: Module,
    quantized_model: Module,
    img_data: Iterable[Arg],
    target_modules: Collection[type] = _supported_modules_quantized,
    neval_batches: int | None = None,
) -> None:
    """Shift the biases of a quantized model, in place, so that layers have the mean results of the float model's.

    img_data        batches, of which the first entry is the model's input; it is read once for each layer
    target_modules  types of the quantized layers that are corrected
    neval_batches   how many batches are run for each layer, by default all

    Layers are corrected from the first to the last. Their modules become `Shadow`s, whose `orig_module` is the layer.
    """
    prepare_model_with_stubs(float_model, quantized_model, _supported_modules, MeanShadowLogger)
    shadows = [module for module in quantized_model.modules() if isinstance(module, Shadow)]
    for shadow in shadows:
        layer, bias = shadow.orig_module, get_param(shadow.orig_module, "bias")
        if type(layer) not in target_modules or bias is None:
            continue
        # One layer after the other, on data that go through the corrected ones before it: their errors would be
        # corrected twice otherwise.
        for each in shadows:
            each.logger.clear()
        for data in islice(img_data, neval_batches):
            quantized_model(data[0])
        stats = shadow.logger.stats
        error = stats["quantized"] - stats["float"]
        channels = error.ndim - 1 if get_param(layer, "weight").ndim == 2 else 1
        _set_bias(layer, bias - op.mean(error, [dim for dim in range(error.ndim) if dim != channels]))


def _set_bias(layer: Module, bias: Tensor) -> None:
    if isinstance(layer, WeightedQuantizedModule):
        layer.set_weight_bias(layer.weight(), bias)
    else:
        layer.bias.data = bias
