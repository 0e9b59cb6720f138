"""`ao.nn.quantizable` under its former path."""

from weft.ao.nn.quantizable import __dir__ as __dir__
from weft.ao.nn.quantizable import __getattr__ as __getattr__
