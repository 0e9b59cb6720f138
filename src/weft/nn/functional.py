"""The functions of layers, without their state. The operator table defines them; this only names them."""

from __future__ import annotations

from weft._tensor.assemble import namespace

__getattr__, __dir__ = namespace("nn.functional")
