"""Tensors and the functions over them. Importing this package derives them from the operator table."""

from weft._lazy import runtime as runtime
from weft._tensor import assemble as assemble
from weft._tensor import undo as undo
