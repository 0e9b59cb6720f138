"""What users hold: tensors and the functions over them. Importing this package puts its pieces together."""

from weft._lazy import runtime as runtime
from weft._tensor import assemble as assemble
