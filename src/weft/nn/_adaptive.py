"""An approximate softmax over many classes of unequal frequency."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from weft._base.device import DeviceLike
from weft._base.dtype import DType, int64
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError, ValueRangeError
from weft.nn import functional as F
from weft.nn._containers import ModuleList, Sequential
from weft.nn._linear import Linear
from weft.nn._module import Module


class _Result(NamedTuple):
    """Log-probabilities of the targets, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


_Result.__name__ = _Result.__qualname__ = "_ASMoutput"  # what PyTorch prints


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over `n_classes` in order of falling frequency, which is cheap for the frequent ones.

    One layer, `head`, chooses among the classes below the first of `cutoffs` and the clusters between the others. For
    each cluster, a layer of `tail` then chooses a class in it; its number of features is divided by another power of
    `div_value` (https://arxiv.org/abs/1609.04309). Every cluster is computed for all samples.
    """

    head: Linear
    tail: ModuleList

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueRangeError("cutoffs should be a sequence of length larger than 0")
        rising = all(a < b for a, b in pairwise([0, *cutoffs, n_classes]))
        if not rising or any(int(c) != c for c in cutoffs):
            raise ValueRangeError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for at, (start, stop) in enumerate(pairwise(self.cutoffs)):
            # Rarer classes get narrower projections (Grave et al., 2017).
            inner = int(in_features // div_value ** (at + 1))
            down = Linear(in_features, inner, False, device, dtype)
            self.tail.append(Sequential(down, Linear(inner, stop - start, False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draw new weights."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for linear in cluster:
                linear.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _Result:
        """Features (batch, in_features) and class numbers (batch,), or one of each, to log-probabilities and a loss."""
        _check(input_, target_)
        single = target_.ndim == 0
        input = op.unsqueeze(input_, 0) if single else input_
        target: Any = (op.unsqueeze(target_, 0) if single else target_).to(int64)
        target = op.classes_within(target, self.n_classes)
        head = F.log_softmax(self.head(input), 1)
        output = _chosen(head, self._head_class(target))
        # All samples go through each cluster, and most results are not used: how many samples a cluster has depends on
        # values, and sizes must not.
        for at, (start, stop) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= start) & (target < stop)
            place = op.where(inside, target - start, 0)
            output = output + op.where(inside, _chosen(F.log_softmax(self.tail[at](input), 1), place), 0.0)
        loss = -op.mean(output)
        return _Result(output.squeeze(0) if single else output, loss)

    def _head_class(self, target: Tensor) -> Tensor:
        """The head's target for each class: the class itself, or the cluster that it is in."""
        result = target
        for at, (start, stop) in enumerate(pairwise(self.cutoffs)):
            result = op.where((target >= start) & (target < stop), self.shortlist_size + at, result)
        return result

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (batch, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for at, cluster in enumerate(self.tail):
            within = F.log_softmax(cluster(input), 1)
            parts.append(within + head[:, self.shortlist_size + at, None])
        return op.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The class that the head prefers; where it prefers a cluster, the most probable of all classes."""
        best = op.argmax(self.head(input), 1)
        return op.where(best < self.shortlist_size, best, op.argmax(self.log_prob(input), 1))


def _chosen(scores: Tensor, index: Tensor) -> Tensor:
    return op.gather(scores, 1, index.unsqueeze(1)).squeeze(1)


def _check(input: Tensor, target: Tensor) -> None:
    if target.ndim > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
    if target.ndim == 1 and input.shape[0] != target.shape[0]:
        raise ShapeError("Input and target should have the same size in the batch dimension.")
    if input.ndim != target.ndim + 1:
        raise ShapeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, "
            f"but found inputs with size {input.shape}"
        )
