"""Optimizers for training with several ranks or workers."""

from weft._base.exports import on_first_use as _on_first_use
from weft.distributed.optim.optimizer import DistributedOptimizer as DistributedOptimizer
from weft.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from weft.distributed.optim.utils import as_functional_optim as as_functional_optim
from weft.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.distributed.optim._functional": (
            "_FunctionalAdadelta",
            "_FunctionalAdagrad",
            "_FunctionalAdam",
            "_FunctionalAdamW",
            "_FunctionalAdamax",
            "_FunctionalRMSprop",
            "_FunctionalRprop",
            "_FunctionalSGD",
        ),
    },
)
