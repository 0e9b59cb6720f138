"""Losses."""

from __future__ import annotations

from typing import Any

from weft._tensor.spelling import op
from weft._tensor.tensor import Tensor
from weft.nn import functional as F
from weft.nn._layer import layer
from weft.nn._module import Module
from weft.ops._neural import spelled

_OLD: dict[str, Any] = {"size_average": None, "reduce": None, "reduction": "mean"}


def _settle(loss: Any) -> None:
    loss.reduction = spelled(loss.reduction, loss.size_average, loss.reduce)
    del loss.size_average, loss.reduce


_HIDDEN = ("size_average", "reduce")


def _loss(name: str, function: Any, doc: str, **fields: Any) -> Any:
    """A loss whose fields end in the three spellings of its reduction."""
    return layer(name, __name__, function, doc, settle=_settle, hidden=_HIDDEN, **fields)


L1Loss = _loss("L1Loss", F.l1_loss, "|x - y|.", **_OLD)
MSELoss = _loss("MSELoss", F.mse_loss, "(x - y)².", **_OLD)
SmoothL1Loss = _loss("SmoothL1Loss", F.smooth_l1_loss, "Squares below `beta`, absolute above.", **_OLD, beta=1.0)
HuberLoss = layer(
    "HuberLoss", __name__, F.huber_loss, "Squares below `delta`, `delta` times absolute above.", reduction="mean",
    delta=1.0,
)  # fmt: skip
KLDivLoss = _loss(
    "KLDivLoss", F.kl_div, "The Kullback-Leibler divergence of log-probabilities.", **_OLD, log_target=False
)
SoftMarginLoss = _loss("SoftMarginLoss", F.soft_margin_loss, "log(1 + exp(-y x)).", **_OLD)
MultiLabelMarginLoss = _loss(
    "MultiLabelMarginLoss", F.multilabel_margin_loss, "Margins of the labels over all other classes.", **_OLD
)
PoissonNLLLoss = _loss(
    "PoissonNLLLoss", F.poisson_nll_loss, "The negative log-likelihood of Poisson counts.", log_input=True, full=False,
    size_average=None, eps=1e-8, reduce=None, reduction="mean",
)  # fmt: skip
GaussianNLLLoss = layer(
    "GaussianNLLLoss", __name__, F.gaussian_nll_loss, "The negative log-likelihood of normal numbers.", full=False,
    eps=1e-6, reduction="mean",
)  # fmt: skip
HingeEmbeddingLoss = _loss(
    "HingeEmbeddingLoss", F.hinge_embedding_loss, "x where y is 1, max(0, margin - x) where -1.", margin=1.0, **_OLD
)
MarginRankingLoss = _loss(
    "MarginRankingLoss", F.margin_ranking_loss, "max(0, -y (x1 - x2) + margin).", margin=0.0, **_OLD
)
CosineEmbeddingLoss = _loss(
    "CosineEmbeddingLoss", F.cosine_embedding_loss, "How far cosines are from 1, or above `margin`.", margin=0.0, **_OLD
)
TripletMarginLoss = _loss(
    "TripletMarginLoss", F.triplet_margin_loss, "max(0, |a - p| - |a - n| + margin).", margin=1.0, p=2.0, eps=1e-6,
    swap=False, **_OLD,
)  # fmt: skip


class _Weighted(Module):
    """Losses with a weight per class or element, which is a buffer.

    `_options` are the attributes that are passed to the function by name.
    """

    _function: str
    _options: tuple[str, ...] = ()
    weight: Tensor | None

    def _setup(self, weight: Tensor | None, size_average: Any, reduce: Any, reduction: str, **options: Any) -> None:
        super().__init__()
        self.reduction = spelled(reduction, size_average, reduce)
        self.register_buffer("weight", weight)
        self.__dict__.update(options)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        options = {name: getattr(self, name) for name in self._options}
        return getattr(F, self._function)(input, target, weight=self.weight, reduction=self.reduction, **options)


class CrossEntropyLoss(_Weighted):
    """The negative log-likelihood of class numbers, or class probabilities, under the softmax of the input."""

    _function = "cross_entropy"
    _options = ("ignore_index", "label_smoothing")

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
        reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        self._setup(weight, size_average, reduce, reduction, ignore_index=ignore_index, label_smoothing=label_smoothing)


class NLLLoss(_Weighted):
    """The negative log-likelihood of class numbers under log-probabilities."""

    _function = "nll_loss"
    _options = ("ignore_index",)

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        self._setup(weight, size_average, reduce, reduction, ignore_index=ignore_index)


class BCELoss(_Weighted):
    """The binary cross entropy of probabilities."""

    _function = "binary_cross_entropy"

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        self._setup(weight, size_average, reduce, reduction)


class BCEWithLogitsLoss(_Weighted):
    """The binary cross entropy of the sigmoid of the input; `pos_weight` weighs the positive class."""

    _function = "binary_cross_entropy_with_logits"
    _options = ("pos_weight",)

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        self._setup(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)


class MultiLabelSoftMarginLoss(_Weighted):
    """The binary cross entropy with logits, as a mean over the classes."""

    _function = "multilabel_soft_margin_loss"

    def __init__(
        self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        self._setup(weight, size_average, reduce, reduction)


class MultiMarginLoss(_Weighted):
    """Margins of the class over all others, to the power of `p`."""

    _function = "multi_margin_loss"
    _options = ("p", "margin")

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: Any = None,
        reduce: Any = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        self._setup(weight, size_average, reduce, reduction, p=p, margin=margin)


def _own_distance(
    anchor: Tensor, positive: Tensor, negative: Tensor, distance_function: Any, margin: float, swap: bool,
    reduction: str,
) -> Tensor:  # fmt: skip
    distance = F.pairwise_distance if distance_function is None else distance_function
    far = distance(anchor, negative)
    if swap:
        far = op.minimum(far, distance(positive, negative))
    loss = op.clamp_min(distance(anchor, positive) - far + margin, 0)
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


TripletMarginWithDistanceLoss = layer(
    "TripletMarginWithDistanceLoss", __name__, _own_distance, "`TripletMarginLoss` with a distance of your own.",
    distance_function=None, margin=1.0, swap=False, reduction="mean",
)  # fmt: skip
