"""`ao.nn.intrinsic.quantized.modules` under its former path."""

from weft.ao.nn.intrinsic.quantized.modules import __dir__ as __dir__
from weft.ao.nn.intrinsic.quantized.modules import __getattr__ as __getattr__
