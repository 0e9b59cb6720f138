"""The functions behind the layers. The operator table defines them; this module exports them."""

from __future__ import annotations

from weft._tensor.assemble import namespace
from weft._tensor.composite.attention import canonical_mask as _canonical_mask  # noqa: F401  libraries call it
from weft._tensor.composite.attention import none_or_dtype as _none_or_dtype  # noqa: F401  libraries call it
from weft._tensor.composite.products import ScalingType as ScalingType
from weft._tensor.composite.products import SwizzleType as SwizzleType

__getattr__, __dir__ = namespace("nn.functional")
