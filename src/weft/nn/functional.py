"""The functions of layers, without their state. What they are is in the operator table; this only names them."""

from __future__ import annotations

from weft._tensor.assemble import namespace

_OF_THE_PACKAGE = (
    "adaptive_avg_pool1d", "avg_pool1d", "bilinear", "binary_cross_entropy_with_logits", "celu_", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "group_norm", "hardshrink", "hinge_embedding_loss", "layer_norm",
    "log_softmax", "margin_ranking_loss", "native_channel_shuffle", "pairwise_distance", "pdist", "pixel_shuffle",
    "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu_", "rms_norm", "selu_", "sigmoid", "softmax", "tanh",
    "threshold_", "triplet_margin_loss",
)  # fmt: skip
"""Functions that are the package's own, too."""

__getattr__, __dir__ = namespace("nn.functional", _OF_THE_PACKAGE)
