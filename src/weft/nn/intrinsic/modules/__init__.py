"""`ao.nn.intrinsic.modules` under its former path."""

from weft.ao.nn.intrinsic.modules import __dir__ as __dir__
from weft.ao.nn.intrinsic.modules import __getattr__ as __getattr__
