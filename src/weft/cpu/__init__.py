"""The host, as `torch.get_device_module("cpu")` gives it."""

from weft._base.exports import on_first_use as _on_first_use
from weft.cpu._host import current_device as current_device
from weft.cpu._host import device_count as device_count
from weft.cpu._host import is_available as is_available

__getattr__, __dir__ = _on_first_use(__name__, {}, ("amp",))
