"""`torch_xla.debug`."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.xla.debug import profiler as profiler

_serve_below(__name__)
