"""Intel's GPUs: jax has none, so these functions answer that there are none, or raise `RuntimeError`."""

from weft._absent.denied import is_bf16_supported as is_bf16_supported
from weft._absent.denied import is_current_stream_capturing as is_current_stream_capturing
from weft._devices.device_type import DeviceType as _DeviceType
from weft._devices.device_type import module_of as _module_of
from weft._devices.streams import Event as Event
from weft._devices.streams import Stream as Stream
from weft._devices.streams import StreamContext as StreamContext
from weft._import_paths.finder import serve_below as _serve_below

__getattr__, __dir__ = _module_of(_DeviceType("xpu"), __name__)
_serve_below(__name__)
