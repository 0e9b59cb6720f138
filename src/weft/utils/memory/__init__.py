"""What is in the memory of a device, the CPU included, and which line of the program has made it."""

from weft.utils.memory._figures import max_memory_allocated as max_memory_allocated
from weft.utils.memory._figures import max_memory_reserved as max_memory_reserved
from weft.utils.memory._figures import mem_get_info as mem_get_info
from weft.utils.memory._figures import memory_allocated as memory_allocated
from weft.utils.memory._figures import memory_reserved as memory_reserved
from weft.utils.memory._figures import memory_stats as memory_stats
from weft.utils.memory._figures import memory_summary as memory_summary
from weft.utils.memory._figures import reset_peak_memory_stats as reset_peak_memory_stats
from weft.utils.memory._holders import Allocation as Allocation
from weft.utils.memory._holders import allocations as allocations
from weft.utils.memory._page import write_memory_page as write_memory_page
from weft.utils.memory._snapshot import _dump_snapshot as _dump_snapshot
from weft.utils.memory._snapshot import _record_memory_history as _record_memory_history
from weft.utils.memory._snapshot import _snapshot as _snapshot
from weft.utils.memory._snapshot import memory_snapshot as memory_snapshot
from weft.utils.memory._snapshot import record_history as record_history
