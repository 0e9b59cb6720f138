"""`ao.nn.qat.dynamic.modules` under its former path."""

from weft.ao.nn.qat.dynamic.modules import __dir__ as __dir__
from weft.ao.nn.qat.dynamic.modules import __getattr__ as __getattr__
