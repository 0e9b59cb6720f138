"""Where PyTorch/XLA keeps what it asks of its hardware, for libraries that ask there."""

from weft.xla._internal import tpu as tpu
