"""Meta's accelerators: jax has none, so these functions answer that there are none, or raise `RuntimeError`."""

from weft._devices.streams import Event as Event
from weft._devices.streams import Stream as Stream
from weft._devices.streams import StreamContext as StreamContext
from weft.mtia._module import __dir__ as __dir__
from weft.mtia._module import __getattr__ as __getattr__
