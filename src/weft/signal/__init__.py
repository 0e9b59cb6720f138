"""Processing of signals."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.signal import windows as windows

_serve_below(__name__)
