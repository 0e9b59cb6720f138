"""Losses composed of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft._base.dtype import int64
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.convert import tensor
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError, ValueRangeError
from weft.ops._table import IN_FUNCTIONAL

_REDUCTIONS = ("none", "mean", "sum")


def named_reduction(reduction: str | int) -> str:
    """The name of a reduction, which some functions also accept as a number."""
    name = _REDUCTIONS[reduction] if isinstance(reduction, int) and 0 <= reduction < 3 else reduction
    if name not in _REDUCTIONS:
        raise ValueRangeError(f"{reduction} is not a valid value for reduction")
    return str(name)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    return loss if reduction == "none" else op.sum(loss) if reduction == "sum" else op.mean(loss)


# --- connectionist temporal classification --------------------------------------------------------------------


def _in_range(lengths: Sequence[int], name: str, most: int | None) -> None:
    """Refuse lengths out of range, if they are known without computing anything."""
    for length in lengths:
        limit = "at least 0" if length < 0 else "" if most is None or length <= most else f"at most {most}"
        if limit:
            raise ShapeError(
                f"Expected {name} to have value {limit}, but got value {length} "
                "(while checking arguments for ctc_loss_allocate_outputs)"
            )


def _length_tensor(lengths: Arg, name: str, like: Tensor) -> Tensor:
    if not isinstance(lengths, Tensor):
        return tensor(list(lengths), dtype=int64, device=like.device)
    if lengths.is_floating_point() or lengths.is_complex():
        raise DTypeError(f"{name} must be integral")
    return lengths.to(like.device, int64).reshape(-1)


def _size_error(wanted: str, dim: int, size: int) -> ShapeError:
    return ShapeError(
        f"Expected tensor to have size {wanted} at dimension {dim}, but got size {size} for argument #2 'targets' "
        "(while checking arguments for ctc_loss_allocate_outputs)"
    )


def _longest(targets: Tensor, lengths: Arg) -> int:
    """An upper bound of the target lengths. If the targets are one vector, the lengths' values are read."""
    if targets.ndim == 2 and isinstance(lengths, Tensor):
        return targets.shape[1]
    sizes = lengths.reshape(-1).tolist() if isinstance(lengths, Tensor) else list(lengths)
    _in_range(sizes, "target_lengths", None)
    longest = max(sizes, default=0)
    if targets.ndim == 2 and longest > targets.shape[1]:
        raise _size_error(f"at least {longest}", 1, targets.shape[1])
    if targets.ndim == 1 and sum(sizes) != targets.shape[0]:
        raise _size_error(str(sum(sizes)), 0, targets.shape[0])
    return longest


@composite(public=IN_FUNCTIONAL)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Arg,
    target_lengths: Arg,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of targets, summed over alignments; see `nn.CTCLoss`.

    `log_probs` are (time, batch, classes) or (time, classes); targets are (batch, labels), or one vector of all.
    """
    lengths = (input_lengths, target_lengths)
    if not any(all(isinstance(x, kind) for x in lengths) for kind in (Tensor, Sequence)):
        raise ArgumentError("ctc_loss(): input_lengths and target_lengths must both be tensors, or both tuples of ints")
    reduction = named_reduction(reduction)
    if targets.ndim not in (1, 2):
        raise ShapeError(
            f"Expected 1 to 2 dimensions, but got {targets.ndim}-dimensional tensor for argument #2 'targets' "
            "(while checking arguments for ctc_loss_allocate_outputs)"
        )
    batched = log_probs.ndim == 3
    if not log_probs.numel():
        raise ShapeError("log_probs tensor must not be empty")
    scores = log_probs if batched else op.unsqueeze(log_probs, 1)
    times = _length_tensor(input_lengths, "input_lengths", scores)
    sizes = _length_tensor(target_lengths, "target_lengths", scores)
    if not isinstance(input_lengths, Tensor) and len(input_lengths) == scores.shape[1]:
        _in_range(input_lengths, "input_lengths", scores.shape[0])
    if not 0 <= blank < scores.shape[2]:
        raise ShapeError("blank must be in label range")
    longest = _longest(targets, target_lengths)
    losses = op.ctc_losses(scores, targets, times, sizes, longest, blank, zero_infinity)
    if reduction == "mean":
        losses = op.true_divide(losses, op.clamp_min(sizes, 1).to(losses.dtype))
    return _reduced(losses if batched or reduction != "none" else losses[0], reduction)


# --- a layer and cross entropy --------------------------------------------------------------------------------


def _check_linear(input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, ignore: int | None) -> None:
    if input.ndim not in (1, 2):
        raise ShapeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if weight.ndim < 2:
        raise ShapeError(f"expected linear_weight with dimensionality at least 2, got {weight.ndim}")
    features, outputs = input.shape[-1], tuple(weight.shape[:-1])
    if features != weight.shape[-1]:
        raise ShapeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {features} and {weight.shape[-1]}, respectively"
        )
    if bias is not None and tuple(bias.shape) != outputs:
        raise ShapeError(f"expected linear_bias shape {outputs}, got {tuple(bias.shape)}")
    if len(outputs) > 1 and input.ndim == 1:
        raise ShapeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    if tuple(target.shape) == (*input.shape[:-1], *outputs) and ignore is not None:
        raise ShapeError("ignore_index cannot be specified when target contains probabilities")


@composite(public=IN_FUNCTIONAL)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: object = None,
) -> Tensor:
    """`cross_entropy` of `linear(input, linear_weight, linear_bias)`, with weights of (classes, ..., features).

    `options` are PyTorch's choices of chunks. They do not affect the result, and are ignored.
    """
    del options
    _check_linear(input, linear_weight, target, linear_bias, ignore_index)
    outputs = tuple(linear_weight.shape[:-1])
    rows = op.reshape(linear_weight, (math.prod(outputs), linear_weight.shape[-1]))
    scores = op.linear(input, rows, None if linear_bias is None else op.reshape(linear_bias, (-1,)))
    scores = op.reshape(scores, (*input.shape[:-1], *outputs))
    ignored = -100 if ignore_index is None else ignore_index
    return op.cross_entropy_loss(scores, target, weight, ignored, reduction, label_smoothing)
