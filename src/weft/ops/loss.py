"""Losses over class scores: cross entropy and its relatives."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from weft.errors import DTypeError, IndexDomainError, ShapeError, ValueRangeError
from weft.ops._dims import Factors, Sizes, Static, pointwise
from weft.ops._findings import Beyond, Misses, misses
from weft.ops._kernels.rows import CROSS_ENTROPY
from weft.ops._kinds import Array, Arrays, Real, Whole
from weft.ops._native import is_number
from weft.ops._neural import like, partial_loss, reduced, reduction_name, reduction_of, require_float
from weft.ops._reduce import wide
from weft.ops._table import (
    IN_FLOAT32,
    IN_FUNCTIONAL,
    INTERNAL,
    NO_ARITHMETIC,
    NO_DERIVATIVE,
    Check,
    Derivative,
    OpDef,
    Partial,
    Shards,
    defop,
)
from weft.ops._type_names import scalar_name

_OUT_OF_BOUNDS = "Target {} is out of bounds."


def _class_dim(input: Array) -> int:
    return 0 if input.ndim == 1 else 1


def _class_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Classes are whole; without reduction the other dims of the input stay, otherwise none does."""
    scores, target, *weight = shapes
    letters = tuple(range(len(scores)))
    if not scores:
        return Factors(((),) * len(shapes), ((),))
    axis = min(1, len(scores) - 1)
    rest = letters[:axis] + letters[axis + 1 :]
    kept = rest if reduction_of(static) == "none" else ()
    ins = (letters, letters if len(target) == len(scores) else rest, *((axis,) for _ in weight))
    return Factors(ins, (kept,), frozenset({axis}))


def _check_weight(weight: Array | None, classes: int) -> None:
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(
            f"weight tensor should be defined either for all {classes} classes or no classes "
            f"but got weight tensor of shape: {list(weight.shape)}"
        )


def _check_classes(input: Array, target: Array, weight: Array | None) -> None:
    dim = _class_dim(input)
    expected = input.shape[:dim] + input.shape[dim + 1 :]
    if input.ndim > 1 and target.ndim and target.shape[0] != input.shape[0]:
        raise ValueRangeError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]})."
        )
    if input.ndim <= 2 and target.ndim > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
    if input.ndim > 2 and target.shape != expected:
        raise ShapeError(f"Expected target size {list(expected)}, got {list(target.shape)}")
    if target.dtype not in (jnp.int64, jnp.uint8):
        raise DTypeError(f"expected target dtype to be Long or Byte, but got {scalar_name(target)}")
    if target.shape != expected and not (input.ndim == 1 and target.shape == (1,)):
        raise ShapeError(f"Expected target size {list(expected)}, got {list(target.shape)}")
    _check_weight(weight, input.shape[dim])
    if weight is not None and weight.dtype != input.dtype:
        raise DTypeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(weight)}")


def _out_of_bounds(target: Array, n_classes: int, ignore_index: Whole) -> Misses | None:
    if not jnp.issubdtype(target.dtype, jnp.integer):
        return None
    index = target.astype(np.int64)
    bad = ((index < 0) | (index >= n_classes)) & (index != ignore_index)
    return misses(index, bad, "the classes")


def _over_classes(vector: Array, input: Array) -> Array:
    return vector if input.ndim == 1 else vector.reshape((-1,) + (1,) * (input.ndim - 2))


def _targets(
    input: Array, target: Array, weight: Array | None, ignore_index: Whole, smoothing: Real
) -> tuple[Array, Array | None]:
    """The weight of each class in each sample's loss, and the share of each sample in the mean.

    The loss of a sample is the sum over classes of weight * -log_softmax; ignored samples have weights 0. The share is
    None where a mean divides by the number of samples, as it does for class probabilities.
    """
    dim = _class_dim(input)
    scale = None if weight is None else _over_classes(wide(weight), input)
    if jnp.issubdtype(target.dtype, jnp.inexact):
        soft = wide(target)
        if not is_number(smoothing, 0):
            even = like(smoothing, soft)
            soft = soft * (1 - even) + even / input.shape[dim]
        return (soft if scale is None else soft * scale), None
    index = jnp.expand_dims(target.reshape(target.shape if input.ndim > 1 else ()), dim).astype(jnp.int64)
    classes = jax.lax.broadcasted_iota(jnp.int64, input.shape, dim)
    # An ignored target need not be a class at all, as -100, so it is compared before it is used.
    used = index != ignore_index
    one_hot = ((classes == index) & used).astype(wide(input).dtype)
    targets = one_hot if scale is None else one_hot * scale
    share = jnp.sum(targets, axis=dim)
    if is_number(smoothing, 0):
        return targets, share
    smoothing = like(smoothing, targets)
    # Smoothing must not give weight to a sample that is ignored.
    even = jnp.where(used, smoothing / input.shape[dim], 0)
    return (1 - smoothing) * targets + (even if scale is None else even * scale), share


