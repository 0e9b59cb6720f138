"""Optimizers that take part in training with several ranks or workers."""

from weft.distributed.optim._distributed import DistributedOptimizer as DistributedOptimizer
from weft.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
