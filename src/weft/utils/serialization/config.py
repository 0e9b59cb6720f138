"""Settings of `weft.save` and `weft.load`: `config.load.mmap = True`, or `with config.patch("load.mmap", True):`.

load.mmap               whether `load` leaves elements in files that it reads by their path
load.mmap_flags         how it maps them then: `mmap.MAP_PRIVATE`, or `mmap.MAP_SHARED`, by which writes go to the file
load.endianness         the byte order of files that do not say theirs, a `LoadEndianness`; None is little-endian
save.compute_crc32      whether the members of archives have checksums
save.storage_alignment  the number of bytes of which the places of members in archives are multiples

`load.calculate_storage_offsets` and `save.use_pinned_memory_for_d2h` can be set, and change nothing.
"""

from __future__ import annotations

from weft._base.settings_module import become_settings
from weft._checkpoint.options import SETTINGS

become_settings(__name__, SETTINGS)
