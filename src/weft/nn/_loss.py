"""Losses."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from weft._base.types import AnyCallable, Arg
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError
from weft.nn import functional as F
from weft.nn._layer import layer
from weft.nn._module import Module
from weft.nn._shape import PairwiseDistance
from weft.ops._neural import reduction_name

if TYPE_CHECKING:
    from weft.nn._layer import LayerClass, Settle

_OLD: dict[str, Any] = {"size_average": None, "reduce": None, "reduction": "mean"}


def _settle(loss: Module) -> None:
    loss.reduction = reduction_name(loss.reduction, loss.size_average, loss.reduce)
    del loss.size_average, loss.reduce


def _require_margin(loss: Module) -> None:
    if loss.margin <= 0:
        name = type(loss).__name__
        raise ValueRangeError(f"{name}: expected margin to be greater than 0, got {loss.margin} instead")


def _settle_margin(loss: Module) -> None:
    _require_margin(loss)
    _settle(loss)


def _require_delta(loss: Module) -> None:
    if not isinstance(loss.delta, (float, int)):
        raise ArgumentError(f"delta must be a float or int, got: {type(loss.delta)}")


_HIDDEN = ("size_average", "reduce")


class _Loss(Module):
    """The base of all losses: how a loss for each element is reduced, "none", "mean" or "sum"."""

    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction_name(reduction, size_average, reduce)


def _loss(name: str, function: AnyCallable, doc: str, settle: Settle = _settle, **fields: Arg) -> LayerClass:
    """A class of losses whose fields include the reduction and PyTorch's two older arguments for it."""
    return layer(name, __name__, function, doc, base=_Loss, settle=settle, hidden=_HIDDEN, **fields)


L1Loss = _loss("L1Loss", F.l1_loss, "|x - y|.", **_OLD)
MSELoss = _loss("MSELoss", F.mse_loss, "(x - y)².", **_OLD)
SmoothL1Loss = _loss("SmoothL1Loss", F.smooth_l1_loss, "Squares below `beta`, absolute above.", **_OLD, beta=1.0)
HuberLoss = layer(
    "HuberLoss",
    __name__,
    F.huber_loss,
    "Squares below `delta`, `delta` times absolute above.",
    base=_Loss,
    settle=_require_delta,
    reduction="mean",
    delta=1.0,
)
KLDivLoss = _loss(
    "KLDivLoss", F.kl_div, "The Kullback-Leibler divergence of log-probabilities.", **_OLD, log_target=False
)
SoftMarginLoss = _loss("SoftMarginLoss", F.soft_margin_loss, "log(1 + exp(-y x)).", **_OLD)
MultiLabelMarginLoss = _loss(
    "MultiLabelMarginLoss", F.multilabel_margin_loss, "Margins of the labels over all other classes.", **_OLD
)


class PoissonNLLLoss(
    _loss(
        "PoissonNLLLoss",
        F.poisson_nll_loss,
        "",
        log_input=True,
        full=False,
        size_average=None,
        eps=1e-8,
        reduce=None,
        reduction="mean",
    )
):
    """The negative log-likelihood of Poisson counts."""

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """The loss of the rates or, if the attribute `log_input` is set, of their logarithms."""
        return super().forward(log_input, target)


GaussianNLLLoss = layer(
    "GaussianNLLLoss",
    __name__,
    F.gaussian_nll_loss,
    "The negative log-likelihood of normal numbers.",
    base=_Loss,
    by_keyword=True,
    full=False,
    eps=1e-6,
    reduction="mean",
)
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
    "TripletMarginLoss",
    F.triplet_margin_loss,
    "max(0, |a - p| - |a - n| + margin).",
    _settle_margin,
    margin=1.0,
    p=2.0,
    eps=1e-6,
    swap=False,
    **_OLD,
)


class _WeightedLoss(_Loss):
    """Losses with a weight for each class or element; the weight is a buffer.

    `_options` are the names of the attributes that are passed to the function as keywords.
    """

    _function: str
    _options: tuple[str, ...] = ()
    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        self._setup(weight, size_average, reduce, reduction)

    def _setup(
        self, weight: Tensor | None, size_average: bool | None, reduce: bool | None, reduction: str, **options: Arg
    ) -> None:
        _Loss.__init__(self, size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.__dict__.update(options)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced."""
        options = {name: getattr(self, name) for name in self._options}
        return getattr(F, self._function)(input, target, weight=self.weight, reduction=self.reduction, **options)


class CrossEntropyLoss(_WeightedLoss):
    """The negative log-likelihood of class numbers, or class probabilities, under the softmax of the input."""

    _function = "cross_entropy"
    _options = ("ignore_index", "label_smoothing")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        self._setup(weight, size_average, reduce, reduction, ignore_index=ignore_index, label_smoothing=label_smoothing)


class NLLLoss(_WeightedLoss):
    """The negative log-likelihood of class numbers under log-probabilities."""

    _function = "nll_loss"
    _options = ("ignore_index",)

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        self._setup(weight, size_average, reduce, reduction, ignore_index=ignore_index)


class NLLLoss2d(NLLLoss):
    """The deprecated name of `NLLLoss`."""

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement and see "
            "https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more details.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)


class BCELoss(_WeightedLoss):
    """The binary cross entropy of probabilities."""

    _function = "binary_cross_entropy"


class BCEWithLogitsLoss(_WeightedLoss):
    """The binary cross entropy of the sigmoid of the input; `pos_weight` multiplies the loss of positive targets."""

    _function = "binary_cross_entropy_with_logits"
    _options = ("pos_weight",)

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The binary cross entropy with logits, as a mean over the classes."""

    _function = "multilabel_soft_margin_loss"


class MultiMarginLoss(_WeightedLoss):
    """Margins of the class over all others, to the power of `p`."""

    _function = "multi_margin_loss"
    _options = ("p", "margin")

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        if p not in (1, 2):
            raise ValueRangeError("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise ValueRangeError(
                f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.ndim}D instead"
            )
        self._setup(weight, size_average, reduce, reduction, p=p, margin=margin)


def _settle_distance(loss: Module) -> None:
    _require_margin(loss)
    if loss.distance_function is None:
        loss.distance_function = PairwiseDistance()


TripletMarginWithDistanceLoss = layer(
    "TripletMarginWithDistanceLoss",
    __name__,
    F.triplet_margin_with_distance_loss,
    "`TripletMarginLoss` with a distance of your own.",
    base=_Loss,
    settle=_settle_distance,
    by_keyword=True,
    distance_function=None,
    margin=1.0,
    swap=False,
    reduction="mean",
)
CTCLoss = layer(
    "CTCLoss",
    __name__,
    F.ctc_loss,
    "-log of the probability of sequences of labels, summed over their alignments with (time, batch, classes).",
    None,
    base=_Loss,
    blank=0,
    reduction="mean",
    zero_infinity=False,
)


def _legacy_reduction(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """What PyTorch's two older arguments for the reduction mean."""
    name = reduction_name("mean", size_average, reduce)
    if emit_warning:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.", stacklevel=2
        )
    return name


def _reduction_number(reduction: str) -> int:
    """The number that PyTorch's operators take for a reduction."""
    numbers = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}
    if reduction not in numbers:
        raise ValueRangeError(f"{reduction} is not a valid value for reduction")
    return numbers[reduction]
