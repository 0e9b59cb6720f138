"""`torch_xla.distributed`."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.xla.distributed import xla_backend as xla_backend
from weft.xla.distributed import xla_multiprocessing as xla_multiprocessing

_serve_below(__name__)
