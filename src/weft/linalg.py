"""Linear algebra. What the functions are is in the operator table; this only names them."""

from __future__ import annotations

from weft._tensor.assemble import namespace
from weft.errors import LinAlgError as LinAlgError

_OF_THE_PACKAGE = ("det", "matmul", "matrix_exp", "matrix_power", "slogdet")

__getattr__, __dir__ = namespace("linalg", _OF_THE_PACKAGE)
