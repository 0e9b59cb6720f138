"""`torch_xla.utils`."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.xla.utils import utils as utils

_serve_below(__name__)