def _mean_divisor(share: Array | None, input: Array) -> Array | float:
    """The divisor of a mean: the sum of all shares, or the number of samples."""
    return input.size / input.shape[_class_dim(input)] if share is None else jnp.sum(share)


def _require_share(ignore_index: int, label_smoothing: float) -> None:
    del ignore_index
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")


def _check_cross_entropy(input: Array, target: Array, weight: Array | None) -> None:
    if target.shape != input.shape:
        _check_classes(input, target, weight)
    elif not jnp.issubdtype(target.dtype, jnp.floating):
        raise DTypeError(f"Expected floating point type for target with class probabilities, got {scalar_name(target)}")
    else:
        _check_weight(weight, input.shape[_class_dim(input)])
    require_float(input, "log_softmax_lastdim_kernel_impl")


def _cross_entropy_vjp(
    g: Array,
    out: Arrays,
    input: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: Whole = -100,
    reduction: str = "mean",
    label_smoothing: Real = 0.0,
) -> tuple[Array | None, ...]:
    dim = _class_dim(input)
    peak, log_sum = (jnp.expand_dims(out[1][..., i], dim) for i in range(2))
    x, g = wide(input) - peak, wide(g)
    targets, share = _targets(input, target, weight, ignore_index, label_smoothing)
    if reduction == "mean":
        g = g / _mean_divisor(share, input)
    g = jnp.expand_dims(g, dim) if reduction == "none" else g
    pull = jnp.exp(x - log_sum) * jnp.sum(targets, axis=dim, keepdims=True) - targets
    g_input = jnp.where(pull == 0, 0, pull * g)  # a mean over no sample gives no gradient
    g_target = None
    if jnp.issubdtype(target.dtype, jnp.inexact):
        g_target = (log_sum - x) * g * (1 - like(label_smoothing, x))
        g_target = g_target if weight is None else g_target * _over_classes(wide(weight), input)
        g_target = g_target.astype(target.dtype)
    return g_input.astype(input.dtype), g_target, None if weight is None else jnp.zeros_like(weight)


def _bad_cross_entropy(input: Array, target: Array, ignore_index: Whole) -> Misses | None:
    return _out_of_bounds(target, input.shape[_class_dim(input)], ignore_index)


def _partial_over(divisor: OpDef) -> Partial:
    """Sums are put together; for means, this row gives the divisors of the parts."""

    def partial(static: Static) -> str | OpDef:
        return {"sum": "sum", "mean": divisor}.get(reduction_of(static), "")

    return partial


@defop(dims=_class_dims, shards=Shards(partial="sum"), derivative=NO_DERIVATIVE, public=INTERNAL)
def cross_entropy_divisor(
    input: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: Whole = -100,
    reduction: str = "mean",
    label_smoothing: Real = 0.0,
) -> Array:
    """By what a mean of `cross_entropy_loss` divides."""
    del reduction
    share = _targets(input, target, weight, ignore_index, label_smoothing)[1]
    return jnp.asarray(_mean_divisor(share, input)).astype(input.dtype)


