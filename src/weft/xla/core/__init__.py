"""`torch_xla.core`."""

from weft.xla.core import xla_model as xla_model
