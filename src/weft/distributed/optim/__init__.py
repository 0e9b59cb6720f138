"""Optimizers for training with several ranks or workers."""

from weft.distributed.optim._functional import _FunctionalAdadelta as _FunctionalAdadelta
from weft.distributed.optim._functional import _FunctionalAdagrad as _FunctionalAdagrad
from weft.distributed.optim._functional import _FunctionalAdam as _FunctionalAdam
from weft.distributed.optim._functional import _FunctionalAdamax as _FunctionalAdamax
from weft.distributed.optim._functional import _FunctionalAdamW as _FunctionalAdamW
from weft.distributed.optim._functional import _FunctionalRMSprop as _FunctionalRMSprop
from weft.distributed.optim._functional import _FunctionalRprop as _FunctionalRprop
from weft.distributed.optim._functional import _FunctionalSGD as _FunctionalSGD
from weft.distributed.optim.optimizer import DistributedOptimizer as DistributedOptimizer
from weft.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from weft.distributed.optim.utils import as_functional_optim as as_functional_optim
from weft.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
