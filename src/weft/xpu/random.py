"""Seeds and states of the default generator, as functions of Intel's GPUs: see `weft.xpu`."""

from weft.xpu._module import __dir__ as __dir__
from weft.xpu._module import __getattr__ as __getattr__
