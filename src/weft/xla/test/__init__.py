"""`torch_xla.test`: the lines and scalars that PyTorch/XLA's examples write about their progress."""

from weft.xla.test import test_utils as test_utils
