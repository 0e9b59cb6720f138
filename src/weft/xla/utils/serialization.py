"""`torch_xla.utils.serialization`: files of large models, usually imported as `xser`.

Files are written tensor by tensor anyway, so these are the functions of `xla_model`.
"""

from __future__ import annotations

from weft.xla._saving import load as load
from weft.xla._saving import save as save
