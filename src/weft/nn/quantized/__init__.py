"""`ao.nn.quantized` under its former path."""

from weft.ao.nn.quantized import __dir__ as __dir__
from weft.ao.nn.quantized import __getattr__ as __getattr__
