"""The parts of graph-mode quantization: fusion, observers and conversion of graphs."""

from weft._import_paths.finder import serve_below as _serve_below

_serve_below(__name__)
