"""The accelerator of this machine, whatever its type: CUDA, TPU or Metal."""

from weft.accelerator._current import current_accelerator as current_accelerator
from weft.accelerator._current import current_device_idx as current_device_idx
from weft.accelerator._current import current_device_index as current_device_index
from weft.accelerator._current import current_stream as current_stream
from weft.accelerator._current import device_count as device_count
from weft.accelerator._current import device_index as device_index
from weft.accelerator._current import get_device_capability as get_device_capability
from weft.accelerator._current import is_available as is_available
from weft.accelerator._current import set_device_idx as set_device_idx
from weft.accelerator._current import set_device_index as set_device_index
from weft.accelerator._current import set_stream as set_stream
from weft.accelerator._current import synchronize as synchronize
from weft.accelerator.memory import empty_cache as empty_cache
from weft.accelerator.memory import empty_host_cache as empty_host_cache
from weft.accelerator.memory import get_memory_info as get_memory_info
from weft.accelerator.memory import max_memory_allocated as max_memory_allocated
from weft.accelerator.memory import max_memory_reserved as max_memory_reserved
from weft.accelerator.memory import memory_allocated as memory_allocated
from weft.accelerator.memory import memory_reserved as memory_reserved
from weft.accelerator.memory import memory_stats as memory_stats
from weft.accelerator.memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from weft.accelerator.memory import reset_peak_memory_stats as reset_peak_memory_stats
