"""Sizes that may change."""

from weft.export._dims import Dim as Dim
from weft.export._dims import dims as dims
from weft.export._shapes import AdditionalInputs as AdditionalInputs
from weft.export._shapes import ShapesCollection as ShapesCollection
