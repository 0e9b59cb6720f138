"""The XLA device interface: programs written for the lazy XLA device run after changing their imports."""

from weft.xla import core as core
from weft.xla import debug as debug
from weft.xla import distributed as distributed
from weft.xla import runtime as runtime
from weft.xla._compile import compile as compile
from weft.xla._devices import device as device
from weft.xla._devices import device_count as device_count
from weft.xla._devices import devices as devices
from weft.xla._devices import real_devices as real_devices
from weft.xla._random import manual_seed as manual_seed
from weft.xla._steps import step as step
from weft.xla._steps import sync as sync
from weft.xla.distributed.xla_multiprocessing import launch as launch
