"""PyTorch's kernels of normalisation: the result, the means, and the reciprocal deviations."""

from __future__ import annotations

from collections.abc import Sequence

from weft._tensor.codegen import op
from weft._tensor.composite.neural import normalised
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.ops._table import NO_METHOD


def _moments(x: Tensor, dims: tuple[int, ...], eps: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Means and reciprocal deviations, from float32 numbers where these have 16 bits."""
    wide = x.float() if x.element_size() == 2 else x
    mean = op.mean(wide, dims, True)
    variance = op.mean(op.square(wide - mean), dims, keepdim)
    return (mean if keepdim else op.mean(wide, dims)).to(x.dtype), op.rsqrt(variance + eps).to(x.dtype)


@composite(public=NO_METHOD)
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`layer_norm`, with the statistics of each sample."""
    output = op.layer_norm(input, tuple(normalized_shape), weight, bias, eps)
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    return output, *_moments(input, dims, eps, True)


@composite(public=NO_METHOD)
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`group_norm`, with the statistics of each sample's groups."""
    groups = op.reshape(input, (N, group, C // group * HxW))
    output = op.reshape(op.group_norm(op.reshape(input, (N, C, HxW)), group, weight, bias, eps), tuple(input.shape))
    return output, *_moments(groups, (2,), eps, False)


@composite(public=NO_METHOD)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`batch_norm`, with the statistics of each channel if `training`, which update the running ones."""
    if not training:
        none = op.zeros((0,), dtype=input.dtype, device=input.device)
        return op.batch_norm_eval(input, running_mean, running_var, weight, bias, eps), none, none
    output = normalised(input, running_mean, running_var, weight, bias, momentum, eps, per_instance=False)
    return output, *_moments(input, tuple(d for d in range(input.ndim) if d != 1), eps, False)
