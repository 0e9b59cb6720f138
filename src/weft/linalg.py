"""Linear algebra. What the functions are is in the operator table; this only names them."""

from __future__ import annotations

from weft._tensor.assemble import namespace
from weft.errors import LinAlgError as LinAlgError

__getattr__, __dir__ = namespace("linalg")
