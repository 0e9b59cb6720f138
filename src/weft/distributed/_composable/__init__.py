"""Functions that change a module in place, under PyTorch's older path."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributed._composable.replicate import replicate as replicate

_serve_below(__name__)