@defop(
    derivative=Derivative(vjp=_cross_entropy_vjp, aux=1, name="NllLoss"),
    dims=_class_dims,
    types=IN_FLOAT32,
    shards=Shards(partial=_partial_over(cross_entropy_divisor)),
    check=Check(elements=_bad_cross_entropy, text=_OUT_OF_BOUNDS, limits=_require_share),
    public=INTERNAL,
    native=[CROSS_ENTROPY],
)
def cross_entropy_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: Whole = -100,
    reduction: str = "mean",
    label_smoothing: Real = 0.0,
) -> tuple[Array, Array]:
    """Negative log-likelihood of `target` under the softmax of `input` over dim 1.

    `target` holds class numbers, or probabilities in the shape of the input. The second output has, along its last dim,
    the largest input of a sample and the logarithm of the summed exponentials of what the inputs are below it: their
    sum would lose digits.
    """
    _check_cross_entropy(input, target, weight)
    if reduction not in ("none", "mean", "sum"):
        raise ValueRangeError(f"{reduction} is not a valid value for reduction")
    dim = _class_dim(input)
    result = input.dtype
    if jnp.issubdtype(target.dtype, jnp.inexact):  # probabilities, which are multiplied
        result = jnp.promote_types(result, target.dtype)
    x = wide(input).astype(jnp.promote_types(wide(input).dtype, result))
    # Exponentials of differences from the largest input cannot overflow; the result does not depend on what is
    # subtracted, so nothing flows through it.
    peak = jax.lax.stop_gradient(jnp.max(x, axis=dim, keepdims=True, initial=-jnp.inf))
    x = x - peak
    log_sum = jnp.log(jnp.sum(jnp.exp(x), axis=dim, keepdims=True))
    norms = jnp.stack([jnp.squeeze(peak, dim), jnp.squeeze(log_sum, dim)], axis=-1)
    targets, share = _targets(input, target, weight, ignore_index, label_smoothing)
    # As in `nll_loss`: 0 times an infinite logarithm would be NaN.
    surprise = jnp.where(targets != 0, targets * (log_sum - x), 0)
    if reduction == "none":
        return jnp.sum(surprise, axis=dim).astype(result), norms
    total = jnp.sum(surprise)
    total = total / _mean_divisor(share, input) if reduction == "mean" else total
    return total.astype(result), norms


def _bad_nll(input: Array, target: Array, ignore_index: Whole) -> Misses | None:
    return _out_of_bounds(target, input.shape[_class_dim(input)], ignore_index)


@defop(dims=_class_dims, shards=Shards(partial="sum"), derivative=NO_DERIVATIVE, public=INTERNAL)
def nll_loss_divisor(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: Whole = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """By what a mean of `nll_loss` divides."""
    del size_average, reduce, reduction
    share = _targets(input, target, weight, ignore_index, 0.0)[1]
    return jnp.asarray(_mean_divisor(share, input)).astype(input.dtype)


@defop(
    dims=_class_dims,
    types=IN_FLOAT32,
    shards=Shards(partial=_partial_over(nll_loss_divisor)),
    public=IN_FUNCTIONAL,
    check=Check(elements=_bad_nll, text=_OUT_OF_BOUNDS),
)
def nll_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: Whole = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """-weight[target] * input[target], for log-probabilities over dim 1."""
    if input.ndim < 1:
        raise ValueRangeError(f"Expected 1 or more dimensions (got {input.ndim})")
    _check_classes(input, target, weight)
    require_float(input, "nll_loss_out_frame")
    targets, share = _targets(input, target, weight, ignore_index, 0.0)
    # Chosen, not multiplied: the log-probability of a class that is not the target may be -inf, and 0 times that is
    # NaN.
    loss = jnp.sum(jnp.where(targets != 0, -targets * input, 0), axis=_class_dim(input)).astype(input.dtype)
    reduction = reduction_name(reduction, size_average, reduce)
    if reduction == "mean":
        return (jnp.sum(wide(loss)) / _mean_divisor(share, input)).astype(input.dtype)
    return reduced(loss, reduction)


@defop(types=NO_ARITHMETIC, dims=pointwise, public=INTERNAL, check=Check(elements=_out_of_bounds, text=_OUT_OF_BOUNDS))
def class_numbers(target: Array, n_classes: int, ignore_index: Whole) -> Array:
    """Class numbers, as a finding of those outside of [0, n_classes) but for `ignore_index`."""
    del n_classes, ignore_index
    return target


def _require_classes(input: Array) -> None:
    """Require one vector of class scores or a batch of vectors; the batch may be empty."""
    if input.ndim > 2 or 0 in input.shape[1 if input.ndim == 2 else 0 :]:
        raise ShapeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )


def _bad_multi_margin(input: Array, target: Array) -> Array:
    return (target < 0) | (target >= (input.shape[-1] if input.ndim else 1))


