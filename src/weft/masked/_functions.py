"""The functions of elements where a mask is true. Composites of the operator table define them."""

from __future__ import annotations

from weft._tensor.assemble import namespace

__getattr__, __dir__ = namespace("masked")
