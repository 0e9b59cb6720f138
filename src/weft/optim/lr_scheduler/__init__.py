"""Learning rate schedules: call `step()` once per epoch, after the optimizer's."""

from weft.optim.lr_scheduler._base import LRScheduler as LRScheduler
from weft.optim.lr_scheduler._base import _LRScheduler as _LRScheduler  # pyright: ignore[reportPrivateUsage]  PyTorch's
from weft.optim.lr_scheduler._combined import ChainedScheduler as ChainedScheduler
from weft.optim.lr_scheduler._combined import SequentialLR as SequentialLR
from weft.optim.lr_scheduler._curves import ConstantLR as ConstantLR
from weft.optim.lr_scheduler._curves import CosineAnnealingLR as CosineAnnealingLR
from weft.optim.lr_scheduler._curves import ExponentialLR as ExponentialLR
from weft.optim.lr_scheduler._curves import LinearLR as LinearLR
from weft.optim.lr_scheduler._curves import MultiStepLR as MultiStepLR
from weft.optim.lr_scheduler._curves import PolynomialLR as PolynomialLR
from weft.optim.lr_scheduler._curves import StepLR as StepLR
from weft.optim.lr_scheduler._cyclic import CyclicLR as CyclicLR
from weft.optim.lr_scheduler._lambda import LambdaLR as LambdaLR
from weft.optim.lr_scheduler._lambda import MultiplicativeLR as MultiplicativeLR
from weft.optim.lr_scheduler._one_cycle import OneCycleLR as OneCycleLR
from weft.optim.lr_scheduler._plateau import ReduceLROnPlateau as ReduceLROnPlateau
from weft.optim.lr_scheduler._restarts import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
