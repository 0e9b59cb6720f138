"""Batch normalisation folded into the layer before it, for evaluation."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from weft._base.state import using
from weft._base.types import AnyCallable, Arg
from weft._tensor.codegen import op
from weft._tensor.composite.create import zeros_like
from weft.errors import PreconditionError
from weft.nn._parameter import Parameter

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor
    from weft.nn._module import Module


def _fused(layer: Module, norm: Module, fuse: AnyCallable, *options: Arg) -> Module:
    """A copy of the layer, with the weight and bias that `fuse` computes from both."""
    if layer.training or norm.training:
        raise PreconditionError("Fusion only for eval!")
    if norm.running_mean is None or norm.running_var is None:
        raise PreconditionError("bn.running_mean and bn.running_var must not be None")
    fused = copy.deepcopy(layer)
    statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    fused.weight, fused.bias = fuse(fused.weight, fused.bias, *statistics, *options)
    return fused


def _fused_weights(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    dim: int,
) -> tuple[Parameter, Parameter]:
    if bias is None:
        bias = zeros_like(mean, dtype=weight.dtype)
    with using(grad=False):
        factor = op.rsqrt(var + eps)
        factor = factor if scale is None else factor * scale
        shape = [1] * weight.ndim
        shape[dim] = -1
        new_weight = (weight * op.reshape(factor, tuple(shape))).to(dtype=weight.dtype)
        new_bias = (bias - mean) * factor
        new_bias = (new_bias if shift is None else new_bias + shift).to(dtype=bias.dtype)
    return Parameter(new_weight, weight.requires_grad), Parameter(new_bias, bias.requires_grad)


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A convolution equal to `conv` followed by `bn`. Both must be in evaluation mode."""
    return _fused(conv, bn, fuse_conv_bn_weights, transpose)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution equal to one followed by a normalisation; `transpose` for transposed ones."""
    return _fused_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, int(transpose))


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """A linear layer equal to `linear` followed by `bn`. Both must be in evaluation mode."""
    if bn.num_features not in (1, linear.out_features):
        raise PreconditionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    return _fused(linear, bn, fuse_linear_bn_weights)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer equal to one followed by a normalisation."""
    return _fused_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)
