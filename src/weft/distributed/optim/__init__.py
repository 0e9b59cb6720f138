"""Optimizers that take part in training with several ranks or workers."""

from weft.distributed.optim._distributed import DistributedOptimizer as DistributedOptimizer
from weft.distributed.optim._post_local_sgd import PostLocalSGDOptimizer as PostLocalSGDOptimizer
