"""Functions of nested tensors. The operator table defines them; this module exports them."""

from __future__ import annotations

from weft._tensor.assemble import namespace

__getattr__, __dir__ = namespace("nested")
