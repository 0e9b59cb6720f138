"""`ao.nn.quantizable.modules` under its former path."""

from weft.ao.nn.quantizable.modules import __dir__ as __dir__
from weft.ao.nn.quantizable.modules import __getattr__ as __getattr__
