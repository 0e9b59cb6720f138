"""Linear algebra. The operator table defines the functions; this module exports them."""

from __future__ import annotations

from weft._tensor.assemble import namespace
from weft.errors import LinAlgError as LinAlgError

__getattr__, __dir__ = namespace("linalg")
