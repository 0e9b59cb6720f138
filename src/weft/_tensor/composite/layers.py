"""Functions of layers that move the dims of a row, or return a part of its results."""

from __future__ import annotations

import warnings

import numpy as np

from weft._tensor.arguments import Dim
from weft._tensor.codegen import op
from weft._tensor.convert import from_numpy_array
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import DTypeError, OutOfRangeError, ShapeError
from weft.ops._table import IN_FUNCTIONAL, Public

_FUNCTIONAL = "nn.functional"


@composite(public=Public(also=(_FUNCTIONAL,), method=""))
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distance in the p-norm of every pair of rows: the upper triangle of `cdist`, row by row."""
    if input.ndim != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.is_floating_point():
        raise DTypeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise OutOfRangeError("pdist only supports non-negative p values")
    count = input.shape[0]
    rows, columns = np.triu_indices(count, 1)
    places = from_numpy_array(rows * count + columns).to(input.device)
    return op.index_select(op.reshape(op.cdist(input, input, p), (-1,)), 0, places)


def _require_conv(input: Tensor, weight: Tensor, bias: Tensor) -> None:
    if input.ndim != 3:
        raise ShapeError("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise ShapeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if bias.ndim != 1:
        raise ShapeError("Bias must be 1-D")
    if input.shape[2] != weight.shape[1]:
        raise ShapeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.shape[2] != bias.shape[0]:
        raise ShapeError("Bias size must equal dim 2 in the weight tensor (output channels).")


@composite(public=Public(also=(_FUNCTIONAL,), method=""))
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution over time: (time, batch, channels) with weights of (width, channels, outputs)."""
    _require_conv(input, weight, bias)
    moved = op.conv1d(op.permute(input, (1, 2, 0)), op.permute(weight, (2, 1, 0)), bias, (1,), (pad,))
    return op.permute(moved, (2, 0, 1))


@composite(public=IN_FUNCTIONAL)
def gumbel_softmax(
    logits: Tensor, tau: float | Tensor = 1, hard: bool = False, eps: float = 1e-10, dim: Dim = -1
) -> Tensor:
    """A softmax along `dim`, at temperature `tau`, of scores with Gumbel noise (https://arxiv.org/abs/1611.01144).

    A tensor of temperatures is broadcast and gets a gradient. With `hard` the result is one-hot, and its gradient is
    that of the softmax.
    """
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    noise = -op.log(op.exponential(logits.detach()))
    soft = op.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    best = op.argmax(soft, dim, keepdim=True)
    zeros = op.zeros(tuple(logits.shape), dtype=logits.dtype, device=logits.device)
    return op.scatter_src(zeros, dim, best, 1.0) - soft.detach() + soft