@defop(
    dims=_class_dims,
    types=IN_FLOAT32,
    shards=Shards(partial=partial_loss),
    public=IN_FUNCTIONAL,
    check=Check(elements=_bad_multi_margin, text="target out of range", error=IndexDomainError),
)
def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: Real = 1.0,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """Mean over the other classes of weight[target] * max(0, margin - x[target] + x) ** p."""
    if p not in (1, 2):
        raise ValueRangeError("only p == 1 and p == 2 supported")
    _require_classes(input)
    classes = input.shape[-1] if input.ndim else 1
    if weight is not None and weight.ndim != 1:
        raise ValueRangeError("weight must be one-dimensional")
    if weight is not None and weight.size != classes:
        raise ShapeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    samples = input.shape[0] if input.ndim > 1 else 1
    if target.size != samples or target.ndim > 1:
        raise ShapeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples "
            f"(batch size). Expected target size [{samples}], but got {list(target.shape)}. "
            f"Input has shape {list(input.shape)}."
        )
    if target.dtype != jnp.int64:
        raise DTypeError(f"expected scalar type Long but found {scalar_name(target)}")
    x = input.reshape(samples, classes)
    one_hot = jax.nn.one_hot(target.reshape(samples), classes, dtype=jnp.bool_)
    # Chosen by a mask instead of an index, so that a class out of range, of which `check` tells, reads nothing.
    chosen = jnp.sum(jnp.where(one_hot, x, 0), axis=1, keepdims=True)
    gap = like(margin, x) - chosen + x
    # The target's own gap is the margin, which PyTorch leaves out.
    gap = jnp.where((gap > 0) & ~one_hot, gap, 0)
    cost = gap if p == 1 else jnp.square(gap)
    if weight is not None:
        cost = cost * jnp.sum(jnp.where(one_hot, weight, 0), axis=1, keepdims=True)
    loss = jnp.sum(cost, axis=1) / classes
    return reduced(loss if target.ndim else loss[0], reduction, size_average, reduce)


def _bad_multilabel(input: Array, target: Array) -> Array:
    return (target < -1) | (target >= max(input.shape[-1] if input.ndim else 1, 1))


def _rows_whole(shapes: Sequence[Sizes], static: Static) -> Factors:
    """The last dim is whole; without reduction the others stay."""
    letters = tuple(range(max(map(len, shapes))))
    kept = letters[:-1] if reduction_of(static) == "none" else ()
    ins = tuple(letters[len(letters) - len(s) :] for s in shapes)
    return Factors(ins, (kept,), frozenset(letters[-1:]))


def _beyond_classes(target: Array, n_classes: int) -> Beyond:
    return Beyond(target, n_classes)


@defop(
    types=NO_ARITHMETIC,
    dims=pointwise,
    public=INTERNAL,
    check=Check(
        elements=_beyond_classes,
        text="Target values should be in [0, {}], but values in range [{}, {}] were found.",
        error=IndexDomainError,
    ),
)
def classes_within(target: Array, n_classes: int) -> Array:
    """Class numbers, as a finding of those outside of [0, n_classes)."""
    del n_classes
    return target


@defop(
    dims=_rows_whole,
    types=IN_FLOAT32,
    shards=Shards(partial=partial_loss),
    public=IN_FUNCTIONAL,
    check=Check(elements=_bad_multilabel, text="argument #2 'target' is out of range", error=IndexDomainError),
)
def multilabel_margin_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """Sum over targets t and other classes c of max(0, 1 - x[t] + x[c]) / C; a row of targets ends at the first -1."""
    _require_classes(input)
    if input.shape != target.shape:
        raise ShapeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    classes = input.shape[-1] if input.ndim else 1
    x, labels = input.reshape(-1, classes), target.reshape(-1, classes)
    valid = jnp.cumsum(labels < 0, axis=1) == 0
    one_hot = jax.nn.one_hot(labels, classes, dtype=jnp.bool_) & valid[..., None]  # (batch, listed, class)
    others = ~jnp.any(one_hot, axis=1)
    chosen = jnp.sum(jnp.where(one_hot, x[:, None], 0), axis=2)
    gap = 1 - chosen[:, :, None] + x[:, None]
    gap = jnp.where((gap > 0) & valid[..., None] & others[:, None], gap, 0)
    loss = jnp.sum(gap, axis=(1, 2)) / classes
    return reduced(loss if input.ndim > 1 else loss[0], reduction, size_average, reduce)


@defop(dims=_rows_whole, shards=Shards(partial=partial_loss), public=IN_FUNCTIONAL)
def multilabel_soft_margin_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """Mean over classes of the binary cross entropy of sigmoid(input)."""
    loss = -(target * jax.nn.log_sigmoid(input) + (1 - target) * jax.nn.log_sigmoid(-input))
    loss = loss if weight is None else loss * weight
    return reduced(jnp.mean(loss, axis=-1), reduction, size_average, reduce)
