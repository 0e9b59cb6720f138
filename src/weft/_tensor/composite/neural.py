"""`nn.functional` functions that update buffers, draw random numbers, or choose among rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import prod

from weft._base.dtype import DType, float32, uint8
from weft._base.site import warn_user
from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Arg
from weft._tensor.arguments import Dim
from weft._tensor.autocast import casting
from weft._tensor.codegen import op
from weft._tensor.convert import from_host
from weft._tensor.functions import composite
from weft._tensor.sparse.gradients import embedded
from weft._tensor.tensor import Results, Tensor
from weft._tensor.view import write
from weft.errors import DTypeError, OutOfRangeError, PreconditionError, ShapeError, ValueRangeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._neural import reduction_name
from weft.ops._resize import SMOOTH_MODES, output_sizes, smooth_weights
from weft.ops._table import IN_FUNCTIONAL, TABLE, Public
from weft.ops._type_names import scalar_name

_FUNCTIONAL = "nn.functional"


@composite(public=Public(module=_FUNCTIONAL, inplace=True))
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Leaky ReLU with slopes drawn from `lower` to `upper` in training, and their mean otherwise."""
    if lower > upper:
        raise OutOfRangeError("Lower bound should be less than or equal to the upper bound")
    if training:
        result = op.rrelu_train(input, float(lower), float(upper))
    else:
        result = op.leaky_relu(input, (lower + upper) / 2)
    return write(input, result._read()) if inplace else result


@composite(public=IN_FUNCTIONAL)
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` at the indices; `max_norm` first limits them in place.

    With `sparse`, the gradient of a weight that is a leaf is sparse: it stores a row for each index.
    """
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise PreconditionError("Padding_idx must be within num_embeddings")
        padding_idx %= weight.shape[0]
    if max_norm is not None:
        with using(grad=False):
            write(weight, op.limit_rows(weight, input, max_norm, norm_type)._read())
    return embedded(input, weight, padding_idx, scale_grad_by_freq, sparse)


def dropped(row: str, input: Tensor, p: float, training: bool, inplace: bool, whole_dims: int = 0) -> Tensor:
    """The dropout of a row, which keeps or drops the last `whole_dims` dims as a unit."""
    if not 0 <= p <= 1:
        raise ValueRangeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if whole_dims < 0:
        raise ShapeError("Feature dropout requires at least 2 dimensions in the input")
    if not input.dtype.is_differentiable and p < 1:
        raise DTypeError(f"result type Float can't be cast to the desired output type {scalar_name(input.dtype)}")
    result = getattr(op, row)(input, float(p), whole_dims)
    return write(input, result._read()) if inplace else result


@composite(public=IN_FUNCTIONAL)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, each element set to 0 with probability `p` and the others divided by 1 - p."""
    return dropped("dropout_train", input, p, training, inplace)


def _beyond_channels(name: str, n: int, ndim: int) -> int:
    """The number of last dims that the dropout `name`, for `n` spatial dims, keeps or drops as a unit.

    As in PyTorch, other numbers of dims are accepted with a warning, and the first of three dims is the batch.
    """
    is_usual = ndim in (n + 1, n + 2)
    spatial = f"{n} spatial dimension{'s' if n > 1 else ''}, a channel dimension, and an optional batch dimension"
    use = f"Note that {name} exists to provide channel-wise dropout on inputs with {spatial}"
    if n == 1:
        if not is_usual:
            raise ShapeError(
                f"{name}: Expected 2D or 3D input, but received a {ndim}D input. {use} (i.e. 2D or 3D inputs)."
            )
        return 1
    if not is_usual:
        warn_user(
            f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in a future "
            "release. To retain the behavior and silence this warning, please use dropout instead. "
            f"{use} (i.e. {n + 1}D or {n + 2}D inputs)."
        )
    if n == 2 and ndim == 3:
        warn_user(
            f"{name}: Received a 3D input to {name} and assuming that channel-wise 1D dropout behavior is desired - "
            "input is interpreted as shape (N, C, L), where C is the channel dim. To maintain the 1D channel-wise "
            "dropout behavior, please switch to using dropout1d instead."
        )
    return ndim - 2 if n == 2 or ndim == n + 2 else ndim - 1


def _channel_dropout(n: int) -> Callable[..., Tensor]:
    """`dropout` of whole channels with `n` spatial dims."""
    name = f"dropout{n}d"

    @composite(name, doc="`dropout` that keeps or drops whole channels.", public=IN_FUNCTIONAL)
    def channel_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return dropped("dropout_train", input, p, training, inplace, _beyond_channels(name, n, input.ndim))

    return channel_dropout


dropout1d = _channel_dropout(1)
dropout2d = _channel_dropout(2)
dropout3d = _channel_dropout(3)


@composite(public=IN_FUNCTIONAL)
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that preserves mean and variance of the inputs of `selu`."""
    return dropped("alpha_dropout_train", input, p, training, inplace)


@composite(public=IN_FUNCTIONAL)
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` that keeps or drops whole channels."""
    return dropped("alpha_dropout_train", input, p, training, inplace, input.ndim - 2)


def normalised(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, *rest: object, per_instance: bool
) -> Tensor:
    """Normalise by the statistics of the batch, and update the running ones in place."""
    y, mean, variance = op.batch_norm_train(input, running_mean, running_var, *rest, per_instance)
    for buffer, fresh in ((running_mean, mean), (running_var, variance)):
        if buffer is not None:
            write(buffer, fresh.detach()._read())
    return y


@composite(public=IN_FUNCTIONAL)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel normalised by the batch's statistics, which update the running ones, or by the running ones."""
    if eps < 0 or (training and eps == 0):
        wanted = "positive during training" if training else "non-negative"
        raise ValueRangeError(f"batch_norm eps must be {wanted}, but got {eps}")
    if training:
        return normalised(input, running_mean, running_var, weight, bias, momentum, eps, per_instance=False)
    for name, buffer in (("running_mean", running_mean), ("running_var", running_var)):
        if buffer is None:
            raise ShapeError(f"{name} must be defined in evaluation mode")
    return op.batch_norm_eval(input, running_mean, running_var, weight, bias, eps)


