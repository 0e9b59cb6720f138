"""Helpers around training."""

from weft.utils import checkpoint as checkpoint
from weft.utils import data as data
from weft.utils import dlpack as dlpack
