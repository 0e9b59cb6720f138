"""Losses as functions of the package itself: `reduction` is a number, 0 for none, 1 for the mean, 2 for the sum.

PyTorch declares the mean as default, but its functions do not reduce unless `reduction` is given; so it is here.
"""

from __future__ import annotations

from weft._tensor.codegen import op
from weft._tensor.composite import loss
from weft._tensor.composite.loss import named_reduction
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.ops._table import NO_METHOD


@composite(public=NO_METHOD)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """Binary cross entropy of sigmoid(input); the loss of positive targets is multiplied by `pos_weight`."""
    reduced = named_reduction(reduction)
    return op.binary_cross_entropy_with_logits(input, target, weight, reduction=reduced, pos_weight=pos_weight)


@composite(public=NO_METHOD)
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """1 - cosine for pairs with target 1; max(0, cosine - margin) for target -1."""
    return op.cosine_embedding_loss(input1, input2, target, margin, reduction=named_reduction(reduction))


@composite("ctc_loss", public=NO_METHOD)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: object,
    target_lengths: object,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of targets, summed over alignments; see `nn.CTCLoss`."""
    return loss.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, named_reduction(reduction), zero_infinity
    )


@composite(public=NO_METHOD)
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """`input` where the target is 1, max(0, margin - input) where it is -1."""
    return op.hinge_embedding_loss(input, target, margin, reduction=named_reduction(reduction))


@composite(public=NO_METHOD)
def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence of log-probabilities."""
    return op.kl_div(input, target, reduction=named_reduction(reduction), log_target=log_target)


@composite(public=NO_METHOD)
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """max(0, margin - target * (input1 - input2))."""
    return op.margin_ranking_loss(input1, input2, target, margin, reduction=named_reduction(reduction))


@composite(public=NO_METHOD)
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """The negative log-likelihood of counts; see `nn.PoissonNLLLoss`."""
    reduced = named_reduction(reduction)
    return op.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=reduced)


@composite(public=NO_METHOD)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """max(0, margin + distance(anchor, positive) - distance(anchor, negative))."""
    reduced = named_reduction(reduction)
    return op.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=reduced)
