"""Memory of Meta's accelerators: see `weft.mtia`."""

from weft.mtia._module import __dir__ as __dir__
from weft.mtia._module import __getattr__ as __getattr__
