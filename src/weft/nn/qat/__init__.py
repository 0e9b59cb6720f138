"""`ao.nn.qat` under its former path."""

from weft.ao.nn.qat import __dir__ as __dir__
from weft.ao.nn.qat import __getattr__ as __getattr__
