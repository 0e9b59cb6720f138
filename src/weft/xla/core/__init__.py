"""`torch_xla.core`."""

from weft.xla.core import functions as functions
from weft.xla.core import xla_model as xla_model
