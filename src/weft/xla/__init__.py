"""The XLA device interface: programs written for the lazy XLA device run after changing their imports."""

from weft.version import __version__ as __version__
from weft.xla import amp as amp
from weft.xla import core as core
from weft.xla import debug as debug
from weft.xla import distributed as distributed
from weft.xla import runtime as runtime
from weft.xla import stablehlo as stablehlo
from weft.xla import test as test
from weft.xla import utils as utils
from weft.xla._compile import compile as compile
from weft.xla._devices import device as device
from weft.xla._devices import device_count as device_count
from weft.xla._devices import devices as devices
from weft.xla._devices import real_devices as real_devices
from weft.xla._random import manual_seed as manual_seed
from weft.xla._steps import step as step
from weft.xla._steps import sync as sync
from weft.xla.distributed.xla_multiprocessing import launch as launch
from weft.xla.stablehlo import save_as_stablehlo as save_as_stablehlo
from weft.xla.stablehlo import save_torch_model_as_stablehlo as save_torch_model_as_stablehlo
