"""Metal devices: what there is if jax has been installed with Metal, and `RuntimeError` or nothing otherwise."""

from weft._devices.streams import Event as Event
from weft.mps._module import __dir__ as __dir__
from weft.mps._module import __getattr__ as __getattr__
from weft.mps._module import current_allocated_memory as current_allocated_memory
from weft.mps._module import driver_allocated_memory as driver_allocated_memory
from weft.mps._module import recommended_max_memory as recommended_max_memory
