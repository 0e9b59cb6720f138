"""Operators of PyTorch's that are no public functions, by their names in `torch.ops.aten`, over public ones.

A rule has the parameters of the operator's schema, in order; those that only choose PyTorch's kernel are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.device import DeviceLike
from weft._base.dtype import DType, bool_
from weft._base.types import AnyCallable, Arg
from weft._tensor.assemble import PUBLIC
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor

# no cell: filled when the module is imported
RULES: dict[str, AnyCallable] = {}
"""What computes an operator, by the name of its packet."""

REDUCTIONS = ("none", "mean", "sum")
"""The names of reductions by the numbers that schemas have for them."""

_F: Any = type("functional", (), {name: staticmethod(f) for name, f in PUBLIC["nn.functional"].items()})
_T: Any = type("torch", (), {name: staticmethod(f) for name, f in PUBLIC[""].items()})


def _rule(*names: str) -> Callable[[AnyCallable], AnyCallable]:
    def note(function: AnyCallable) -> AnyCallable:
        RULES.update(dict.fromkeys(names, function))
        return function

    return note


# --- copies and views ---------------------------------------------------------------------------------------------


@_rule("_to_copy")
def _to_copy(self: Tensor, *, dtype: DType | None = None, device: DeviceLike | None = None, **_: Arg) -> Tensor:
    return self.to(device=device, dtype=dtype, copy=True)


@_rule("_unsafe_view")
def _unsafe_view(self: Tensor, size: Sequence[int]) -> Tensor:
    return self.reshape(size)


@_rule("_reshape_alias")
def _reshape_alias(self: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    return self.as_strided(size, stride)


@_rule("alias")
def _alias(self: Tensor) -> Tensor:
    return op.alias(self)


@_rule("lift_fresh")
def _lift_fresh(self: Tensor) -> Tensor:
    return self


@_rule("slice")
def _slice(self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    return self[(*[slice(None)] * (dim % self.ndim), slice(start, end, step))]


@_rule("index")
def _index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return self[tuple([slice(None) if at is None else at for at in indices])]


@_rule("index_put_")
def _index_put_(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if None not in indices:
        return _T.index_put_(self, tuple(indices), values, accumulate)
    self[tuple([slice(None) if at is None else at for at in indices])] = values
    return self


@_rule("unfold")
def _unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    return self.unfold(dimension, size, step)


@_rule("copy")
def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return src.to(device=self.device, dtype=self.dtype).expand(self.shape).clone()


@_rule("zero")
def _zero(self: Tensor) -> Tensor:
    return _T.zeros_like(self)


@_rule("_local_scalar_dense")
def _local_scalar_dense(self: Tensor) -> Arg:
    return self.item()


@_rule("sym_size")
def _sym_size(self: Tensor, *dim: int) -> Arg:
    return self.size(*dim)


@_rule("sym_stride")
def _sym_stride(self: Tensor, *dim: int) -> Arg:
    return self.stride(*dim)


@_rule("sym_numel")
def _sym_numel(self: Tensor) -> int:
    return self.numel()


# --- layers -------------------------------------------------------------------------------------------------------


@_rule("convolution")
def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    places: tuple[Arg, ...] = (input, weight, bias, tuple(stride), tuple(padding))
    if transposed:
        convolve = getattr(_F, f"conv_transpose{input.ndim - 2}d")
        return convolve(*places, tuple(output_padding), groups, tuple(dilation))
    return getattr(_F, f"conv{input.ndim - 2}d")(*places, tuple(dilation), groups)


def _normalising(name: str) -> AnyCallable:
    def compute(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
        return getattr(_F, name)(self.float() if half_to_float else self, dim)

    return compute


RULES |= {"_softmax": _normalising("softmax"), "_log_softmax": _normalising("log_softmax")}


@_rule("native_dropout")
def _native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return input.clone(), _T.ones_like(input, dtype=bool_)
    mask = _T.rand_like(input) >= p
    return input * mask / (1 - p) if p < 1 else input * mask, mask


@_rule("_adaptive_avg_pool2d")
def _adaptive_avg_pool2d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    return _F.adaptive_avg_pool2d(self, tuple(output_size))


@_rule("_adaptive_avg_pool3d")
def _adaptive_avg_pool3d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    return _F.adaptive_avg_pool3d(self, tuple(output_size))


def _padding(mode: str) -> AnyCallable:
    def compute(self: Tensor, padding: Sequence[int]) -> Tensor:
        return _F.pad(self, tuple(padding), mode=mode)

    return compute


def _upsampling(mode: str) -> AnyCallable:
    """Sizes are given, or, of the overload `vec`, factors in their place; the scales that follow are theirs."""
    smooth = mode.endswith(("linear", "cubic"))

    def compute(self: Tensor, output_size: Sequence[int] | None, *rest: Arg) -> Tensor:
        options = {"align_corners": rest[0]} if smooth else {}
        scales = rest[smooth:]
        if len(scales) == 1 and isinstance(scales[0], list | tuple):
            scales = scales[0]
        if output_size is None or (len(scales) == self.ndim - 2 and None not in scales):
            return _F.interpolate(self, scale_factor=tuple(scales), mode=mode, **options)
        return _F.interpolate(self, tuple(output_size), mode=mode, **options)

    return compute


for _n in (1, 2, 3):
    RULES |= {f"reflection_pad{_n}d": _padding("reflect"), f"replication_pad{_n}d": _padding("replicate")}
    RULES |= {f"upsample_nearest{_n}d": _upsampling("nearest")}
    RULES |= {f"_upsample_nearest_exact{_n}d": _upsampling("nearest-exact")}
RULES |= {
    "upsample_linear1d": _upsampling("linear"),
    "upsample_bilinear2d": _upsampling("bilinear"),
    "upsample_bicubic2d": _upsampling("bicubic"),
    "upsample_trilinear3d": _upsampling("trilinear"),
}


@_rule("_scaled_dot_product_flash_attention_for_cpu")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    output = _F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    scores = query.float() @ key.float().transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype is bool_ else scores + attn_mask
    if is_causal:
        ones = _T.ones(scores.shape[-2:], dtype=bool_, device=query.device)
        scores = scores.masked_fill(~ones.tril(), float("-inf"))
    return output, scores.logsumexp(-1)


# --- losses -------------------------------------------------------------------------------------------------------


@_rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    loss = _F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])
    kept = target != ignore_index
    total = kept.sum() if weight is None else (weight[target * kept] * kept).sum()
    return loss, total.to(self.dtype)


@_rule("cross_entropy_loss")
def _cross_entropy_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    return _F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )


# --- derivatives --------------------------------------------------------------------------------------------------


@_rule("threshold_backward")
def _threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Tensor:
    return grad_output * (self > threshold)


@_rule("sigmoid_backward")
def _sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * output * (1 - output)


@_rule("tanh_backward")
def _tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * (1 - output * output)


@_rule("_softmax_backward_data")
def _softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    scaled = grad_output * output
    return (scaled - output * scaled.sum(dim, keepdim=True)).to(input_dtype)


@_rule("_log_softmax_backward_data")
def _log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


@_rule("mse_loss_backward")
def _mse_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    count = self.numel() if REDUCTIONS[reduction] == "mean" else 1
    return grad_output * 2 * (self - target) / count
