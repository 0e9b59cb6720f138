"""`ao.nn.intrinsic.quantized` under its former path."""

from weft.ao.nn.intrinsic.quantized import __dir__ as __dir__
from weft.ao.nn.intrinsic.quantized import __getattr__ as __getattr__
