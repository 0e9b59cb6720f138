"""How PyTorch computes layers and losses by operators (`decompositions.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft._base.dtype import DType
from weft._base.types import AnyCallable, Arg
from weft._interop.aten.calls import OwnOverload
from weft._interop.aten.decompositions import DECOMPOSED, decomposes, moved
from weft._interop.aten.rules import REDUCTIONS
from weft._tensor.functions import FUNCTIONS
from weft._tensor.tensor import Tensor
from weft.ops._aten import aten
from weft.ops._neural import reduction_name

# --- layers -------------------------------------------------------------------------------------------------------


def _normalising(operator: Arg) -> AnyCallable:
    def normalise(input: Tensor, dim: int | None = None, *rest: Arg, dtype: DType | None = None, **_: Arg) -> Tensor:
        dtype = next((x for x in rest if isinstance(x, DType)), dtype)
        dim = (0 if input.ndim in (0, 1, 3) else 1) if dim is None else dim
        return operator(moved(input, None, dtype), dim, False)

    return normalise


DECOMPOSED |= {"softmax": _normalising(aten._softmax), "log_softmax": _normalising(aten._log_softmax)}


@decomposes("layer_norm")
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, *_: Arg, **__: Arg,
) -> Tensor:  # fmt: skip
    return aten.native_layer_norm(input, [*normalized_shape], weight, bias, eps)[0]


@decomposes("group_norm")
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    *_: Arg, **__: Arg,
) -> Tensor:  # fmt: skip
    n, c, *places = input.shape
    return aten.native_group_norm(input, weight, bias, n, c, prod(places), num_groups, eps)[0]


@decomposes("F.batch_norm")
def batch_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *_: Arg, **__: Arg,
) -> Tensor:  # fmt: skip
    return aten.native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@decomposes("dropout")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, **named: Arg) -> Tensor:
    if not named.get("train", training) or p == 0:
        return input
    result = aten.native_dropout(input, p, True)[0]
    return aten.copy_(input, result) if inplace else result


@decomposes("F.embedding")
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    place = -1 if padding_idx is None else padding_idx % weight.shape[0]
    if max_norm is not None:
        aten.embedding_renorm_(weight, input, max_norm, norm_type)
    return aten.embedding(weight, input, place, scale_grad_by_freq, sparse)


@decomposes("pad")
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    if mode == "constant":
        return aten.constant_pad_nd(input, [*pad], 0.0 if value is None else value)
    if mode == "circular":
        return aten.pad(input, [*pad], mode)
    kind = {"reflect": "reflection", "replicate": "replication"}[mode]
    return getattr(aten, f"{kind}_pad{len(pad) // 2}d")(input, [*pad])


@decomposes("interpolate")
def interpolate(
    input: Tensor, size: Arg = None, scale_factor: Arg = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    n = input.ndim - 2
    places = input.shape[2:]
    name = {"nearest": "nearest", "nearest-exact": "nearest_exact"}.get(mode, mode)
    if mode == "area" or antialias:
        from_rows = FUNCTIONS["nn.functional", "interpolate"].function
        return OwnOverload("interpolate", from_rows)(
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    scales: list[float] = []
    if size is None:
        scales = [float(x) for x in (scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * n)]
        size = [int(extent * scale) for extent, scale in zip(places, scales, strict=True)]
    sizes = [size] * n if isinstance(size, int) else list(size)
    corners = [] if mode.startswith("nearest") else [bool(align_corners)]
    kind = name if mode.endswith(("linear", "cubic")) else f"{name}{n}d"
    kind = {"linear": "linear1d", "bilinear": "bilinear2d", "bicubic": "bicubic2d", "trilinear": "trilinear3d"}.get(
        kind, kind
    )
    prefix = "_upsample_" if mode == "nearest-exact" else "upsample_"
    return getattr(aten, prefix + kind)(input, sizes, *corners, *([] if recompute_scale_factor else scales))


@decomposes("max_pool2d")
def max_pool2d(
    input: Tensor, kernel_size: Arg, stride: Arg = None, padding: Arg = 0, dilation: Arg = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Arg:  # fmt: skip
    def two(x: Arg) -> list[int]:
        return [x, x] if isinstance(x, int) else list(x)

    strides = [] if stride is None else two(stride)
    results = aten.max_pool2d_with_indices(input, two(kernel_size), strides, two(padding), two(dilation), ceil_mode)
    return results if return_indices else results[0]


@decomposes("adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Tensor, output_size: Arg) -> Tensor:
    sizes = [output_size] * 2 if output_size is None or isinstance(output_size, int) else list(output_size)
    sizes = [own if size is None else size for size, own in zip(sizes, input.shape[-2:], strict=True)]
    return aten.mean(input, [-1, -2], True) if sizes == [1, 1] else aten._adaptive_avg_pool2d(input, sizes)


@decomposes("scaled_dot_product_attention")
def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (aten.repeat_interleave(x, times, -3) for x in (key, value))
    return aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )[0]


# --- losses -------------------------------------------------------------------------------------------------------


def _reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> int:
    return REDUCTIONS.index(reduction_name(reduction, size_average, reduce))


@decomposes("nll_loss")
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    number = _reduction(reduction, size_average, reduce)
    operator = aten.nll_loss_forward if input.ndim <= 2 else aten.nll_loss2d_forward
    return operator(input, target, weight, number, ignore_index)[0]


@decomposes("cross_entropy")
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    number = _reduction(reduction, size_average, reduce)
    if target.is_floating_point() or label_smoothing > 0 or input.ndim not in (1, 2, 4):
        return aten.cross_entropy_loss(input, target, weight, number, ignore_index, label_smoothing)
    logs = aten._log_softmax(input, 0 if input.ndim == 1 else 1, False)
    return nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[number])


@decomposes("l1_loss")
def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    apart = aten.abs(aten.sub(input, target))
    apart = apart if weight is None else aten.mul(apart, weight)
    number = _reduction(reduction, size_average, reduce)
    return (apart, aten.mean(apart) if number == 1 else apart, aten.sum(apart) if number == 2 else apart)[number]
