"""The base of optimizers, under PyTorch's import path."""

from weft.optim._optimizer import Optimizer as Optimizer
from weft.optim._optimizer import ParamsT as ParamsT
from weft.optim._optimizer import register_optimizer_step_post_hook as register_optimizer_step_post_hook
from weft.optim._optimizer import register_optimizer_step_pre_hook as register_optimizer_step_pre_hook
from weft.optim._optimizer import required as required
