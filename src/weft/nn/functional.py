"""The functions behind the layers. The operator table defines them; this module exports them."""

from __future__ import annotations

from weft._tensor.assemble import namespace
from weft._tensor.composite.attention import canonical_mask, none_or_dtype
from weft._tensor.composite.products import ScalingType as ScalingType
from weft._tensor.composite.products import SwizzleType as SwizzleType

__getattr__, __dir__ = namespace("nn.functional")
_canonical_mask, _none_or_dtype = canonical_mask, none_or_dtype  # the names by which libraries import them
