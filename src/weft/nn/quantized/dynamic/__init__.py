"""`ao.nn.quantized.dynamic` under its former path."""

from weft.ao.nn.quantized.dynamic import __dir__ as __dir__
from weft.ao.nn.quantized.dynamic import __getattr__ as __getattr__
