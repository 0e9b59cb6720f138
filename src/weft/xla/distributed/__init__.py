"""`torch_xla.distributed`."""

from weft.xla.distributed import parallel_loader as parallel_loader
from weft.xla.distributed import spmd as spmd
from weft.xla.distributed import xla_backend as xla_backend
from weft.xla.distributed import xla_multiprocessing as xla_multiprocessing