@composite(public=IN_FUNCTIONAL)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each sample normalised over its spatial dims, or by the running statistics."""
    if use_input_stats:
        return normalised(input, running_mean, running_var, weight, bias, momentum, eps, per_instance=True)
    if running_mean is None or running_var is None:
        raise ShapeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    return op.batch_norm_eval(input, running_mean, running_var, weight, bias, eps)


@composite(public=IN_FUNCTIONAL)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Groups of channels of each sample, which need several elements, scaled to mean 0 and variance 1."""
    if input.ndim > 1 and num_groups > 0:  # refused here only, as in PyTorch: `weft.group_norm` takes single elements
        size = [input.shape[0] * input.shape[1] // num_groups, num_groups, *input.shape[2:]]
        if size[0] * prod(size[2:]) == 1:
            raise ValueRangeError(f"Expected more than 1 value per channel when training, got input size {size}")
    return op.group_norm(input, num_groups, weight, bias, eps)


def _max_pools(n: int) -> None:
    """Maximum pooling over `n` dims, which gives the positions of the maxima if asked to."""

    def max_pool(
        input: Tensor,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        dilation: object = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Results:
        """The largest element of each window, and its flat position in the plane if `return_indices`."""
        row = f"max_pool{n}d_with_indices" if return_indices else f"max_pool{n}d_values"
        return getattr(op, row)(input, kernel_size, stride, padding, dilation, ceil_mode)

    @composite(f"adaptive_max_pool{n}d", public=IN_FUNCTIONAL)
    def adaptive_max_pool(input: Tensor, output_size: object, return_indices: bool = False) -> Results:
        """The largest element of each of `output_size` windows, and its position if `return_indices`."""
        row = f"adaptive_max_pool{n}d_with_indices" if return_indices else f"adaptive_max_pool{n}d_values"
        return getattr(op, row)(input, output_size)

    for module in ("", _FUNCTIONAL):
        composite(f"max_pool{n}d", public=Public(module=module, method=""))(max_pool)


for _n in (1, 2, 3):
    _max_pools(_n)


@composite(public=IN_FUNCTIONAL)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log-likelihood of class numbers, or of class probabilities, under the softmax of `input`."""
    reduction = reduction_name(reduction, size_average, reduce)
    if ignore_index >= 0 and target.shape == input.shape and target.is_floating_point():
        raise ShapeError("ignore_index is not supported for floating point target")
    smoothing = label_smoothing if label_smoothing > 0 else 0.0  # PyTorch takes what is no positive number for none
    return op.cross_entropy_loss(input, target, weight, ignore_index, reduction, smoothing)


@composite(public=IN_FUNCTIONAL)
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: AnyCallable | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being Euclidean unless given.

    With `swap` the negatives are as near as they are to the anchor or to the positive, whichever is less.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueRangeError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueRangeError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance = op.pairwise_distance if distance_function is None else distance_function
    far = distance(anchor, negative)
    if swap:
        far = op.minimum(far, distance(positive, negative))
    loss = op.clamp_min(margin + distance(anchor, positive) - far, 0)
    return loss if reduction == "none" else getattr(loss, reduction)()


def _usual_dim(input: Tensor, dim: int | None, name: str, stacklevel: int) -> int:
    """The dim of a softmax; the one that PyTorch guesses if it is not given."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


def _softmax(name: str) -> None:
    """The row `name`, for which `dim` may be missing."""
    row = getattr(op, name)

    @composite(
        name,
        doc=f"{TABLE[name].doc} Without `dim`, which is deprecated, it is 0 or 1 by the number of dims.",
        public=IN_FUNCTIONAL,
    )
    def softmax(input: Tensor, dim: Dim | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
        return row(input, _usual_dim(input, dim, name, _stacklevel), dtype)


for _name in ("softmax", "softmin", "log_softmax"):
    _softmax(_name)


@composite(public=IN_FUNCTIONAL)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key' * scale + mask) value; a bool mask is true where a key may be attended to."""
    over_parts = ambient().context.attention
    if over_parts is not None:
        return over_parts(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if dropout_p == 0:
        return op.attention(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return op.attention_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@composite(public=IN_FUNCTIONAL)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A 1 at each class number along a new last dim; -1 stands for one more than the largest."""
    if num_classes <= 0 and not tensor.numel():
        raise ShapeError("Can not infer total number of classes from empty tensor.")
    if num_classes == -1:
        num_classes = int(op.amax(tensor).item()) + 1
    return op.one_hot_classes(tensor, max(num_classes, 0))


@composite(public=IN_FUNCTIONAL)
def unfold(input: Tensor, kernel_size: object, dilation: object = 1, padding: object = 0, stride: object = 1) -> Tensor:
    """Sliding blocks of (batch, channels, height, width) as columns: (batch, channels * kernel, blocks)."""
    return op.im2col(input, kernel_size, dilation, padding, stride)


@composite(public=IN_FUNCTIONAL)
def fold(
    input: Tensor,
    output_size: object,
    kernel_size: object,
    dilation: object = 1,
    padding: object = 0,
    stride: object = 1,
) -> Tensor:
    """Columns summed into the places that `unfold` takes them from."""
    return op.col2im(input, output_size, kernel_size, dilation, padding, stride)


@composite(public=IN_FUNCTIONAL)
def pad(input: Tensor, pad: Arg, mode: str = "constant", value: float | None = None) -> Tensor:
    """The last dims made longer, or shorter by negative amounts; `pad` starts with the last dim."""
    if mode != "constant" and value:
        raise ShapeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode == "replicate" or (mode == "reflect" and len(pad) < 6):
        return _padded_by_itself(input, tuple(pad), mode, None)
    return op.pad(input, tuple(pad), mode, value if mode == "constant" else None)


_padded_by_itself = casting(op.pad, CPU_FLOAT32)


def _bytes(x: Tensor) -> Tensor:
    """The nearest bytes."""
    return (x + 0.5).floor().clamp(0, 255).to(uint8)


_MODES = ("nearest", "linear", "bilinear", "bicubic", "trilinear", "area", "nearest-exact")


@composite(public=IN_FUNCTIONAL)
def interpolate(
    input: Tensor,
    size: object = None,
    scale_factor: object = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Images of (batch, channels, ...) resized to `size`, or by `scale_factor`."""
    if align_corners is not None and (mode.startswith("nearest") or mode == "area"):
        raise ValueRangeError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if recompute_scale_factor and size is not None and scale_factor is None:
        raise ValueRangeError("recompute_scale_factor is not meaningful with an explicit size.")
    if antialias:
        if mode not in SMOOTH_MODES or input.ndim != 4:
            raise ValueRangeError(
                "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as "
                "input"
            )
        sizes, scales = output_sizes(tuple(input.shape[2:]), size, scale_factor, list(SMOOTH_MODES), mode)
        scales = (None, None) if scales is None or recompute_scale_factor else scales
        options = zip(input.shape[2:], sizes, scales, strict=True)
        x = input.to(float32) if input.dtype is uint8 else input
        rows, columns = [from_host(smooth_weights(*each, bool(align_corners), mode)).to(x) for each in options]
        if x is input:
            return op.matmul(op.matmul(rows, x), columns.t())
        # The bytes of images are rounded after each axis, as in PyTorch.
        return _bytes(op.matmul(rows, _bytes(op.matmul(x, columns.t())).to(float32)))
    sizes, scales = output_sizes(tuple(input.shape[2:]), size, scale_factor, _MODES, mode)
    if mode == "area":
        return getattr(op, f"adaptive_avg_pool{len(sizes)}d")(input, sizes)
    return op.interpolate_to(input, sizes, mode, bool(align_corners), None if recompute_scale_factor else scales)
