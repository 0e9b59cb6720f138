"""`torch_xla.debug`."""

from weft.xla.debug import metrics as metrics
