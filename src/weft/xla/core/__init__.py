"""`torch_xla.core`."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.xla.core import functions as functions

_serve_below(__name__)
