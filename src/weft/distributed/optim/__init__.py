"""Optimizers for training with several ranks or workers."""

from weft.distributed.optim._functional import FunctionalAdadelta as _FunctionalAdadelta
from weft.distributed.optim._functional import FunctionalAdagrad as _FunctionalAdagrad
from weft.distributed.optim._functional import FunctionalAdam as _FunctionalAdam
from weft.distributed.optim._functional import FunctionalAdamax as _FunctionalAdamax
from weft.distributed.optim._functional import FunctionalAdamW as _FunctionalAdamW
from weft.distributed.optim._functional import FunctionalRMSprop as _FunctionalRMSprop
from weft.distributed.optim._functional import FunctionalRprop as _FunctionalRprop
from weft.distributed.optim._functional import FunctionalSGD as _FunctionalSGD
from weft.distributed.optim.optimizer import DistributedOptimizer as DistributedOptimizer
from weft.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from weft.distributed.optim.utils import as_functional_optim as as_functional_optim
from weft.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer

__all__ = [
    "DistributedOptimizer",
    "PostLocalSGDOptimizer",
    "ZeroRedundancyOptimizer",
    "_FunctionalAdadelta",
    "_FunctionalAdagrad",
    "_FunctionalAdam",
    "_FunctionalAdamW",
    "_FunctionalAdamax",
    "_FunctionalRMSprop",
    "_FunctionalRprop",
    "_FunctionalSGD",
    "as_functional_optim",
]
