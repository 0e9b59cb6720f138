"""`ao.nn.intrinsic.qat.modules` under its former path."""

from weft.ao.nn.intrinsic.qat.modules import __dir__ as __dir__
from weft.ao.nn.intrinsic.qat.modules import __getattr__ as __getattr__
