"""Optimizers that take part in training with several ranks."""

from weft.distributed.optim._post_local_sgd import PostLocalSGDOptimizer as PostLocalSGDOptimizer
