"""`ao.nn.intrinsic` under its former path."""

from weft.ao.nn.intrinsic import __dir__ as __dir__
from weft.ao.nn.intrinsic import __getattr__ as __getattr__
