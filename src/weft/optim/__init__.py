"""Optimizers and learning rate schedules."""

from weft.optim import lr_scheduler as lr_scheduler
from weft.optim import optimizer as optimizer
from weft.optim import swa_utils as swa_utils
from weft.optim._adadelta import Adadelta as Adadelta
from weft.optim._adafactor import Adafactor as Adafactor
from weft.optim._adagrad import Adagrad as Adagrad
from weft.optim._adamax import Adamax as Adamax
from weft.optim._adamw import Adam as Adam
from weft.optim._adamw import AdamW as AdamW
from weft.optim._asgd import ASGD as ASGD
from weft.optim._lbfgs import LBFGS as LBFGS
from weft.optim._muon import Muon as Muon
from weft.optim._nadam import NAdam as NAdam
from weft.optim._optimizer import Optimizer as Optimizer
from weft.optim._radam import RAdam as RAdam
from weft.optim._rmsprop import RMSprop as RMSprop
from weft.optim._rprop import Rprop as Rprop
from weft.optim._sgd import SGD as SGD
from weft.optim._sparse_adam import SparseAdam as SparseAdam
from weft.optim._swap import swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state
