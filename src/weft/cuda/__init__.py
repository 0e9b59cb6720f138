"""CUDA devices: which there are, and which one this thread means by `cuda`."""

from weft.cuda._devices import __dir__ as __dir__
from weft.cuda._devices import __getattr__ as __getattr__
from weft.cuda._devices import current_device as current_device
from weft.cuda._devices import device as device
from weft.cuda._devices import device_count as device_count
from weft.cuda._devices import empty_cache as empty_cache
from weft.cuda._devices import get_device_name as get_device_name
from weft.cuda._devices import is_available as is_available
from weft.cuda._devices import is_bf16_supported as is_bf16_supported
from weft.cuda._devices import manual_seed as manual_seed
from weft.cuda._devices import manual_seed_all as manual_seed_all
from weft.cuda._devices import max_memory_allocated as max_memory_allocated
from weft.cuda._devices import memory_allocated as memory_allocated
from weft.cuda._devices import set_device as set_device
from weft.cuda._devices import synchronize as synchronize
