"""The host, as `torch.get_device_module("cpu")` gives it."""

from weft._base.exports import on_first_use as _on_first_use
from weft._devices.streams import Event as Event
from weft._devices.streams import Stream as Stream
from weft._devices.streams import StreamContext as StreamContext
from weft.cpu._host import current_device as current_device
from weft.cpu._host import current_stream as current_stream
from weft.cpu._host import device_count as device_count
from weft.cpu._host import is_available as is_available
from weft.cpu._host import is_initialized as is_initialized
from weft.cpu._host import set_device as set_device
from weft.cpu._host import stream as stream
from weft.cpu._host import synchronize as synchronize

__getattr__, __dir__ = _on_first_use(__name__, {}, ("amp",))
