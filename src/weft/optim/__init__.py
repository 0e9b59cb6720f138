"""Optimizers, and schedules of their learning rates."""

from weft.optim import lr_scheduler as lr_scheduler
from weft.optim._adamw import Adam as Adam
from weft.optim._adamw import AdamW as AdamW
from weft.optim._optimizer import Optimizer as Optimizer
from weft.optim._sgd import SGD as SGD
