"""Adaptive softmax, under PyTorch's import path."""

from weft.nn._adaptive import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
