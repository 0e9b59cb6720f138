"""Losses over classes that are split over a mesh: vocabulary-parallel cross entropy (https://arxiv.org/abs/1909.08053).

Each process has the scores of some classes. What is sent are the largest score of each sample and sums over classes,
never the scores themselves; the backward pass of a loss sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext

from weft._base.cell import LocalCell
from weft._base.dtype import DType, float32
from weft._base.types import Kwargs
from weft._lazy.call import BoundOp
from weft._lazy.infer import Call, signature_of
from weft._lazy.value import Value
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import arange
from weft._tensor.tensor import Tensor, operand, wrap
from weft.distributed._observers import requested
from weft.distributed.tensor._placements import Placement, Replicate, Shard
from weft.distributed.tensor._redistribute import redistributed
from weft.distributed.tensor._sharding import Sharding, labelled, sharding_in, sharding_of, whole_type
from weft.errors import ValueRangeError
from weft.ops._kinds import Many
from weft.ops._neural import reduction_name

_takes_plain = LocalCell("whether losses of split classes take plain targets", False)


@contextmanager
def loss_parallel() -> Generator[None]:
    """Within the block, losses of scores whose classes are split take plain targets and weights.

    The losses are `cross_entropy` and `nll_loss`. All processes must give the same targets. `ValueError` where other
    dims of the scores are split, too: then targets must be distributed. What the losses send counts as called for by
    the program (`ExplicitRedistributionContext`). That scores are not gathered does not depend on the block.
    """
    with _takes_plain.within(True):
        yield


def over_split_classes(call: Call, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
    """The result of a loss or a `log_softmax` whose class dim is split; None for all other calls."""
    function = _FUNCTIONS.get(call.op.name)
    sharding = inputs[0].aval.owner if inputs else None
    if function is None or not isinstance(sharding, Sharding) or sharding.is_outside:
        return None
    whole = signature_of(call, tuple([whole_type(x.aval) for x in inputs])).call  # raises what it would raise there
    assert isinstance(whole, BoundOp), "it is a call"
    static: Kwargs = dict(zip([p.name for p in whole.op.params], whole.static, strict=True))
    dim = static.get("dim", min(1, len(sharding.size) - 1))
    if not any(p.is_shard(dim) for p in sharding.placements):
        if _takes_plain.get() and any(x.aval.owner is None for x in inputs[1:]):
            raise ValueRangeError(
                f"loss_parallel() requires exactly one mesh dim to shard tensor dimension {dim}, but the placements of "
                f"the input are {sharding.placements}; its target and weight must be distributed, too"
            )
        return None
    if _wants_gradients_of_targets(inputs):
        return None
    tensors = [_distributed(x, sharding, dim, at) for at, x in enumerate(inputs)]
    if any(x.aval.owner is None for x in tensors):
        return None  # the usual way refuses it
    entries = iter(tensors)
    arguments = {name: wrap(next(entries)) if isinstance(entry, Many) else entry for name, entry in static.items()}
    with requested() if _takes_plain.get() else nullcontext():
        return (operand(function(**arguments)),)


def _wants_gradients_of_targets(inputs: Sequence[Value]) -> bool:
    """Whether gradients flow to targets that are probabilities: where these are 0, they depend on all scores."""
    return len(inputs) > 1 and inputs[1].aval.dtype.is_floating_point and inputs[1].role is not None


def _distributed(x: Value, scores: Sharding, dim: int, at: int) -> Value:
    """A plain target (input 1) or weight, which all processes have, as a replicated value, if it is to be accepted."""
    if x.aval.owner is not None or (x.aval.shape and not _takes_plain.get()):
        return x
    if at == 1 and x.aval.shape and any(p.is_shard() and not p.is_shard(dim) for p in scores.placements):
        raise ValueRangeError(
            "loss_parallel() requires a DTensor (not a plain torch.Tensor) as target where other dims than the classes "
            f"are split, as by the placements {scores.placements} of the input: whether the tensor is all of it or a "
            "part is unclear. DTensor.from_local or distribute_tensor makes a DTensor of it"
        )
    return scores.whole(x, x.aval.shape)


# --- the functions --------------------------------------------------------------------------------------------


def _log_softmax(input: Tensor, dim: int, dtype: DType | None) -> Tensor:
    x = input if dtype is None else input.to(dtype)
    shifted = _shifted(x, dim)
    return (shifted - rows.log(rows.sum(rows.exp(shifted), dim, True))).to(x.dtype)


def _cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float
) -> Tensor:
    dim = _class_dim(input)
    shifted = _shifted(input, dim)
    targets, shares = _targets(shifted, target, weight, ignore_index, label_smoothing)
    terms = (targets if shares is None else shares, targets, _products(targets, shifted), rows.exp(shifted))
    share, mass, picked, total = _sums(dim, *terms)
    count = share if shares is not None else input.numel() // input.shape[dim]
    return _reduced(rows.log(total) * mass - picked, count, reduction).to(input.dtype)


def _nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    size_average: bool | None,
    ignore_index: int,
    reduce: bool | None,
    reduction: str,
) -> Tensor:
    x = _wide(input)
    shares, _ = _targets(x, target, weight, ignore_index, 0.0)
    share, picked = _sums(_class_dim(input), shares, _products(shares, x))
    return _reduced(-picked, share, reduction_name(reduction, size_average, reduce)).to(input.dtype)


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "log_softmax": _log_softmax,
    "cross_entropy_loss": _cross_entropy,
    "nll_loss": _nll_loss,
}


# --- what they consist of -------------------------------------------------------------------------------------


def _class_dim(input: Tensor) -> int:
    return min(1, input.ndim - 1)


def _wide(x: Tensor) -> Tensor:
    return x.to(float32) if x.dtype.itemsize < float32.itemsize else x


def _shifted(input: Tensor, dim: int) -> Tensor:
    """The scores less the largest of each sample, which are finite under an exponential."""
    x = _wide(input)
    return x - rows.amax(x.detach(), dim, True)


def _over_classes(vector: Tensor, scores: Tensor) -> Tensor:
    return vector if scores.ndim == 1 else rows.reshape(vector, (-1, *(1 for _ in scores.shape[2:])))


def _targets(
    scores: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor | None]:
    """The weight of each class in a sample's loss, and what each class contributes to the sample's share in the mean.

    The latter is None for class probabilities, since a mean then divides by the number of samples.
    """
    dim = _class_dim(scores)
    even = smoothing / scores.shape[dim]
    sizes = None if weight is None else _over_classes(_wide(weight.detach()), scores)

    def weighted(x: Tensor) -> Tensor:
        return x if sizes is None else x * sizes

    if target.is_floating_point():
        return weighted(_wide(target) * (1 - smoothing) + even), None
    target = rows.class_numbers(target, scores.shape[dim], ignore_index)
    target = rows.unsqueeze(target if scores.ndim > 1 else rows.reshape(target, ()), dim)
    used = target != ignore_index
    # Each rank compares with the numbers of its own classes, so nothing of the size of the scores is sent.
    is_target = (_over_classes(_class_numbers(scores, dim), scores) == target) & used
    shares = weighted(is_target.to(scores.dtype))
    if not smoothing:
        return shares, shares
    return shares * (1 - smoothing) + weighted(used.to(scores.dtype) * even), shares


def _class_numbers(scores: Tensor, dim: int) -> Tensor:
    """The number of each class, of which each process has those of its own scores."""
    sharding = sharding_in(operand(scores))
    placements = tuple(Shard(0) if p.is_shard(dim) else Replicate() for p in sharding.placements)
    start, size = sharding.local_parts()[dim]
    numbers = operand(arange(start, start + size, device=scores.device))
    return wrap(labelled(numbers, sharding_of(sharding.mesh, placements, (sharding.size[dim],))))


def _products(shares: Tensor, scores: Tensor) -> Tensor:
    """The products, 0 where the share is: scores may be infinite there."""
    return rows.where(shares != 0, shares * scores, 0.0)


def _sums(dim: int, *terms: Tensor) -> Sequence[Tensor]:
    """The sum of each term over the classes, put together at once."""
    sums = operand(rows.stack([rows.sum(term, dim) for term in terms]))
    sharding = sharding_in(sums)
    placements: list[Placement] = [Replicate() if p.is_partial() else p for p in sharding.placements]
    return wrap(redistributed(sums, sharding.with_placements(placements))).unbind(0)


def _reduced(losses: Tensor, count: Tensor | int, reduction: str) -> Tensor:
    """The losses of samples, reduced; `count` is the share of each in the mean, or the number of samples."""
    if reduction == "none":
        return losses
    total = rows.sum(losses)
    if reduction == "sum":
        return total
    return total / (count if isinstance(count, int) else rows.sum(count))
