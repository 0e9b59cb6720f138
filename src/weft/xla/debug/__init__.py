"""`torch_xla.debug`."""

from weft.xla.debug import metrics as metrics
from weft.xla.debug import profiler as profiler
