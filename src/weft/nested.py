"""Functions of nested tensors. The operator table defines them; this module exports them."""

from __future__ import annotations

from weft._import_paths.finder import serve_below as _serve_below
from weft._tensor.assemble import namespace

__getattr__, __dir__ = namespace("nested")

_serve_below(__name__)
