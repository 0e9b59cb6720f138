"""Optimizers and learning rate schedules."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.optim import lr_scheduler as lr_scheduler
from weft.optim import swa_utils as swa_utils
from weft.optim._adafactor import Adafactor as Adafactor
from weft.optim._muon import Muon as Muon
from weft.optim._optimizer import Optimizer as Optimizer
from weft.optim._swap import swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state
from weft.optim.adadelta import Adadelta as Adadelta
from weft.optim.adagrad import Adagrad as Adagrad
from weft.optim.adam import Adam as Adam
from weft.optim.adam import AdamW as AdamW
from weft.optim.adamax import Adamax as Adamax
from weft.optim.asgd import ASGD as ASGD
from weft.optim.lbfgs import LBFGS as LBFGS
from weft.optim.nadam import NAdam as NAdam
from weft.optim.radam import RAdam as RAdam
from weft.optim.rmsprop import RMSprop as RMSprop
from weft.optim.rprop import Rprop as Rprop
from weft.optim.sgd import SGD as SGD
from weft.optim.sparse_adam import SparseAdam as SparseAdam

_serve_below(__name__)
